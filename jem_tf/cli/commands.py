"""What each command of `jem-tf` does: calls the library, prints.

Not here: flags and their help (`cli.py`). TensorFlow is imported by the command that needs it, so
that `--help` and mistakes are answered at once.
"""

import dataclasses
import sys
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any


def train(arguments: Namespace) -> None:
    from jem_tf import callbacks, data, objectives
    from jem_tf._tf import cores as threads
    from jem_tf._tf import distribution as distribute
    from jem_tf.training import recipes
    from jem_tf.training import run as training
    from jem_tf.training import run_directory as runs
    from jem_tf.training import supervisor as supervising

    several = distribute.spans_workers(arguments.strategy)
    restarts = arguments.restarts if arguments.restarts is not None else 10 if several else 0
    if restarts and supervising.needed():
        raise SystemExit(supervising.supervise(arguments.argv, restarts))
    if not supervising.needed():
        supervising.follow_parent()
    run = arguments.resume if isinstance(arguments.resume, Path) else None
    config: dict[str, Any] = {} if run is None else runs.settings(run)
    objective = arguments.objective or config.get("objective", "joint")
    if getattr(objectives.OBJECTIVES.get(objective), "chains", False):
        with warnings.catch_warnings(action="ignore"):  # a caller of `main` may have begun before
            threads.side_by_side()
    strategy = distribute.choose(arguments.strategy, arguments.wait)
    source = config.get("data", {})
    name = arguments.dataset or source.get("dataset")
    if name is None:
        raise ValueError("Say what to train on, or which run goes on: --resume RUN.")
    source = {
        "dataset": _absolute(name),
        "data_dir": arguments.data_dir or source.get("data_dir"),
        "image_size": arguments.image_size or source.get("image_size"),
    }
    if source["data_dir"] is not None:
        source["data_dir"] = str(Path(source["data_dir"]).resolve())
    dataset = data.load(name, source["data_dir"], source["image_size"])
    if run is None or arguments.recipe is not None:
        recipe = recipes.get(arguments.recipe or recipes.default_for(dataset))
    else:
        recipe = config["recipe"]
    given = ("epochs", "batch_size", "learning_rate", "steps")
    changes = {key: getattr(arguments, key) for key in given if getattr(arguments, key) is not None}
    recipe = dataclasses.replace(recipe, **changes)
    out = run or arguments.out or Path("runs") / dataset.name
    print(f"Training on {dataset.name} ({recipe.about}) into {out}")
    try:
        training.train(
            dataset,
            recipe,
            out,
            config.get("seed", 0) if arguments.seed is None else arguments.seed,
            objective,
            arguments.overwrite,
            source=source,
            resume=bool(arguments.resume),
            force=arguments.force,
            save_seconds=arguments.save_seconds,
            strategy=strategy,
        )
    except callbacks.Interrupted:
        print(f"\nGo on with: jem-tf train --resume {out}", file=sys.stderr)
        raise
    print(f"{out}/model.keras is ready")


def import_checkpoint(arguments: Namespace) -> None:
    from jem_tf import data
    from jem_tf.pytorch import layout
    from jem_tf.training import recipes
    from jem_tf.training import run_directory as runs

    depth, width = layout.sizes(arguments.arch)
    if not arguments.checkpoint.is_file():
        raise ValueError(f"There is no file {str(arguments.checkpoint)!r}.")
    out = arguments.out or Path("runs") / arguments.checkpoint.stem
    runs.check_free(out, arguments.overwrite)
    names = data.class_names(arguments.dataset, arguments.data_dir)
    checkpoint = layout.read(arguments.checkpoint, arguments.norm)
    model = layout.build(checkpoint, arguments.arch, len(names))
    paper = recipes.get("svhn" if arguments.dataset.startswith("svhn") else "cifar10")
    options = {"depth": depth, "width": width, "norm": checkpoint.norm}
    recipe = dataclasses.replace(paper, backbone_options=options)
    source = {"dataset": arguments.dataset, "data_dir": arguments.data_dir, "image_size": None}
    runs.save_as_run(model, out, recipe, source, names)
    chains = "no" if checkpoint.chains is None else len(checkpoint.chains)
    print(
        f"{out}/model.keras is ready: {arguments.arch} with {checkpoint.norm or 'no'} norm, "
        f"{len(names)} classes, {chains} chains in its buffer"
    )


def evaluate(arguments: Namespace) -> None:
    from jem_tf import evaluation
    from jem_tf.evaluation.report import page as report
    from jem_tf.training import run_directory as runs

    target = arguments.model
    subject = evaluation.open_subject(target)
    dataset = runs.data_for(
        target,
        arguments.dataset,
        arguments.data_dir,
        subject.shape[0] if arguments.resize and len(subject.shape) == 3 else None,
    )
    baseline = None
    if arguments.baseline is not None:
        runs.check_comparable(target, arguments.baseline)
        baseline = evaluation.open_subject(arguments.baseline)
    run = Path(target)
    out = arguments.out or (run / "report" if run.is_dir() else Path("reports") / run.stem)
    results = evaluation.evaluate(
        subject,
        dataset,
        out,
        baseline,
        None if arguments.ood is None else tuple(arguments.ood),
        None if arguments.attacks is None else tuple(a for a in arguments.attacks if a != "none"),
        arguments.budget,
        seed=arguments.seed,
        data_dir=arguments.data_dir,
        resize=arguments.resize,
        features=arguments.inception,
        log=run / "log.csv",
    )
    print(report.table(results))
    for note in results["notes"]:
        print(f"Note: {note}")
    print(f"Wrote {out / 'report.html'} and {out / 'metrics.json'}")
    if results["failed"]:
        raise ValueError(f"These parts failed: {', '.join(results['failed'])}.")


def loglik(arguments: Namespace) -> None:
    from jem_tf.evaluation.measures import likelihood
    from jem_tf.training import run_directory as runs

    model = runs.load(arguments.model)
    data = runs.data_for(arguments.model, arguments.dataset, arguments.data_dir, None)
    x, _ = data.arrays("test", arguments.rows)
    found = likelihood.log_z(model, arguments.chains, arguments.steps, arguments.seed)
    mean = float(-model.energy(x).mean()) - found.value
    print(
        f"log Z = {found.value:.2f} +- {found.error:.2f} nats, by {found.effective:.0f} effective "
        f"of {arguments.chains} chains\nmean log p(x) of {len(x)} test inputs = {mean:.2f} nats, "
        f"{mean / x[0].size:.3f} a value"
    )
    if found.effective < 0.1 * arguments.chains:
        print("Few chains carry this: log Z is likely larger. Give more --steps.")


def export(arguments: Namespace) -> None:
    from jem_tf.training import run_directory as runs

    out = arguments.out
    if arguments.pytorch is not None:
        from jem_tf import pytorch

        pytorch.save(runs.load(arguments.model), arguments.pytorch)
        print(f"Wrote {arguments.pytorch}")
        return
    version = runs.export_run(
        arguments.model,
        out,
        arguments.data_dir,
        refine_steps=arguments.refine_steps,
        sample_steps=arguments.sample_steps,
        examples=arguments.examples,
    )
    print(f"Wrote {version}")


def inspect(arguments: Namespace) -> None:
    from jem_tf.saved_model import description as inspection

    print(inspection.describe(arguments.directory))


def sample(arguments: Namespace) -> None:
    from jem_tf import pictures
    from jem_tf.training import run_directory as runs

    model = runs.load(arguments.model)
    samples = model.sample(
        arguments.count, arguments.label, steps=arguments.steps, seed=arguments.seed
    )
    if samples.ndim != 4:
        raise ValueError(f"Only images can be drawn. The samples have shape {samples.shape[1:]}.")
    pictures.save_grid(samples, min(10, len(samples)), arguments.out)
    print(f"Wrote {arguments.out}")


def serve(arguments: Namespace) -> None:
    from jem_tf.server import flags

    try:
        from jem_tf.server.serving import ModelServer
    except ImportError as error:
        raise ValueError(f"{error}: serving needs `pip install jem_tf[serve]`.") from error
    for name in flags.IGNORED:
        if getattr(arguments, name) is not None:
            print(f"--{name} has no effect here.", file=sys.stderr)
    values = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(flags.Options)}
    if arguments.directory is not None:
        values["model_base_path"] = str(arguments.directory)
    base = Path(values["model_base_path"])
    if values["model_base_path"] and not base.is_dir():
        raise ValueError(f"There is no directory {str(base)!r} to serve.")
    if values["model_name"] == "default" and arguments.directory is not None:
        values["model_name"] = base.resolve().name
    _log_lines()
    ModelServer(flags.Options(**values)).run()


def _log_lines() -> None:
    import logging

    from jem_tf.server.serving import JsonLines

    logs = logging.StreamHandler()
    logs.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[logs])
    logging.getLogger("httpx").setLevel(logging.WARNING)


def gateway(arguments: Namespace) -> None:
    try:
        from jem_tf.server.gateway import Gateway
    except ImportError as error:
        raise ValueError(f"{error}: the gateway needs `pip install jem_tf[serve]`.") from error
    _log_lines()
    places = arguments.upstream, arguments.upstream_rest
    Gateway(*places, arguments.host, arguments.port, arguments.rest_api_port).run()


def load(arguments: Namespace) -> None:
    from jem_tf.client.load_generator import load

    for clients in arguments.clients:
        found = load(
            arguments.address,
            arguments.model,
            arguments.signature,
            clients,
            arguments.seconds,
            arguments.rows,
        )
        print(
            f"{clients} clients: {found.per_second:.0f} requests/s, p50 "
            f"{found.milliseconds(0.5):.1f} ms, p99 {found.milliseconds(0.99):.1f} ms"
        )
        if found.failures:
            shown = ", ".join(f"{n} {code}" for code, n in found.failures.most_common())
            raise ValueError(f"{found.failures.total()} requests failed: {shown}")


def predict(arguments: Namespace) -> None:
    import json

    from jem_tf.client import JEMClient

    missing = [str(path) for path in arguments.images if not path.is_file()]
    if missing:
        raise ValueError(f"There is no file {', '.join(map(repr, missing))}.")
    names = ("version", "label", "timeout", "ca", "certificate", "key")
    options = {name: getattr(arguments, name) for name in names}
    with JEMClient(arguments.address, arguments.model, **options) as client:
        found = client.predict_images(arguments.images)
    for i, path in enumerate(arguments.images):
        row: dict[str, Any] = {
            "image": str(path),
            "class": str(found.class_name[i]),
            "probability": float(found.probabilities[i].max()),
            "energy": float(found.energy[i]),
            "ood_score": float(found.ood_score[i]),
            "is_ood": bool(found.is_ood[i]),
        }
        if arguments.json:
            print(json.dumps(row))
            continue
        verdict = "not like the training data" if row["is_ood"] else "like the training data"
        print(
            f"{path}: {row['class']} ({100 * row['probability']:.1f} %), energy "
            f"{row['energy']:.2f}, {verdict} (score {row['ood_score']:.3g})"
        )


def demo(arguments: Namespace) -> None:
    from jem_tf.cli import demo

    demo.run(arguments.out, arguments.seed)


def _absolute(dataset: str) -> str:
    """Paths as they are found from anywhere; names of data sets as they are."""
    return str(Path(dataset).resolve()) if Path(dataset).exists() else dataset

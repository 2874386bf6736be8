"""Commands that produce run directories, `train` and `import`, and `recipes`."""

import dataclasses
import sys
import warnings
from argparse import Namespace
from pathlib import Path

from jem_tf import data, objectives
from jem_tf._tf import cores, distribution
from jem_tf.callbacks import TrainingInterrupted
from jem_tf.cli import targets
from jem_tf.training import (
    DataSource,
    RunSettings,
    recipe_files,
    recipes,
    run,
    run_directory,
    supervisor,
)

LIKELIHOOD_MODELS = ("glow", "pixelcnn")  # loaded only if they are asked for
RECIPE_FLAGS = ("epochs", "batch_size", "learning_rate", "steps")


def train(arguments: Namespace) -> None:
    if arguments.objective in LIKELIHOOD_MODELS:
        return _train_likelihood(arguments)
    multi_worker = distribution.spans_workers(arguments.strategy)
    restarts = arguments.restarts if arguments.restarts is not None else 10 if multi_worker else 0
    if supervisor.is_supervised():
        supervisor.exit_with_parent()
    elif restarts:
        raise SystemExit(supervisor.supervise(arguments.argv, restarts))
    resumed = arguments.resume if isinstance(arguments.resume, Path) else None
    saved = None if resumed is None else RunSettings.read(resumed)
    name = arguments.recipe
    if name is not None and (name.endswith(".toml") or Path(name).is_file()):
        saved, name = recipe_files.read(name), None
    objective = arguments.objective or (saved.objective if saved else "joint")
    if getattr(objectives.OBJECTIVES.get(objective), "uses_chains", False):
        with warnings.catch_warnings(action="ignore"):  # TensorFlow may have started already
            cores.side_by_side()
    strategy = distribution.choose_strategy(arguments.strategy, arguments.wait)
    source = _data_source(arguments, saved)
    dataset = source.load(arguments.strict)
    start = (
        str(arguments.start.resolve()) if arguments.start else saved.classifier if saved else None
    )
    if start is not None and source.pixel_range is None and dataset.pixel_range is not None:
        source, dataset = targets.with_expected_pixels(start, source, dataset)
    if saved is None or name is not None:
        recipe = recipes.get(name or recipes.default_for(dataset))
    else:
        recipe = saved.recipe
    flags = {flag: getattr(arguments, flag) for flag in RECIPE_FLAGS}
    recipe = dataclasses.replace(
        recipe, **{flag: value for flag, value in flags.items() if value is not None}
    )
    recipe = recipe_files.change(recipe, arguments.set)
    seed = arguments.seed if arguments.seed is not None else saved.seed if saved else 0
    out = resumed or arguments.out or Path("runs") / dataset.name
    print(f"Training on {dataset.name} ({recipe.about}) into {out}", flush=True)
    try:
        run.train(
            dataset,
            RunSettings(recipe, objective, seed, source, start),
            out,
            overwrite=arguments.overwrite,
            resume=bool(arguments.resume),
            force=arguments.force,
            save_seconds=arguments.save_seconds,
            strategy=strategy,
            tensorboard=arguments.tensorboard,
        )
    except TrainingInterrupted:
        print(f"\nResume with: jem-tf train --resume {out}", file=sys.stderr)
        raise
    print(f"{out}/model.keras is ready")


def _train_likelihood(arguments: Namespace) -> None:
    """Train a model that is no JEM, with flags of its own by --set, into a run directory."""
    from jem_tf.training import likelihood

    name = arguments.objective
    source = _data_source(arguments, None)
    dataset = source.load(arguments.strict)
    options = likelihood.parse_options(name, arguments.set)
    flags = {flag: getattr(arguments, flag) for flag in likelihood.TRAINING}
    options |= {flag: value for flag, value in flags.items() if value is not None}
    resumed = arguments.resume if isinstance(arguments.resume, Path) else None
    out = resumed or arguments.out or Path("runs") / f"{dataset.name}_{name}"
    print(f"Training {name} on {dataset.name} into {out}", flush=True)
    try:
        likelihood.train(
            dataset,
            name,
            out,
            options,
            source,
            seed=arguments.seed or 0,
            overwrite=arguments.overwrite,
            resume=bool(arguments.resume),
        )
    except KeyboardInterrupt:
        print("\nThe same command with --resume continues.", file=sys.stderr)
        raise
    print(f"{out}/model.npz is ready")


def list_recipes(arguments: Namespace) -> None:
    rows = [("recipe", "cost on two cores", "test accuracy", "about")]
    for name, recipe in recipes.RECIPES.items():
        rows.append((name, *recipes.MEASURED.get(name, ("", "")), recipe.about))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def import_checkpoint(arguments: Namespace) -> None:
    from jem_tf.pytorch import conversion

    depth, width = conversion.parse_arch(arguments.arch)
    if not arguments.checkpoint.is_file():
        raise ValueError(f"There is no file {str(arguments.checkpoint)!r}.")
    out = arguments.out or Path("runs") / arguments.checkpoint.stem
    run_directory.check_free(out, arguments.overwrite)
    names = data.class_names(arguments.dataset, arguments.data_dir)
    checkpoint = conversion.read_checkpoint(arguments.checkpoint, arguments.norm)
    model = conversion.build(checkpoint, arguments.arch, len(names))
    paper = recipes.get("svhn" if arguments.dataset.startswith("svhn") else "cifar10")
    options = {"depth": depth, "width": width, "norm": checkpoint.norm}
    recipe = dataclasses.replace(paper, backbone_options=options)
    source = DataSource(arguments.dataset, arguments.data_dir)
    run_directory.save_imported(model, out, RunSettings(recipe, data=source), names)
    chains = "no" if checkpoint.chains is None else len(checkpoint.chains)
    print(
        f"{out}/model.keras is ready: {arguments.arch} with {checkpoint.norm or 'no'} norm, "
        f"{len(names)} classes, {chains} chains in its buffer"
    )


def _data_source(arguments: Namespace, saved: RunSettings | None) -> DataSource:
    """The data set of the flags, or of the run that is resumed; paths are made absolute."""
    before = saved.data if saved is not None else None
    name = arguments.dataset or (before.dataset if before else None)
    if name is None:
        raise ValueError(
            "Name a data set to train on, a run to resume (--resume RUN), or a recipe file that "
            "names its data (--recipe FILE)."
        )
    data_dir = arguments.data_dir or (before.data_dir if before else None)
    return DataSource(
        str(Path(name).resolve()) if Path(name).exists() else name,
        None if data_dir is None else str(Path(data_dir).resolve()),
        arguments.image_size or (before.image_size if before else None),
        tuple(arguments.pixel_range or ()) or (before.pixel_range if before else None),
        arguments.label or (before.label if before else None),
        tuple(arguments.columns or ()) or (before.columns if before else None),
    )

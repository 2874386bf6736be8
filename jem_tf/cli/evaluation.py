"""Commands that measure a model or show what it has learned: `evaluate`, `loglik`, `sample`."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from jem_tf.cli import targets
from jem_tf.model import load


def evaluate(arguments: Namespace) -> None:
    from jem_tf import evaluation
    from jem_tf.evaluation import report

    attacks = None if arguments.attacks is None else dict(arguments.attacks)
    if attacks is not None and len(attacks) < len(arguments.attacks):
        names = " ".join(name for name, _ in arguments.attacks)
        raise ValueError(f"--attacks names each attack once. Received: {names}")
    target = arguments.model
    subject = evaluation.open_subject(target)
    resizes = arguments.resize and len(subject.shape) == 3
    dataset = targets.load_data(
        target,
        arguments.dataset,
        arguments.data_dir,
        subject.shape[0] if resizes else None,
        arguments.label,
    )
    others: dict[str, Any] = {}
    for flag in ("baseline", "judge"):
        if (other := getattr(arguments, flag)) is not None:
            targets.check_comparable(target, other, flag, dataset.pixel_range)
            others[flag] = evaluation.open_subject(other)
    path = Path(target)
    out = arguments.out or (path / "report" if path.is_dir() else Path("reports") / path.stem)
    results = evaluation.evaluate(
        subject,
        dataset,
        out,
        ood=None if arguments.ood is None else tuple(arguments.ood),
        attacks=None if attacks is None else tuple(name for name in attacks if name != "none"),
        budget=arguments.budget,
        attack_sizes={name: sizes for name, sizes in (attacks or {}).items() if sizes},
        seed=arguments.seed,
        data_dir=arguments.data_dir,
        resize=arguments.resize,
        features=arguments.inception,
        log=path / "log.csv",
        **others,
    )
    print(report.table(results))
    for note in results["notes"]:
        print(f"Note: {note}")
    print(f"Wrote {out / 'report.html'} and {out / 'metrics.json'}")
    if results["failed"]:
        raise ValueError(f"These parts failed: {', '.join(results['failed'])}.")


def loglik(arguments: Namespace) -> None:
    from jem_tf.evaluation.measures import likelihood

    model = load(arguments.model)
    data = targets.load_data(
        arguments.model, arguments.dataset, arguments.data_dir, label=arguments.label
    )
    x, _ = data.arrays("test", arguments.rows)
    estimate = likelihood.log_z(model, arguments.chains, arguments.steps, arguments.seed)
    mean = float(-model.energy(x).mean()) - estimate.value
    print(
        f"log Z = {estimate.value:.2f} +- {estimate.error:.2f} nats, from "
        f"{estimate.effective:.0f} effective of {arguments.chains} chains\nmean log p(x) of "
        f"{len(x)} test inputs = {mean:.2f} nats, {mean / x[0].size:.3f} per value"
    )
    if estimate.effective < 0.1 * arguments.chains:
        print("Few chains dominate the estimate: log Z is likely larger. Use more --steps.")


def sample(arguments: Namespace) -> None:
    from jem_tf import pictures

    model = load(arguments.model)
    samples = model.sample(
        arguments.count, arguments.label, steps=arguments.steps, seed=arguments.seed
    )
    if samples.ndim != 4:
        raise ValueError(f"Only images can be drawn. The samples have shape {samples.shape[1:]}.")
    pictures.save_grid(samples, min(10, len(samples)), arguments.out)
    print(f"Wrote {arguments.out}")

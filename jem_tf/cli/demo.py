"""`make demo`: the whole story on the embedded digits, in minutes on two cores.

Trains a JEM and a plain classifier with the same network, measures both, writes a report, exports.
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

from jem_tf import data
from jem_tf.cli.exporting import export_model
from jem_tf.training import RunSettings, recipes, train


def demo(arguments: Namespace) -> None:
    run(arguments.out, arguments.seed)


def run(out: Path, seed: int = 0, verbose: bool = True) -> dict[str, Any]:
    """Train both models into `out`, write the report and return the measurements."""
    from jem_tf import evaluation
    from jem_tf.evaluation import report

    digits = data.load("digits")
    recipe = recipes.get("digits")
    subjects = {}
    for name, objective in (("cross-entropy", "cross_entropy"), ("JEM", "joint")):
        print(f"\nTraining {name} on {digits.name}: {recipe.epochs} epochs", flush=True)
        settings = RunSettings(recipe, objective, seed)
        model = train(digits, settings, out / objective, overwrite=True, verbose=verbose)
        subjects[name] = evaluation.of(model, name)
    print("\nMeasuring both", flush=True)
    results = evaluation.evaluate(
        subjects["JEM"],
        digits,
        out / "report",
        subjects["cross-entropy"],
        seed=seed,
        log=out / "joint" / "log.csv",
    )
    print("\n" + report.table(results))
    for question, answer in report.answers(results):
        print(f"\n{question}\n  {answer}")
    version = export_model(out / "joint", out / "saved_model" / digits.name)
    print(
        f"\nWrote {version}\nOpen {out / 'report' / 'report.html'} in a browser.\n"
        f"Try it: .venv/bin/jem-tf serve {version.parent}\n"
        "and open http://localhost:8501/: draw a 7, then a face, and compare the verdicts."
    )
    return results

"""`make demo`: the whole story on the embedded digits, in minutes on two cores.

A JEM and a plain classifier with the same network, measured side by side, reported and exported.
"""

from pathlib import Path
from typing import Any

from jem_tf import data, evaluation
from jem_tf.evaluation.report import page as report
from jem_tf.training import recipes
from jem_tf.training import run as training
from jem_tf.training import run_directory as runs


def run(out: Path, seed: int = 0, verbose: Any = "auto") -> dict[str, Any]:
    """Train both models into `out`, write the report and return what was measured."""
    digits = data.load("digits")
    recipe = recipes.get("digits")
    subjects = {}
    for name, objective in (("cross-entropy", "cross_entropy"), ("JEM", "joint")):
        print(f"\nTraining {name} on {digits.name}: {recipe.epochs} epochs", flush=True)
        model = training.train(
            digits, recipe, out / objective, seed, objective, overwrite=True, verbose=verbose
        )
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
    version = runs.export_run(out / "joint", out / "saved_model" / digits.name)
    print(
        f"\nWrote {version}\nOpen {out / 'report' / 'report.html'} in a browser.\n"
        f"Try it yourself: .venv/bin/jem-tf serve {version.parent}\n"
        "and open http://localhost:8501/: draw a 7, then a face, and see what it makes of them."
    )
    return results

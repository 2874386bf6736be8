"""`make demo`: the whole story on the embedded digits, in minutes on two cores.

A JEM and a plain classifier with the same network, measured side by side.
"""

from pathlib import Path
from typing import Any

from jem_tf import data, recipes, training
from jem_tf.evaluation import summary


def run(out: Path, seed: int = 0, verbose: Any = "auto") -> dict[str, Any]:
    """Train both models into `out`, print the table and return what was measured."""
    digits = data.load("digits")
    recipe = recipes.get("digits")
    results: dict[str, Any] = {}
    for name, objective in (("cross-entropy", "cross_entropy"), ("JEM", "joint")):
        print(f"\nTraining {name} on {digits.name}: {recipe.epochs} epochs", flush=True)
        directory = out / objective
        model = training.train(
            digits, recipe, directory, seed, objective, overwrite=True, verbose=verbose
        )
        seconds = training.read_json(directory / "result.json")
        results[name] = {**summary.measure(model, digits, seed=seed), **seconds}
    print("\n" + summary.table({name: results[name] for name in ("JEM", "cross-entropy")}))

    results["samples"] = summary.measure_samples(model, digits, seed=seed)
    fresh, replayed = results["samples"]["conditional"], results["samples"]["buffer"]
    print(
        "\nSamples, judged by a support vector machine trained on the data "
        f"(accuracy {results['samples']['judge_accuracy']:.1%}):\n"
        f"  by class from noise, {fresh['steps']} steps: {fresh['recognised']:.1%} recognised, "
        f"diversity {fresh['diversity']:.2f} of the data's\n"
        f"  in the replay buffer: {replayed['recognised']:.1%} agree with the model, "
        f"diversity {replayed['diversity']:.2f}\n"
    )
    training.write_json(out / "metrics.json", results)
    version = training.export_run(out / "joint", out / "saved_model" / digits.name)
    print(f"Wrote {out / 'metrics.json'}, {out / 'joint' / 'samples.png'} and {version}")
    return results

"""One table for a model, and for the plain classifier beside it.

Not here: the measures themselves.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jem_tf.data import SYNTHETIC, Dataset, ood_set
from jem_tf.evaluation.calibration import classification
from jem_tf.evaluation.generation import Judge
from jem_tf.evaluation.ood import auroc_table


def measure(
    model: Any,
    data: Dataset,
    ood: tuple[str, ...] = SYNTHETIC,
    limit: int = 10_000,
    seed: int = 0,
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Classification, calibration and OOD detection of `model` on the test split of `data`."""
    x, y = data.arrays("test", limit)
    sets = {name: ood_set(name, data, len(x), seed, data_dir) for name in ood}
    result = classification(model.predict(x, batch_size=256, verbose=0), y)
    return {
        "accuracy": result.accuracy,
        "nll": result.nll,
        "ece": result.ece,
        "auroc": auroc_table(model, x, sets),
    }


def measure_samples(
    model: Any, data: Dataset, per_class: int = 20, steps: int = 400, seed: int = 0
) -> dict[str, Any]:
    """Samples from fresh noise by class, and the buffer's, before an independent judge."""
    judge = Judge(*data.arrays("train", 10_000))
    labels = np.repeat(np.arange(len(data.class_names)), per_class)
    fresh = judge.quality(model.sample(len(labels), labels, steps=steps, seed=seed), labels)
    chains = model.buffer.arrays()["chains"].reshape(-1, *data.shape)
    replayed = judge.quality(chains, model.predict(chains, verbose=0).argmax(-1))
    test = judge.quality(*data.arrays("test", 10_000))
    return {
        "conditional": {**vars(fresh), "steps": steps, "count": len(labels)},
        "buffer": {**vars(replayed), "count": len(chains)},
        "judge_accuracy": test.recognised,
    }


def table(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Results of `measure` side by side, as text."""
    first = next(iter(columns.values()))
    rows = [("", list(columns))]

    def add(label: str, form: str, *keys: str) -> None:
        values = []
        for result in columns.values():
            value: Any = result
            for key in keys:
                value = value.get(key, {}) if isinstance(value, Mapping) else value
            values.append("-" if isinstance(value, Mapping) else form.format(value))
        rows.append((label, values))

    add("accuracy", "{:.1%}", "accuracy")
    add("NLL, nats", "{:.3f}", "nll")
    add("calibration error (ECE)", "{:.1%}", "ece")
    for kind, sets in first["auroc"].items():
        for name in sets:
            add(f"AUROC {kind}: {name}", "{:.3f}", "auroc", kind, name)
    add("training time, s", "{:.0f}", "training_seconds")
    left = max(len(label) for label, _ in rows)
    width = max(len(value) for _, values in rows for value in values) + 3
    return "\n".join(
        label.ljust(left) + "".join(value.rjust(width) for value in values)
        for label, values in rows
    )

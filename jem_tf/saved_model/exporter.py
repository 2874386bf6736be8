"""A trained model as a SavedModel that TF Serving loads as it is.

Not here: what the signatures compute (`signatures.py`), and anything that needs this package when
the result is used: the exported graph runs with TensorFlow alone.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.data import inputs
from jem_tf.detection.calibration import classification, confidence_of, fit_temperature, reliability
from jem_tf.saved_model.signatures import Graph, warmup_requests
from jem_tf.version import VERSION

PASS_RATE = 0.95  # of the calibration data lies above the OOD threshold
EXAMPLES = 20  # are kept at most
QUANTILES = 1001  # of its scores are kept, for percentiles


def export(
    model: Any,
    directory: str | Path,
    calibrate: Any = None,
    class_names: tuple[str, ...] | None = None,
    refine_steps: int = 10,
    sample_steps: int = 400,
    warmup_batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    pixel_range: tuple[float, float] | None = None,
    test: Any = None,
    extra: dict[str, Any] | None = None,
    examples: bool = True,
) -> Path:
    """Write `model` as the next version below `directory`; the path of that version.

    ```python
    jem_tf.export(model, "saved_models/digits", calibrate=(x_val, y_val))
    ```

    `calibrate` is labelled data that the model was not trained on, arrays `(x, y)` or batches.
    It fits the temperature of the probabilities and the threshold below which an input counts
    as out of distribution, such that 95 % of it pass; both are constants of the graph. Without
    it the temperature is 1 and nothing is flagged. `pixel_range`, such as `(-1, 1)`, says which
    numbers black and white pixels were in training; with it image models get `*_bytes`
    signatures. `test` is other labelled data, measured with the fitted temperature; `extra` is
    kept in `assets.extra/jem.json` too. Samplers without a seed for each row (`MALA`) get no
    `refine` and `sample`: their answers would depend on what else a server puts in the batch.
    `assets.extra/examples.json` holds a row of each class of the data, as the body of a request,
    unless `examples` says no: who can reach the inspector can see them. A version is written aside
    and renamed, so a server never sees half of one.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    names = class_names or tuple(str(i) for i in range(model.num_classes))
    if len(names) != model.num_classes:
        raise ValueError(
            f"`class_names` must name {model.num_classes} classes. Received: {len(names)}"
        )
    if None in model.example_shape:
        raise ValueError(
            f"Only inputs of one size can be exported. Received: shape {model.example_shape}"
        )
    if pixel_range is not None and model.example_shape[-1:] not in ((1,), (3,)):
        raise ValueError(
            "`pixel_range` is for images with 1 or 3 channels. "
            f"Received: inputs of shape {model.example_shape}"
        )
    facts = calibration_of(model, calibrate)
    graph = Graph(model, facts, names, refine_steps, sample_steps, pixel_range)
    signatures = graph.signatures()
    description = {
        "package_version": VERSION,
        "class_names": list(names),
        "input_shape": list(graph.shape),
        "pixel_range": pixel_range,
        "signatures": sorted(signatures),
        "refine_steps": refine_steps,
        "sample_steps": sample_steps,
        "temperature": facts.temperature,
        "ood_threshold": facts.threshold,
        "ood_pass_rate": PASS_RATE,
        "calibration": facts.metrics,
        "example_labels": facts.example_labels if examples else (),
        "test": None if test is None else measured(model, test, facts.temperature),
        **(extra or {}),
    }
    version = next_version(directory)
    temporary = directory / f".writing-{version}-{os.getpid()}"
    root = tf.Module()
    root.state = graph.variables  # plain variables, so that loading needs no Keras
    try:
        tf.saved_model.save(root, str(temporary), signatures=signatures)
        assets = temporary / "assets.extra"
        assets.mkdir()
        (assets / "jem.json").write_text(json.dumps(description, indent=2) + "\n")
        if examples and facts.examples is not None:
            (assets / "examples.json").write_text(json.dumps(facts.examples) + "\n")
        requests = warmup_requests(directory.name, signatures, graph, warmup_batches)
        with tf.io.TFRecordWriter(str(assets / "tf_serving_warmup_requests")) as writer:
            for request in requests:
                writer.write(request.SerializeToString())
        os.rename(temporary, directory / str(version))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory / str(version)


def next_version(directory: Path) -> int:
    """One more than the largest version below `directory`."""
    return 1 + max((int(p.name) for p in directory.iterdir() if p.name.isdigit()), default=0)


@dataclass(frozen=True)
class Calibration:
    """What labelled data tells about a model's outputs."""

    temperature: float = 1.0
    threshold: float | None = None
    quantiles: tuple[float, ...] = (-np.inf, np.inf)
    metrics: dict[str, Any] | None = None
    examples: dict[str, Any] | None = None  # the body of a request
    example_labels: tuple[int, ...] = ()


def calibration_of(model: Any, data: Any) -> Calibration:
    """Temperature, OOD threshold and score quantiles from `data`, with what they achieve on it."""
    if data is None:
        return Calibration()
    x, y = _labelled(model, data)
    scores = model.ood_score(x)
    temperature = fit_temperature(model.predict(x, batch_size=256, verbose=0), y)
    first = np.unique(y, return_index=True)[1][:EXAMPLES]  # a row of each class
    before, after = (measured(model, (x, y), t) for t in (1.0, temperature))
    return Calibration(
        temperature,
        float(np.quantile(scores, 1 - PASS_RATE)),
        tuple(np.quantile(scores, np.linspace(0, 1, QUANTILES))),
        {"before": before, "after": after},
        {"signature_name": "serving_default", "instances": _short(x[first])},
        tuple(y[first].tolist()),
    )


def _short(x: np.ndarray) -> list[Any]:
    """As lists, with the digits that float32 has."""
    flat = [float(f"{value:.7g}") for value in x.ravel()]
    return np.array(flat).reshape(x.shape).tolist()


def measured(model: Any, data: Any, temperature: float) -> dict[str, Any]:
    """Accuracy, NLL, ECE and reliability of the probabilities at `temperature`."""
    x, y = _labelled(model, data)
    logits = model.predict(x, batch_size=256, verbose=0) / temperature
    result = classification(logits, y)
    bins = asdict(reliability(*confidence_of(logits, y)))
    return {
        "rows": len(x),
        "accuracy": result.accuracy,
        "nll": result.nll,
        "ece": bins.pop("ece"),
        "reliability": bins,
    }


def _labelled(model: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = data if isinstance(data, tuple) else (data, None)
    summary = inputs.summarise(inputs.batches_of(x, y, 1024), model.num_classes)
    if summary.y is None or (summary.y < 0).any():
        raise ValueError("Data to calibrate or to test with must have a label for every row.")
    return summary.x, summary.y

"""Fitting the detector of a model: which rows are used for what.

Not here: the detector itself (`jem_tf/detection/`).

Reference rows, such as training data, say where features are. One half of the validation rows, at
most `MAX_SELECTION`, and outliers made from it choose the weights of the statistics. The other half
calibrates the verdict: it takes part in nothing else, so the false alarm rate is guaranteed.
"""

from typing import Any

import numpy as np

from jem_tf.data import inputs
from jem_tf.detection import conformal
from jem_tf.detection.outliers import made_up_outliers
from jem_tf.model.encoding import as_features

MAX_REFERENCE = 5000
MAX_SELECTION = 1000
MAX_CALIBRATION = 10_000
OUTLIERS = 300  # of each kind


def fit_detector(model: Any, x: Any, y: Any, reference: Any, seed: int) -> dict[str, Any]:
    """Fit `model.detector`; see `EnergyModel.fit_detector`."""
    rows, labels = read_rows(model, x, y)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    parts = 2 if reference is not None else 3
    needed = conformal.rows_needed(model.detector.false_alarm_rate)
    if len(rows) < parts * needed:
        raise conformal.TooFewRows(
            f"A false alarm rate of {model.detector.false_alarm_rate:g} needs {parts * needed} "
            f"validation rows or more: {needed} calibrate the verdict, as many choose its "
            f"statistics{', and as many are the reference' if parts == 3 else ''}. "
            f"Received: {len(rows)} rows. Pass more, or use Detector(false_alarm_rate=...)."
        )
    if reference is None:
        own, order = np.split(order, [len(rows) // 3])
        known, classes = rows[own], labels[own]
    else:
        known, classes = read_rows(model, *inputs.as_pair(reference))
        step = -(-len(known) // MAX_REFERENCE)
        known, classes = known[::step], classes[::step]
    selection, calibration = np.split(order, [min(MAX_SELECTION, len(order) // 2)])

    detector = model.detector
    with model.distribute_strategy.scope():
        if detector.layer_names:
            detector.fit_reference(model.features(known), classes)
        model.forget_traces()
        inside, y_inside = rows[selection], labels[selection]
        sources = inside[:OUTLIERS], y_inside[:OUTLIERS]
        made = made_up_outliers(*sources, seed=seed)
        if not detector.reads_encoder:
            made = {name: as_features(outliers) for name, outliers in made.items()}
        detector.fit_fusion(
            model.statistics(inside),
            {name: model.statistics(outliers) for name, outliers in made.items()},
        )
        held_out = rows[calibration][:MAX_CALIBRATION]
        predicted = model.predict(held_out, batch_size=256, verbose=0).argmax(1)
        _check_classes(detector, predicted, model.num_classes, needed)
        scores = np.asarray(detector.score(model.statistics(held_out)))
        detector.fit_threshold(scores, predicted)
    model.forget_traces()
    return {**detector.describe(), "outliers": sorted(made)}


def read_rows(model: Any, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows as `model.detector` reads them, at most some thousands, and labels, -1 for none."""
    if model.detector.reads_encoder:
        shape = model.raw_shape
    else:
        (x, y), shape = model.encode_data(x, y), model.example_shape
    summary = inputs.summarise(inputs.batches_of(x, y, 1024), model.num_classes)
    inputs.check_shape(summary.x.shape[1:], shape)
    labels = np.full(len(summary.x), -1) if summary.y is None else summary.y
    return summary.x if model.detector.reads_encoder else as_features(summary.x), labels


def _check_classes(detector: Any, predicted: np.ndarray, classes: int, needed: int) -> None:
    """Raise `ValueError` if a class has too few rows for a verdict of its own."""
    if not detector.per_class:
        return
    counts = np.bincount(predicted, minlength=classes)
    if counts.min() < needed:
        raise conformal.TooFewRows(
            f"Detector(per_class=True) needs {needed} calibration rows of each predicted class for "
            f"a false alarm rate of {detector.false_alarm_rate:g}. Received: {counts.min()} rows "
            f"predicted as class {counts.argmin()}, of {len(predicted)}. Pass more validation "
            "rows, or use per_class=False."
        )

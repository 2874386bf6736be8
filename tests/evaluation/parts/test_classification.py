"""Calibration after scaling is that of an export: its temperature comes from validation rows."""

import json

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

import jem_tf
from jem_tf import evaluation
from jem_tf.data import Dataset, load
from jem_tf.detection import calibration
from jem_tf.evaluation.parts import Job, classification
from jem_tf.saved_model.fitted import fit_calibration


@pytest.fixture
def model(make_model, blobs):
    model = make_model()
    model.fit(*blobs, epochs=3, verbose=0)
    return model


def to_dataset(validation, test):
    import tensorflow as tf

    train, validation, test = map(tf.data.Dataset.from_tensor_slices, (test, validation, test))
    return Dataset("blobs", train, validation, test, ("a", "b", "c"), (2,))


def measure(model, data, tmp_path):
    job = Job([evaluation.of(model)], data, (), evaluation.BUDGETS["quick"], tmp_path)
    ((_, results),) = classification.measure(job)
    return results, job.notes


def test_the_temperature_is_fitted_on_validation_rows(model, blobs, tmp_path):
    x, y = blobs
    rng = np.random.default_rng(0)
    y = np.where(rng.uniform(size=300) < 0.3, rng.integers(3, size=300), y)  # no perfect classes
    validation, test = (x[:150], y[:150]), (x[150:], y[150:])
    results, notes = measure(model, to_dataset(validation, test), tmp_path)
    temperature = results["calibration"]["temperature"]
    assert temperature == pytest.approx(fit_calibration(model, validation).temperature, rel=1e-4)

    logits = model.predict(x, verbose=0)
    nll = lambda t: -log_softmax(logits[:150] / t, 1)[np.arange(150), y[:150]].mean()  # noqa: E731
    best = minimize(lambda log_t: nll(np.exp(log_t[0])), [0.0], method="Nelder-Mead").x[0]
    assert temperature == pytest.approx(np.exp(best), rel=1e-3)

    confidence = calibration.confidence_of(logits[150:] / temperature, y[150:])
    after = calibration.reliability(*confidence)
    assert results["calibration"]["after"].ece == pytest.approx(after.ece, abs=1e-4)
    other_labels = (x[150:], (y[150:] + 1) % 3)
    results, _ = measure(model, to_dataset(validation, other_labels), tmp_path)
    assert results["calibration"]["temperature"] == temperature
    assert notes == []


@pytest.mark.parametrize("rows", ["none", "unlabelled"])
def test_without_labelled_validation_rows_the_temperature_is_1(model, blobs, rows, tmp_path):
    x, y = blobs
    validation = (x[:0], y[:0]) if rows == "none" else (x[:9], np.full(9, -1))
    results, notes = measure(model, to_dataset(validation, (x, y)), tmp_path)
    assert results["calibration"]["temperature"] == 1.0
    assert results["calibration"]["after"] == results["calibration"]["before"]
    assert len(notes) == 1 and "no labelled validation rows" in notes[0]


def test_the_report_on_a_run_has_the_temperature_of_its_export(report_directory, trained, small):
    metrics = json.loads((report_directory / "metrics.json").read_text())
    model = jem_tf.model.loading.load(trained)
    rows = load(small)
    exported = fit_calibration(model, rows.arrays("validation"), rows.arrays("train"))
    reported = metrics["models"][str(trained)]["calibration"]["temperature"]
    assert reported == pytest.approx(exported.temperature, rel=1e-4)

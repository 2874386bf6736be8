"""Calibration: the temperature and the detector that labelled data gives."""

import keras
import numpy as np
import pytest
from scipy.optimize import brute
from scipy.special import log_softmax

import jem_tf
from jem_tf.data import inputs
from jem_tf.detection.calibration import fit_temperature
from jem_tf.saved_model.fitted import Calibration, fit_calibration, measure


def test_calibration_is_fitted_to_the_data(model, images):
    calibration = fit_calibration(model, images)
    assert calibration.detector == model.detector.describe()
    before, after = calibration.metrics["before"], calibration.metrics["after"]
    assert after["nll"] <= before["nll"] and after["accuracy"] == before["accuracy"]


def test_measures_are_those_of_the_logits_at_a_temperature(model, images):
    x, y = images
    logits = model.predict(x, verbose=0) / 2.0
    result = measure(model, images, temperature=2.0)
    assert result["rows"] == 200
    assert result["accuracy"] == pytest.approx((logits.argmax(1) == y).mean())
    nll = -log_softmax(logits, 1)[np.arange(200), y].mean()
    assert result["nll"] == pytest.approx(nll, rel=1e-4)


def test_the_temperature_has_the_best_likelihood():
    """By a brute search. A model that doubles its logits needs twice the temperature."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(400, 5)) * 3, rng.integers(5, size=400)
    labels = np.where(rng.uniform(size=400) < 0.6, logits.argmax(1), labels)
    nll = lambda t: -log_softmax(logits / t, 1)[np.arange(400), labels].mean()  # noqa: E731
    best = brute(lambda t: nll(t[0]), [(0.2, 10)], Ns=500)[0]
    assert fit_temperature(logits, labels) == pytest.approx(best, rel=1e-3)
    assert fit_temperature(2 * logits, labels) == pytest.approx(2 * best, rel=1e-3)


def test_without_data_nothing_is_fitted(small_model):
    assert fit_calibration(small_model, None) == Calibration()
    assert Calibration().temperature == 1.0 and Calibration().detector is None


def test_too_few_rows_for_a_verdict_are_a_warning(small_model, blobs):
    small_model.adapt(blobs[0])
    few = blobs[0][:30], blobs[1][:30]
    with pytest.warns(UserWarning, match="no verdict, and flags no input.* needs 57 validation"):
        assert fit_calibration(small_model, few).detector is None


@pytest.mark.parametrize("kind", ["float", "string"])
def test_examples_are_the_raw_rows_of_their_labels_whatever_rows_are_kept(kind, monkeypatch):
    """Of many rows the model is calibrated with some; the index of a row says its class."""
    monkeypatch.setattr(inputs, "NUM_ROWS", 40)
    y = np.repeat([0, 1, 2], 200)
    x = 10.0 * y[:, None] + np.random.default_rng(0).uniform(size=(600, 1))
    if kind == "string":
        words = keras.layers.TextVectorization(output_mode="multi_hot", vocabulary=["0", "1", "2"])
        encoder, x = keras.Sequential([keras.Input((), dtype=kind), words]), y.astype(str)
    else:
        encoder = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
    head = keras.Sequential([keras.Input(encoder.output_shape[1:]), keras.layers.Dense(3)])
    model = jem_tf.JEM(head, encoder=encoder, objective="cross_entropy")
    model.adapt(x)
    calibration = fit_calibration(model, (x, y))
    instances = np.array(calibration.examples["instances"], float).ravel()
    assert calibration.example_labels == (0, 1, 2)
    assert (instances // (1 if kind == "string" else 10)).tolist() == [0, 1, 2]

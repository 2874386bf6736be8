"""Classification and calibration against TensorFlow Probability, scikit-learn and known cases."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import (
    brier_score_loss,
    confusion_matrix,
    log_loss,
    precision_score,
    recall_score,
)

from jem_tf.detection import calibration


@pytest.fixture
def predictions():
    """Logits and labels of 500 rows and 6 classes, better than chance."""
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=500)
    logits = rng.normal(size=(500, 6)) + 1.5 * np.eye(6)[labels]
    return logits.astype(np.float32), labels


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_ece_equals_that_of_tensorflow_probability(predictions, sharpness):
    import tensorflow_probability as tfp

    logits, labels = predictions
    reference = tf.function(tfp.stats.expected_calibration_error)
    expected = reference(15, tf.constant(sharpness * logits), tf.constant(labels, tf.int32))
    result = calibration.reliability(*calibration.confidence_of(sharpness * logits, labels))
    assert result.ece == pytest.approx(float(expected), abs=1e-6)


def test_classification_equals_that_of_scikit_learn(predictions):
    logits, labels = predictions
    result = calibration.classification(logits, labels)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    predicted = p.argmax(1)
    assert result.accuracy == (predicted == labels).mean()
    assert result.nll == pytest.approx(log_loss(labels, p))
    assert result.brier == pytest.approx(brier_score_loss(labels, p, scale_by_half=False))
    assert result.recall == pytest.approx(recall_score(labels, predicted, average=None))
    assert result.precision == pytest.approx(precision_score(labels, predicted, average=None))
    assert np.sum(result.confusion) == 500
    assert result.confusion == confusion_matrix(labels, predicted).tolist()


def test_classes_without_rows_have_no_recall():
    result = calibration.classification(np.eye(3)[[0, 1]], np.array([0, 1]))
    assert result.recall[:2] == [1.0, 1.0] and np.isnan(result.recall[2])


def test_ece_of_a_known_case():
    """Four predictions at 90 %, two of them correct: a gap of 40 points in the only used bin."""
    correct = np.array([True, True, False, False])
    result = calibration.reliability(np.full(4, 0.9), correct)
    assert result.ece == pytest.approx(0.4) and result.mce == pytest.approx(0.4)
    assert result.count == [4]


def test_the_ece_by_chance_is_that_of_calibrated_predictions():
    """Labels drawn with the stated confidence, 400 times: the standard error is below 1 %."""
    rng = np.random.default_rng(0)
    confidence = rng.beta(4, 1, 2000)
    draws = rng.uniform(size=(400, 2000)) < confidence
    results = [calibration.reliability(confidence, correct) for correct in draws]
    eces = [result.ece for result in results]
    assert results[0].by_chance == pytest.approx(np.mean(eces), rel=0.05)


def test_adaptive_bins_hold_equally_many_rows():
    rng = np.random.default_rng(0)
    confidence = rng.beta(8, 1, 1500)  # concentrated near 1
    correct = rng.uniform(size=1500) < confidence
    result = calibration.reliability(confidence, correct, adaptive=True)
    assert result.count == [100] * 15
    assert result.confidence == sorted(result.confidence)
    means = np.sort(confidence).reshape(15, 100).mean(1)
    np.testing.assert_allclose(result.confidence, means)


def test_risk_coverage_of_a_known_case():
    confidence = np.array([0.6, 0.9, 0.8, 0.7])
    correct = np.array([False, True, True, False])
    result = calibration.risk_coverage(confidence, correct)
    assert result.coverage == [0.25, 0.5, 0.75, 1.0]
    assert result.risk == pytest.approx([0, 0, 1 / 3, 1 / 2])
    assert result.aurc == pytest.approx((1 / 3 + 1 / 2) / 4)


def test_scaling_by_the_temperature_of_other_rows_corrects_overconfidence(predictions):
    logits, labels = 5 * predictions[0], predictions[1]
    temperature = calibration.fit_temperature(logits[1::2], labels[1::2])
    logits, labels = logits[::2], labels[::2]
    before, after = (
        calibration.reliability(*calibration.confidence_of(values, labels)).ece
        for values in (logits, logits / temperature)
    )
    assert before > 0.2 and after < 0.1  # of 250 rows in 15 bins

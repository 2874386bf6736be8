"""Classification and calibration against TensorFlow Probability, scikit-learn and known cases."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import brier_score_loss, log_loss, precision_score, recall_score

from jem_tf.detection import calibration


@pytest.fixture
def predictions():
    """Logits and labels of 500 rows and 6 classes, better than chance."""
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=500)
    logits = rng.normal(size=(500, 6)) + 1.5 * np.eye(6)[labels]
    return logits.astype(np.float32), labels


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_ece_is_tensorflow_probabilitys(predictions, sharpness):
    import tensorflow_probability as tfp

    logits, labels = predictions
    reference = tf.function(tfp.stats.expected_calibration_error)
    expected = reference(15, tf.constant(sharpness * logits), tf.constant(labels, tf.int32))
    found = calibration.reliability(*calibration.confidence_of(sharpness * logits, labels))
    assert found.ece == pytest.approx(float(expected), abs=1e-6)


def test_classification_is_scikit_learns(predictions):
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


def test_classes_without_rows_have_no_recall():
    result = calibration.classification(np.eye(3)[[0, 1]], np.array([0, 1]))
    assert result.recall[:2] == [1.0, 1.0] and np.isnan(result.recall[2])


def test_ece_of_a_known_case():
    """Four answers at 90 %, half of them right: off by 40 points, in the one bin that is used."""
    right = np.array([True, True, False, False])
    found = calibration.reliability(np.full(4, 0.9), right)
    assert found.ece == pytest.approx(0.4) and found.mce == pytest.approx(0.4)
    assert found.count == [4]


def test_adaptive_bins_hold_equally_many():
    rng = np.random.default_rng(0)
    confidence = rng.beta(8, 1, 1500)  # crowded near 1
    found = calibration.reliability(confidence, rng.uniform(size=1500) < confidence, adaptive=True)
    assert found.count == [100] * 15
    assert found.confidence == sorted(found.confidence)
    order = np.sort(confidence).reshape(15, 100).mean(1)
    np.testing.assert_allclose(found.confidence, order)


def test_risk_coverage_of_a_known_case():
    confidence = np.array([0.6, 0.9, 0.8, 0.7])
    right = np.array([False, True, True, False])
    found = calibration.selective(confidence, right)
    assert found.coverage == [0.25, 0.5, 0.75, 1.0]
    assert found.risk == pytest.approx([0, 0, 1 / 3, 1 / 2])
    assert found.aurc == pytest.approx((1 / 3 + 1 / 2) / 4)


def test_scaling_mends_overconfidence_without_seeing_the_label(predictions):
    logits, labels = predictions
    before = calibration.reliability(*calibration.confidence_of(5 * logits, labels)).ece
    scaled, temperatures = calibration.cross_scaled(5 * logits, labels)
    after = calibration.reliability(*calibration.confidence_of(scaled, labels)).ece
    assert before > 0.2 and after < 0.06  # 0.03 is what 250 rows leave by chance
    # Each half has the temperature of the other.
    other = calibration.fit_temperature(5 * logits[1::2], labels[1::2])
    assert temperatures[0] == other
    np.testing.assert_allclose(scaled[::2] * other, 5 * logits[::2], rtol=1e-6)

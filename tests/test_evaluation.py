"""Measures against TensorFlow Probability, scikit-learn and cases known by hand."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import log_loss, roc_auc_score

from jem_tf import data
from jem_tf.evaluation import calibration, generation, ood, summary


@pytest.mark.parametrize("seed", range(3))
def test_ece_is_tensorflow_probabilitys(seed):
    import tensorflow_probability as tfp

    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(500, 6)).astype(np.float32) * (seed + 1)
    labels = rng.integers(6, size=500)
    reference = tf.function(tfp.stats.expected_calibration_error)
    expected = reference(15, tf.constant(logits), tf.constant(labels, tf.int32))
    assert calibration.classification(logits, labels).ece == pytest.approx(
        float(expected), abs=1e-6
    )


def test_accuracy_and_nll_are_scikit_learns():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 4)), rng.integers(4, size=200)
    result = calibration.classification(logits, labels)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert result.nll == pytest.approx(log_loss(labels, p))
    assert result.accuracy == (p.argmax(1) == labels).mean()


def test_ece_of_a_known_case():
    """Four answers at 90 %, half of them right: off by 40 points."""
    right = np.array([True, True, False, False])
    assert calibration.expected_calibration_error(np.full(4, 0.9), right) == pytest.approx(0.4)


def test_auroc_is_scikit_learns():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(1, 1, 300), rng.normal(0, 1, 200)
    expected = roc_auc_score([1] * 300 + [0] * 200, [*inside, *outside])
    assert ood.auroc(inside, outside) == expected
    assert ood.auroc(np.ones(5), np.zeros(5)) == 1.0


def test_judge_tells_digits_from_noise():
    digits = data.load("digits")
    judge = generation.Judge(*digits.arrays("train"))
    x, y = digits.arrays("test")
    real = judge.quality(x, y)
    assert real.recognised > 0.97
    assert real.diversity == pytest.approx(1.0, abs=0.05)
    noise = judge.quality(data.ood_set("noise", digits, len(x)), y)
    assert noise.recognised < 0.3
    copies = judge.quality(np.repeat(x[:1], 10, 0), np.repeat(y[:1], 10))
    assert copies.diversity == 0.0


def test_table_holds_every_measure():
    result = {
        "accuracy": 0.991,
        "nll": 0.05,
        "ece": 0.012,
        "auroc": {"gradient_norm": {"noise": 0.987}},
        "training_seconds": 12.3,
    }
    text = summary.table({"JEM": result, "plain": {**result, "auroc": {}}})
    lines = text.splitlines()
    assert "JEM" in lines[0] and "plain" in lines[0]
    assert any("gradient_norm: noise" in line and "0.987" in line for line in lines)
    assert "99.1%" in text and "1.2%" in text
    assert lines[-2].split()[-1] == "-"  # what the other model lacks

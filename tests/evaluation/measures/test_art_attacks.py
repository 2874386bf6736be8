"""The losses of APGD."""

import sys

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from jem_tf.evaluation.measures import art_attacks, robustness


def test_dlr_of_known_cases():
    """(z_i - z_y) / (z_1 - z_3), where z_i is the largest logit of another class."""
    logits = tf.constant([[4.0, 1.0, 3.0, 0.0], [4.0, 1.0, 3.0, 0.0]])
    y = tf.constant([[1, 0, 0, 0], [0, 1, 0, 0]])
    values = art_attacks.difference_of_logits_ratio(y, logits)
    np.testing.assert_allclose(values, [(3 - 4) / (4 - 1), (4 - 1) / (4 - 1)])


def test_dlr_attacks_a_network_whose_cross_entropy_has_no_gradient():
    """Logits of thousands saturate the softmax; the decision is that of the plain classifier."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(20, 3)).astype(np.float32)
    x = rng.uniform(-0.5, 0.5, (32, 20)).astype(np.float32)
    y = (x @ weights).argmax(1)
    size = [0.1]
    scaled = lambda x: 1e4 * (x @ weights)  # noqa: E731
    pgd, apgd = (
        robustness.attack(kind, scaled, x, y, epsilons=size, steps=20)
        for kind in ("linf", "apgd_linf")
    )
    plain = robustness.attack("linf", lambda x: x @ weights, x, y, epsilons=size, steps=20)
    assert any("exactly zero" in warning for warning in pgd.warnings)
    assert pgd.accuracy[1] > plain.accuracy[1] + 0.2
    assert apgd.accuracy[1] == pytest.approx(plain.accuracy[1], abs=1 / 32)


def test_two_classes_are_attacked_with_cross_entropy_only():
    model = robustness.FoolboxModel(lambda x: tf.concat([x, -x], 1), (-1.0, 1.0))
    assert len(art_attacks.apgd("linf", model, np.zeros((1, 1), np.float32), 5)) == 1


def test_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "art.attacks", None)
    with pytest.raises(ValueError, match=r"pip install 'jem_tf\[report\]'"):
        art_attacks.import_art()


def test_art_gets_the_loss_and_its_gradient():
    """Of a linear network: -log p(y | x), and (p - y) W'."""
    rng = np.random.default_rng(0)
    weights, x = rng.normal(size=(4, 3)).astype("f4"), rng.normal(size=(6, 4)).astype("f4")
    y = np.eye(3)[rng.integers(0, 3, 6)]
    model = robustness.FoolboxModel(lambda x: x @ weights, (-1.0, 1.0))
    loss = art_attacks.cross_entropy
    estimator = art_attacks._estimator(model, num_classes=3, shape=(4,), loss=loss)
    p = scipy.special.softmax(x @ weights, axis=1)
    np.testing.assert_allclose(
        estimator.compute_loss(x=x, y=y, reduction="none"), -np.log((p * y).sum(1)), rtol=1e-5
    )
    np.testing.assert_allclose(
        estimator.loss_gradient(x, y), (p - y) @ weights.T, rtol=1e-5, atol=1e-6
    )

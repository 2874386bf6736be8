"""Attacks against closed forms: the worst case of a linear classifier is known exactly."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf.evaluation.measures import robustness

WEIGHTS = np.random.default_rng(0).normal(size=20).astype(np.float32)


def linear(x):
    """Two classes, separated by the plane WEIGHTS · x = 0."""
    margin = tf.linalg.matvec(x, tf.constant(WEIGHTS))
    return tf.stack([tf.zeros_like(margin), margin], axis=1)


@pytest.fixture
def rows():
    """64 inputs on both sides of the plane, all with a margin of exactly 0.5."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-0.4, 0.4, (64, 20))
    side = np.where(np.arange(64) % 2, 0.5, -0.5)
    x += ((side - x @ WEIGHTS) / (WEIGHTS @ WEIGHTS))[:, np.newaxis] * WEIGHTS
    return x.astype(np.float32), (side > 0).astype(np.int64)


@pytest.mark.parametrize(
    ("kind", "dual"), [("linf", 1), ("l2", 2), ("apgd_linf", 1), ("apgd_l2", 2)]
)
def test_white_box_attacks_reach_the_worst_case_of_a_linear_classifier(kind, dual, rows):
    """An attack of size ε lowers the margin by at most 2 ε |w|, in the dual norm; 2 = width."""
    exact = 0.5 / (2 * np.linalg.norm(WEIGHTS, dual))
    sizes = [exact * 0.999, exact * 1.001]
    curve = robustness.attack(kind, linear, *rows, epsilons=sizes, steps=100)
    assert curve.accuracy == [1.0, 1.0, 0.0]
    assert curve.epsilons == [0.0, *sizes] and curve.rows == 64


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dual", "tolerance"),
    [("linf", 1, 0.1), ("l2", 2, 0.1), ("apgd_linf", 1, 0.021), ("apgd_l2", 2, 0.021)],
)
def test_the_accuracy_of_a_linear_classifier_of_four_classes(kind, dual, tolerance):
    """A row withstands ε if 2 ε |w_y - w_j| is below its margin to every other class j.

    PGD follows the nearest class at its start. APGD finds the others.
    """
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(20, 4)).astype(np.float32)
    x = rng.uniform(-0.5, 0.5, (100, 20)).astype(np.float32)
    logits = x @ weights
    y = logits.argmax(1)
    norms = np.linalg.norm(weights[:, y][:, :, None] - weights[:, None], dual, axis=0)
    margins = logits.max(1)[:, None] - logits
    norms[np.arange(100), y] = np.nan
    withstood = np.nanmin(margins / norms, axis=1) / 2
    sizes = np.quantile(withstood, [0.25, 0.5, 0.75]) * 1.001
    curve = robustness.attack(
        kind, lambda x: x @ weights, x, y, (-1.0, 1.0), sizes.tolist(), steps=40, restarts=2
    )
    exact = (withstood > sizes[:, None]).mean(1)
    np.testing.assert_allclose(curve.accuracy[1:], exact, atol=tolerance)
    assert (curve.accuracy[1:] >= exact).all()


def needle(x):
    """A margin of 1 without a gradient for x < 0.5, which falls to -1 at x = 1."""
    margin = 1.0 - 4.0 * tf.nn.relu(x[:, 0] - 0.5)
    return tf.stack([margin, tf.zeros_like(margin)], axis=1)


@pytest.mark.parametrize("kind", ["linf", "apgd_linf"])
def test_a_row_withstands_an_attack_if_no_restart_succeeds(kind):
    """A start in [-1, 1] meets a gradient with probability 1/4, and then succeeds.

    The momentum of APGD carries a few starts further.
    """
    x, y = np.zeros((400, 1), np.float32), np.zeros(400, np.int64)

    def accuracy(restarts):
        return robustness.attack(
            kind, needle, x, y, epsilons=[0.5], steps=10, restarts=restarts
        ).accuracy[1]

    once = accuracy(1)
    assert once == pytest.approx(0.75 if kind == "linf" else 0.69, abs=0.09)  # 4 standard errors
    assert accuracy(4) == pytest.approx(once**4, abs=0.09)


def test_the_boundary_attack_comes_near_the_worst_case(rows):
    """Its changes are within 25 % of the distance to the plane, and never below it."""
    exact = 0.5 / (2 * np.linalg.norm(WEIGHTS))
    sizes = [exact * 0.999, exact * 1.25]
    x, y = (v[:16] for v in rows)
    curve = robustness.attack("boundary", linear, x, y, epsilons=sizes, steps=3000)
    assert curve.accuracy[1] == 1.0
    assert curve.accuracy[2] < 0.5


@pytest.fixture(scope="module")
def network():
    """A plain network that separates bright from dark images, and such images."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.uniform(-0.9, 0.0, (200, 4, 4, 1)) + 0.9 * y[:, None, None, None]
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(2),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = x.astype(np.float32)
    model.fit(x, y, epochs=20, verbose=0)
    return model, x, y


@pytest.mark.parametrize("kind", list(robustness.ATTACKS))
def test_every_attack_succeeds_on_a_plain_network(kind, network):
    model, x, y = network
    steps = 200 if kind == "boundary" else 20
    curve = robustness.attack(kind, model, x[:24], y[:24], steps=steps, starts=x)
    assert curve.accuracy[0] == 1.0 and curve.accuracy[-1] == 0.0
    assert curve.accuracy == sorted(curve.accuracy, reverse=True)
    assert curve.warnings == []


@pytest.mark.slow
def test_successful_attacks_show_no_sign_of_masked_gradients(network):
    model, x, y = network
    curves = [
        robustness.attack(kind, model, x[:40], y[:40], steps=500, starts=x)
        for kind in ("linf", "l2", "boundary")
    ]
    assert robustness.find_masked_gradients(curves) == []


@pytest.mark.slow
def test_masked_gradients_are_found(network):
    """Rounding the input hides the gradient from PGD, not from the boundary attack."""
    model, x, y = network

    def masked(x):
        return model(tf.round(x * 8) / 8)

    curves = [
        robustness.attack(kind, masked, x[:40], y[:40], steps=500, starts=x)
        for kind in ("l2", "boundary")
    ]
    assert any("exactly zero" in w for w in curves[0].warnings)
    signs = " ".join(robustness.find_masked_gradients(curves))
    assert "can be made plain gray" in signs and "boundary attack is stronger" in signs


def test_distal_adversarials_fool_a_plain_network(network):
    model, _, _ = network
    classes = np.array([0, 1])
    images, confidence = robustness.distal_adversarials(model, classes, (4, 4, 1), steps=200)
    assert images.shape == (2, 4, 4, 1) and np.abs(images).max() <= 1.0
    assert confidence.min() > 0.9


def test_a_constant_classifier_has_no_masked_gradients(network):
    """No attack succeeds, and its accuracy is the share of its only class."""
    _, x, y = network
    constant = lambda x: tf.tile([[0.0, 1.0]], [tf.shape(x)[0], 1]) + 0.0 * x[:, 0, 0]  # noqa: E731
    curves = [robustness.attack(k, constant, x[:40], y[:40], steps=5) for k in ("l2", "boundary")]
    assert curves[0].accuracy[-1] == curves[0].commonest == 0.5
    assert robustness.find_masked_gradients(curves) == []
    assert any("20 inputs were not attacked" in w for w in curves[1].warnings)


def test_inputs_may_exceed_the_bounds_by_rounding(network):
    model, x, y = network
    bright = np.where(x[:8] > 0.5, np.float32(1.000001), x[:8])
    assert robustness.attack("linf", model, bright, y[:8], steps=2).rows == 8


def test_wrong_arguments_raise_errors_with_their_values(rows):
    with pytest.raises(ValueError, match="needs a network with gradients"):
        robustness.attack("linf", None, *rows)
    with pytest.raises(ValueError, match="Unknown attack 'linfinity'"):
        robustness.attack("linfinity", linear, *rows)
    with pytest.raises(ValueError, match="must lie in `bounds`"):
        robustness.attack("linf", linear, rows[0] * 9, rows[1])

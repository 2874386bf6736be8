"""Glow: the density by a full Jacobian, its gradient, classes, files, and FCE on images."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp
from scipy.stats import norm

import jem_tf
from jem_tf import backbones, likelihood
from jem_tf.likelihood import Glow
from jem_tf.objectives import FCE

SMALL = {"blocks": 1, "depth": 2, "width": 4, "levels": 5, "epochs": 2, "batch_size": 16}


def make_images(n=48, shape=(2, 2, 1), seed=0):
    """Return images at five levels from -1 to 1, and their labels: class 1 is brighter."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = rng.binomial(4, np.where(y == 1, 0.7, 0.3)[:, None, None, None], (n, *shape)) / 2 - 1
    return x.astype(np.float32), y


@pytest.fixture(scope="module", params=[0, 2], ids=["unconditional", "conditional"])
def fitted(request):
    glow = Glow(classes=request.param, **SMALL)
    x, y = make_images()
    glow.fit(x, y if request.param else None, verbose=False)
    return glow


def test_log_density_is_that_of_the_change_of_variables(fitted):
    """log p(x) = log sum_y p(y) N(z; mean_y, scale_y) + log |det dz/dx|, with a full Jacobian."""
    x = tf.constant(make_images(3, seed=1)[0] + 0.03)
    with tf.GradientTape() as tape:
        tape.watch(x)
        unit = (x + 1.0) / (5 * 0.5) + 0.1 - 0.5  # five levels, 0.5 apart, to [-0.5, 0.5]
        z = fitted._glow.inverse(unit)
    jacobian = tf.reshape(tape.batch_jacobian(z, x), [3, 4, 4]).numpy()
    log_det = np.linalg.slogdet(jacobian)[1]
    means, scales = fitted._mean.numpy(), np.exp(fitted._log_scale.numpy())
    per_class = norm.logpdf(z.numpy()[:, None], means, scales).sum(-1)
    expected = logsumexp(per_class + fitted["log_prior"].numpy(), axis=1) + log_det
    np.testing.assert_allclose(fitted.log_density(x), expected, rtol=1e-4, atol=1e-3)  # float32


def test_the_density_integrates_to_one(fitted):
    """By importance sampling from a wide normal distribution; 40 000 rows, 4 standard errors."""
    spread, rng = 1.2, np.random.default_rng(0)
    data = make_images()[0].reshape(48, 4)
    x = rng.normal(data.mean(0), spread, (40_000, 4))
    log_q = norm.logpdf(x, data.mean(0), spread).sum(1)
    log_p = fitted.log_density(x.reshape(-1, 2, 2, 1).astype(np.float32))
    weights = np.exp(log_p - log_q)
    error = weights.std() / np.sqrt(len(weights))
    assert error < 0.03
    assert weights.mean() == pytest.approx(1.0, abs=4 * error)


def test_gradient_by_finite_differences(fitted):
    x, step = make_images(2, seed=2)[0] + 0.05, 1e-2
    expected = np.zeros_like(x)
    for row, column in itertools.product(range(2), range(2)):
        move = np.zeros_like(x)
        move[:, row, column] = step
        difference = fitted.log_density(x + move) - fitted.log_density(x - move)
        expected[:, row, column, 0] = difference / (2 * step)
    np.testing.assert_allclose(fitted.gradient(x), expected, rtol=0.05, atol=0.05)  # float32, relu
    norms = np.linalg.norm(fitted.gradient(x).reshape(2, -1), axis=1)
    np.testing.assert_allclose(fitted.gradient_norm(x), norms, rtol=1e-5)  # half the range is 1


def test_training_raises_the_likelihood_of_the_data():
    glow = Glow(**{**SMALL, "epochs": 8, "learning_rate": 1e-2})
    x, _ = make_images()
    lines = glow.fit(x, validation=x, verbose=False)
    assert lines[-1]["val_bits_per_dim"] < lines[0]["val_bits_per_dim"] - 0.1
    noise = np.where(np.random.default_rng(0).random(x.shape) > 0.5, 1.0, -1.0)
    assert glow.ood_score(x).mean() > glow.ood_score(noise).mean()


def test_scores_do_not_depend_on_the_other_rows_nor_on_rounding(fitted):
    x = make_images(4, seed=3)[0]
    for kind in likelihood.SCORES:
        scores = fitted.ood_score(x, kind)
        np.testing.assert_allclose(fitted.ood_score(x[2:3] + 0.1, kind), scores[2:3], rtol=1e-4)


def test_a_file_gives_the_same_values(fitted, tmp_path):
    x = make_images(5, seed=4)[0]
    fitted.save(tmp_path / "glow.npz")
    loaded = likelihood.load(tmp_path / "glow.npz")
    np.testing.assert_array_equal(loaded.log_joint(x), fitted.log_joint(x))
    np.testing.assert_array_equal(loaded.sample(3, seed=1), fitted.sample(3, seed=1))
    assert set(np.unique(fitted.sample(50))) <= {-1.0, -0.5, 0.0, 0.5, 1.0}


def test_classes_by_bayes_rule():
    x, y = make_images(400, (4, 4, 1))
    glow = Glow(classes=2, **{**SMALL, "epochs": 20, "learning_rate": 1e-2, "batch_size": 50})
    glow.fit(x, y, verbose=False)
    x_test, y_test = make_images(200, (4, 4, 1), seed=1)
    probabilities = glow.predict(x_test)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-5)
    assert (probabilities.argmax(1) == y_test).mean() > 0.9
    with pytest.raises(ValueError, match="cannot classify"):
        Glow(**SMALL).predict(x_test)


def test_sizes_that_cannot_be_halved_and_missing_labels_raise():
    with pytest.raises(ValueError, match="multiples of 4"):
        Glow(blocks=2).create((6, 6, 1))
    with pytest.raises(ValueError, match="no labels"):
        Glow(classes=2, **SMALL).fit(make_images()[0])
    with pytest.raises(ValueError, match="call `fit` or `load`"):
        Glow().log_density(make_images()[0])


def test_fce_trains_a_glow_and_files_keep_it(tmp_path):
    x, y = make_images(32, (4, 4, 1))
    flow = Glow(**SMALL)
    model = jem_tf.JEM(backbones.mlp((4, 4, 1), 2, units=8, depth=1), objective=FCE(flow), seed=0)
    model.compile("adam")
    model.fit(x, y, batch_size=16, epochs=1, verbose=0)
    before = [weight.numpy() for weight in flow.flow_weights]
    model.fit(x, y, batch_size=16, epochs=1, verbose=0)
    assert any((w.numpy() != old).any() for w, old in zip(flow.flow_weights, before))
    assert all(np.isfinite(w.numpy()).all() for w in flow.flow_weights)
    model.save(tmp_path / "model.keras")
    loaded = jem_tf.load(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.log_density(x), model.log_density(x), rtol=1e-5)
    noise = loaded.objective.noise
    np.testing.assert_allclose(noise.log_density(x), flow.log_density(x), rtol=1e-5)

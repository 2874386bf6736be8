"""PixelCNN++: probabilities of all images add up to 1, in any order of training and loading."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from jem_tf import likelihood
from jem_tf.likelihood import PixelCNN

SMALL = {"filters": 4, "mixture": 2, "levels": 2, "epochs": 3, "batch_size": 16}
ALL_IMAGES = np.array(list(itertools.product([-1.0, 1.0], repeat=4)), np.float32)
ALL_IMAGES = ALL_IMAGES.reshape(16, 2, 2, 1)


def make_images(n=64, seed=0):
    """Return binary images whose second row repeats the first; class 1 is brighter."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    first = rng.random((n, 1, 2, 1)) < np.where(y == 1, 0.8, 0.2)[:, None, None, None]
    return np.where(np.repeat(first, 2, axis=1), 1.0, -1.0).astype(np.float32), y


@pytest.fixture(scope="module", params=[0, 2], ids=["unconditional", "conditional"])
def fitted(request):
    model = PixelCNN(classes=request.param, **SMALL)
    x, y = make_images()
    model.fit(x, y if request.param else None, verbose=False)
    return model


def test_probabilities_of_all_images_add_up_to_one(fitted):
    assert np.exp(fitted.log_density(ALL_IMAGES)).sum() == pytest.approx(1.0, abs=1e-4)
    if fitted.classes:
        conditional = fitted.log_joint(ALL_IMAGES) - fitted["log_prior"].numpy()
        np.testing.assert_allclose(np.exp(conditional).sum(0), 1.0, atol=1e-4)


@pytest.mark.parametrize("hierarchies", [1, 2])
def test_a_pixel_sees_only_those_before_it_before_training_as_well(hierarchies):
    """TFP masks kernels only after an update; a network that has just been created is masked."""
    model = PixelCNN(filters=3, mixture=2, levels=4, hierarchies=hierarchies)
    model.create((4, 4, 1))
    x = tf.constant(np.random.default_rng(0).uniform(-1, 1, (1, 4, 4, 1)), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        logits, locations, scales = model._pixelcnn.network(x, training=False)
        together = tf.concat([logits[..., tf.newaxis], locations, scales], axis=-1)
        per_pixel = tf.reshape(tf.reduce_sum(together**2, axis=[-1, -2]), [16])
    jacobian = tape.jacobian(per_pixel, x, experimental_use_pfor=False).numpy().reshape(16, 16)
    assert np.abs(np.triu(jacobian)).max() == 0.0
    assert np.abs(np.tril(jacobian, -1)).max() > 0.0


def test_colour_images_add_up_to_one():
    model = PixelCNN(**SMALL)
    images = np.array(list(itertools.product([-1.0, 1.0], repeat=6)), np.float32)
    images = images.reshape(64, 1, 2, 3)
    model.fit(images[::2], verbose=False)
    assert np.exp(model.log_density(images)).sum() == pytest.approx(1.0, abs=1e-4)
    assert model.sample(2).shape == (2, 1, 2, 3)


def test_gradient_by_finite_differences_of_what_the_network_reads(fitted):
    """Moving a level by less than 1 changes the pixels read, and not the pixel asked for."""
    x, step = ALL_IMAGES[5:8], 1e-2
    values = fitted._values(x).numpy()
    target = tf.reduce_logsumexp(fitted._log_joint(values), axis=1).numpy()
    expected = np.zeros_like(x)
    for row, column in itertools.product(range(2), range(2)):
        moved = values.copy()
        moved[:, row, column] += step  # the level of a value is its floor
        change = tf.reduce_logsumexp(fitted._log_joint(moved), axis=1).numpy() - target
        expected[:, row, column, 0] = change / step / 2.0  # two levels are 2.0 apart
    np.testing.assert_allclose(fitted.gradient(x), expected, rtol=0.1, atol=0.02)  # one-sided


def test_samples_have_the_probabilities_of_the_model(fitted):
    samples = fitted.sample(4000, seed=1)
    numbers = ((samples.reshape(-1, 4) > 0) @ [8, 4, 2, 1]).astype(int)
    shares = np.bincount(numbers, minlength=16) / 4000
    # Standard errors of shares of 4000 rows are below 0.008.
    np.testing.assert_allclose(shares, np.exp(fitted.log_density(ALL_IMAGES)), atol=0.035)


def test_bits_per_dim_are_those_of_the_probability(fitted):
    expected = -fitted.log_density(ALL_IMAGES) / (4 * np.log(2))
    np.testing.assert_allclose(fitted.bits_per_dim(ALL_IMAGES), expected, rtol=1e-6)


def test_training_learns_the_rule_and_bayes_rule_classifies():
    x, y = make_images(256)
    model = PixelCNN(classes=2, **{**SMALL, "filters": 8, "epochs": 40, "learning_rate": 1e-2})
    model.fit(x, y, verbose=False)
    repeats = (ALL_IMAGES[:, 0] == ALL_IMAGES[:, 1]).all((1, 2))
    assert np.exp(model.log_density(ALL_IMAGES[repeats])).sum() > 0.9
    # p(1 | both bright) = 0.8 ** 2 / (0.8 ** 2 + 0.2 ** 2) = 0.94
    assert model.predict(np.ones((1, 2, 2, 1)))[0, 1] == pytest.approx(0.94, abs=0.06)


def test_a_file_gives_the_same_values(fitted, tmp_path):
    fitted.save(tmp_path / "model.npz")
    loaded = likelihood.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.log_joint(ALL_IMAGES), fitted.log_joint(ALL_IMAGES))


def test_an_interrupted_fit_continues_to_the_same_weights(tmp_path):
    x, _ = make_images()

    def stop(line):
        if line["epoch"] == 0:
            raise KeyboardInterrupt

    whole = PixelCNN(**SMALL)
    whole.fit(x, verbose=False)
    with pytest.raises(KeyboardInterrupt):
        PixelCNN(**SMALL).fit(x, verbose=False, checkpoint=tmp_path, on_epoch=stop)
    rest = PixelCNN(**SMALL)
    lines = rest.fit(x, verbose=False, checkpoint=tmp_path)
    assert [line["epoch"] for line in lines] == [1, 2]
    np.testing.assert_allclose(rest.log_density(x), whole.log_density(x), rtol=1e-5)

"""Whitened patches: uncorrelated, of one scale, in both signs; computed once; saved."""

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf.backbones import WhitenedPatches
from jem_tf.backbones.data_dependent import initialise_from_data


def images():
    """Smooth in space and correlated between channels, as photographs are."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 12, 12, 3)).cumsum(1).cumsum(2)
    x = x @ rng.normal(size=(3, 3))
    return (x / np.abs(x).max()).astype("f4")


def layer_of(x, **options):
    network = keras.Sequential([keras.Input(x.shape[1:]), WhitenedPatches(**options)])
    initialise_from_data(network, x)
    return network


def test_outputs_are_uncorrelated_with_unit_variance_and_come_in_both_signs():
    """Closed form: variances are v / (v + epsilon), with v those of the patches."""
    x = images()
    y = layer_of(x, filters=24, kernel_size=2, epsilon=1e-6, padding="valid")(x).numpy()
    np.testing.assert_allclose(y[..., 12:], -y[..., :12], atol=1e-4)
    covariance = np.cov(y[..., :6].reshape(-1, 6).T)
    np.testing.assert_allclose(covariance, np.eye(6), atol=1e-2)


def test_the_components_are_those_of_an_independent_decomposition():
    x = images()
    network = layer_of(x, filters=8, padding="valid")
    shifts = [x[:, i : i + 10, j : j + 10] for i in range(3) for j in range(3)]
    patches = np.concatenate(shifts, axis=-1).reshape(-1, 27)
    _, singular, components = np.linalg.svd(patches - patches.mean(0), full_matrices=False)
    scale = np.sqrt(singular**2 / (len(patches) - 1) + 1e-2)
    expected = np.abs(patches @ components[:4].T / scale[:4])
    received = np.abs(network(x).numpy()[..., :4].reshape(-1, 4))
    np.testing.assert_allclose(received, expected, rtol=1e-2, atol=2e-3)


def test_the_kernel_is_computed_once_saved_and_not_trained(tmp_path):
    x = images()
    network = layer_of(x, filters=8)
    y = network(x).numpy()
    assert network.trainable_variables == []
    network.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    initialise_from_data(copy, 0.1 * x)  # without effect
    np.testing.assert_array_equal(copy(x), y)


def test_a_network_that_was_trained_keeps_its_kernel():
    """Its other layers rely on it; a frozen network that is made trainable again does, too."""
    x, y = images(), np.arange(64) % 3
    network = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            WhitenedPatches(8),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(3),
        ]
    )
    network.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    network.trainable = False
    network.trainable = True
    kernel = network.layers[0].kernel.numpy()
    network.fit(x, y, verbose=0)
    assert len(network.trainable_variables) == 2  # of the last layer
    before = network(x).numpy()
    jem_tf.JEM.from_classifier(network).adapt(x, y)
    np.testing.assert_array_equal(network(x), before)
    np.testing.assert_array_equal(network.layers[0].kernel, kernel)


@pytest.mark.parametrize(("shape", "kernel_size"), [((2, 2, 1), 3), ((5, 4, 1), 1)])
def test_small_images_have_finite_kernels(shape, kernel_size):
    x = np.random.default_rng(0).uniform(-1, 1, (20, *shape)).astype("f4")
    assert np.isfinite(layer_of(x, filters=2, kernel_size=kernel_size)(x)).all()


@pytest.mark.parametrize("options", [{"groups": 3}, {"dilation_rate": 2}])
def test_other_kinds_of_convolutions_are_refused(options):
    with pytest.raises(ValueError, match=f"has {next(iter(options))}="):
        WhitenedPatches(6, **options)


@pytest.mark.parametrize("filters", [7, 56])
def test_too_many_or_odd_filters_are_refused(filters):
    with pytest.raises(ValueError, match=f"even and at most 54.*filters={filters}"):
        keras.Sequential([keras.Input((8, 8, 3)), WhitenedPatches(filters)])

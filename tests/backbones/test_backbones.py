"""Networks of the package: shapes, sizes known from the paper, and wrong requests."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import backbones, data
from jem_tf.training import recipes


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (32, 32, 3)])
def test_convnet_takes_any_image(shape):
    model = backbones.convnet(shape, 5)
    assert model(np.zeros((2, *shape), np.float32)).shape == (2, 5)


@pytest.mark.parametrize("shape", [(4,), (5, 3)])
def test_mlp_takes_any_shape(shape):
    assert backbones.mlp(shape, 3)(np.zeros((2, *shape), np.float32)).shape == (2, 3)


def test_wide_resnet_is_the_papers():
    """36.5 million parameters at 28-10, of which batch norm would be 18 thousand."""
    model = backbones.wide_resnet((32, 32, 3), 10, depth=28, width=10)
    convolutions = [x for x in model.layers if "Conv" in type(x).__name__]
    assert len(convolutions) == 25 + 3  # 1 + 12 blocks of 2, and three shortcuts
    assert model.count_params() == pytest.approx(36.5e6, rel=0.01)
    assert not [x for x in model.layers if "Norm" in type(x).__name__]
    strided = [x for x in convolutions if x.strides == (2, 2) and x.kernel_size == (3, 3)]
    assert len(strided) == 2
    assert model.output_shape == (None, 10)


def test_wrong_requests_are_named():
    with pytest.raises(ValueError, match="depth=12"):
        backbones.wide_resnet((8, 8, 1), 2, depth=12)
    with pytest.raises(ValueError, match=r"Unknown norm 'bath'\. Did you mean 'batch'"):
        backbones.wide_resnet((8, 8, 1), 2, depth=10, norm="bath")
    with pytest.raises(ValueError, match=r"shape=\(8,\)"):
        backbones.convnet((8,), 2)


def test_a_recipe_with_warmup_rises_and_falls_to_a_fifth():
    recipe = recipes.Recipe("", "mlp", epochs=2, learning_rate=1e-3, warmup=100)
    rate = recipe.optimizer(steps_per_epoch=500)._learning_rate
    found = [float(rate(step)) for step in (0, 50, 100, 550, 1000)]
    assert found == pytest.approx([0.0, 5e-4, 1e-3, 6e-4, 2e-4])


def test_the_papers_rate_rises_for_1000_steps_and_drops_three_times():
    rate = recipes.get("cifar10").optimizer(steps_per_epoch=782)._learning_rate
    steps = (0, 500, 1000, 782 * 60, 782 * 60 + 1, 782 * 120 + 1, 782 * 180 + 1)
    expected = [0.0, 5e-5, 1e-4, 1e-4, 3e-5, 9e-6, 2.7e-6]
    assert [float(rate(step)) for step in steps] == pytest.approx(expected)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(rate))
    assert [float(again(step)) for step in steps] == pytest.approx(expected)


@pytest.mark.parametrize(
    "name, recipe", [("cifar100", "cifar100"), ("svhn_cropped", "svhn"), ("emnist", "image")]
)
def test_data_sets_find_their_recipe(name, recipe):
    rows = data.load("digits")
    assert recipes.default_for(dataclasses.replace(rows, name=name)) == recipe


def test_digits_are_cropped_and_not_mirrored():
    """Rows of SVHN's recipe are shifted: what is left of a bright column stays left of it."""
    x = np.zeros((16, 16, 16, 1), np.float32)
    x[:, :, 7], x[:, :, 8] = 1.0, 0.5
    rows = tf.data.Dataset.from_tensor_slices((x, np.zeros(16, np.int64)))
    digits = dataclasses.replace(data.load("digits"), train=rows, shape=(16, 16, 1))
    for kind, mirrors in ((recipes.get("svhn").augments_rows, False), (True, True)):
        found, _ = next(iter(digits.epochs(16, seed=1, augment=kind)))
        bright, half = (tf.argmax(tf.abs(found[:, 8, :, 0] - v) < 1e-6, 1) for v in (1.0, 0.5))
        assert len(np.unique(bright)) > 3
        assert bool(tf.reduce_any(bright > half)) == mirrors

"""Backbones of many kinds inside `JEM`: ranks, dtypes, batch norm, regularisers, subclasses."""

import keras
import numpy as np
import pytest
from helpers import compile_for_tests

import jem_tf


@pytest.fixture
def make_with_policy(make_model):
    """A function that makes a model whose layers have a dtype policy."""

    def make(policy, **options):
        keras.mixed_precision.set_global_policy(policy)
        try:
            return make_model(**options)
        finally:
            keras.mixed_precision.set_global_policy("float32")

    return make


@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.slow)]
)
def test_mixed_precision_trains_and_answers_in_float32(policy, make_with_policy, blobs):
    model = make_with_policy(policy)
    history = model.fit(*blobs, batch_size=50, epochs=8, verbose=0).history
    assert history["accuracy"][-1] > 0.85
    assert model.energy(blobs[0]).dtype == np.float32
    assert model.stored_chains().dtype == np.float32


@pytest.mark.slow
def test_float16_updates_are_unscaled(make_with_policy, blobs):
    """The scale of the loss must not change the update: SGD moves the weights as in float32."""
    changes = []
    for policy in ("float32", "mixed_float16"):
        keras.utils.set_random_seed(3)
        model = make_with_policy(policy, optimizer=keras.optimizers.SGD(1e-2))
        before = model.backbone.get_weights()
        model.fit(*blobs, batch_size=300, verbose=0)
        changes.append([b - a for a, b in zip(before, model.backbone.get_weights())])
    for change, expected in zip(*reversed(changes)):
        np.testing.assert_allclose(change, expected, rtol=0.1, atol=1e-4)  # 3 digits of float16


@pytest.mark.parametrize("shape", [(6,), (5, 3), (8, 8, 1)], ids=["vector", "sequence", "image"])
def test_inputs_of_any_rank(shape):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (64, *shape)).astype(np.float32), np.arange(64) % 2
    layers = [keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = jem_tf.JEM(keras.Sequential(layers), sampler=jem_tf.SGLD(2))
    model.compile("adam", run_eagerly=True)
    model.fit(x, y, batch_size=64, verbose=0)
    assert model.sample(3, steps=2).shape == (3, *shape)
    assert model.refine(x, steps=1).shape == x.shape


def batch_norm_and_dropout():
    return keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(16),
            keras.layers.BatchNormalization(momentum=0.8),
            keras.layers.Activation("silu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(3),
        ]
    )


def test_batch_norm_learns_from_data_and_not_from_samples(blobs):
    """Without learning, the moving mean converges to that of the data alone."""
    x, y = blobs
    model = jem_tf.JEM(batch_norm_and_dropout(), sampler=jem_tf.SGLD(2), input_noise=0.0)
    compile_for_tests(model, keras.optimizers.SGD(0.0))
    model.fit(x, y, batch_size=300, epochs=30, verbose=0)
    dense, norm = model.backbone.layers[:2]
    expected = dense(x).numpy().mean(0)
    np.testing.assert_allclose(norm.moving_mean, expected, rtol=0.01, atol=0.01)


@pytest.mark.slow
def test_batch_norm_and_dropout_train(blobs):
    model = jem_tf.JEM(batch_norm_and_dropout(), sampler=jem_tf.SGLD(5))
    compile_for_tests(model)
    model.fit(*blobs, batch_size=50, epochs=20, verbose=0)
    assert (model.predict(blobs[0], verbose=0).argmax(1) == blobs[1]).mean() > 0.9


def test_regularisers_of_the_backbone_are_part_of_the_loss(blobs):
    layer = keras.layers.Dense(3, kernel_regularizer="l2")
    model = jem_tf.JEM(keras.Sequential([keras.Input((2,)), layer]), sampler=jem_tf.SGLD(2))
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    logs = model.fit(*blobs, batch_size=300, verbose=0).history
    logs = {name: values[0] for name, values in logs.items()}
    expected = 0.01 * (layer.kernel.numpy() ** 2).sum()
    for results in (logs, model.evaluate(*blobs, batch_size=300, verbose=0, return_dict=True)):
        penalty = results["loss"] - results["classification_loss"]
        penalty -= 0.2 * results["generative_loss"]
        assert penalty == pytest.approx(expected, rel=1e-3)


def test_an_unbuilt_backbone_is_built_from_the_data(blobs):
    backbone = keras.Sequential([keras.layers.Dense(8, "silu"), keras.layers.Dense(3)])
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2))
    model.compile("adam")
    model.fit(*blobs, batch_size=100, verbose=0)
    assert model.num_classes == 3


def test_subclassed_backbones_train_built_or_not(blobs):
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(3)

        def call(self, x):
            return self.last(x)

    built = Subclassed()
    built(blobs[0])
    for backbone in (built, Subclassed()):
        model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2))
        model.compile("adam", run_eagerly=True)
        model.fit(*blobs, batch_size=100, verbose=0)
        assert model.num_classes == 3


def test_augmentation_is_for_the_classifier_only(blobs, make_model):
    """Inputs times zero: the classifier learns nothing, the density is learned as without."""
    logs = []
    for layer in (keras.layers.Rescaling(0.0), None):
        keras.utils.set_random_seed(0)
        model = make_model(augmentation=layer)
        model.compile("adam", run_eagerly=True)
        logs.append(model.fit(*blobs, batch_size=300, shuffle=False, verbose=0).history)
    augmented, plain = logs
    assert augmented["classification_loss"][0] == pytest.approx(np.log(3), abs=1e-4)
    assert plain["classification_loss"][0] != pytest.approx(np.log(3), abs=1e-2)
    assert augmented["energy_data"][0] == pytest.approx(plain["energy_data"][0], rel=1e-5)

"""Backbones of every kind inside JEM: ranks, dtypes, batch norm, regularisers, subclasses."""

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf import backbones


@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.slow)]
)
def test_mixed_precision_trains_and_answers_in_float32(policy, make_model, blobs):
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = make_model()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    history = model.fit(*blobs, batch_size=50, epochs=12, verbose=0).history
    assert history["accuracy"][-1] > 0.85
    assert model.energy(blobs[0]).dtype == np.float32
    assert model.buffer.arrays()["chains"].dtype == np.float32


@pytest.mark.parametrize("shape", [(6,), (5, 3), (8, 8, 1)], ids=["vector", "sequence", "image"])
def test_inputs_of_any_rank(shape):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (64, *shape)).astype(np.float32), np.arange(64) % 2
    layers = [keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = jem_tf.JEM(keras.Sequential(layers), sampler=jem_tf.SGLD(2))
    model.compile("adam")
    model.fit(x, y, verbose=0)
    assert model.sample(3, steps=2).shape == (3, *shape)
    assert model.refine(x, steps=1).shape == x.shape


def test_float16_updates_are_unscaled(make_model, blobs):
    """Loss scaling must not show in the weights: SGD moves them as in float32."""
    changes = []
    for policy in ("float32", "mixed_float16"):
        keras.utils.set_random_seed(3)
        keras.mixed_precision.set_global_policy(policy)
        try:
            model = make_model(optimizer=keras.optimizers.SGD(1e-2))
        finally:
            keras.mixed_precision.set_global_policy("float32")
        before = model.backbone.get_weights()
        model.fit(*blobs, batch_size=300, verbose=0)
        changes.append([b - a for a, b in zip(before, model.backbone.get_weights())])
    for one, other in zip(*changes):
        np.testing.assert_allclose(one, other, rtol=0.1, atol=1e-4)  # float16 has 3 digits


def batch_norm_and_dropout():
    return keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(16),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.Activation("silu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(3),
        ]
    )


def test_networks_that_do_not_act_on_training_take_one_pass(make_model):
    assert make_model().one_pass
    assert jem_tf.JEM(backbones.wide_resnet((8, 8, 1), 2, 10, 1)).one_pass
    assert not jem_tf.JEM(batch_norm_and_dropout()).one_pass


def test_batch_norm_learns_from_data_and_never_from_samples(blobs):
    """With no learning, the moving mean converges to that of the data alone."""
    x, y = blobs
    model = jem_tf.JEM(batch_norm_and_dropout(), sampler=jem_tf.SGLD(2), input_noise=0.0)
    model.compile(keras.optimizers.SGD(0.0))
    model.fit(x, y, batch_size=300, epochs=60, verbose=0)
    dense, norm = model.backbone.layers[:2]
    expected = dense(x).numpy().mean(0)
    np.testing.assert_allclose(norm.moving_mean, expected, rtol=0.01, atol=0.01)


def test_batch_norm_and_dropout_train(blobs):
    model = jem_tf.JEM(batch_norm_and_dropout(), sampler=jem_tf.SGLD(5))
    model.compile(keras.optimizers.Adam(1e-2), metrics=["accuracy"])
    model.fit(*blobs, batch_size=50, epochs=40, verbose=0)
    assert model.evaluate(*blobs, verbose=0, return_dict=True)["accuracy"] > 0.9


def test_regularisers_of_the_backbone_count(blobs):
    layer = keras.layers.Dense(3, kernel_regularizer="l2")
    model = jem_tf.JEM(keras.Sequential([keras.Input((2,)), layer]), sampler=jem_tf.SGLD(1))
    model.compile(keras.optimizers.SGD(0.0))
    model.fit(*blobs, verbose=0)
    logs = model.evaluate(*blobs, verbose=0, return_dict=True)
    penalty = logs["loss"] - logs["classification_loss"] - logs["generative_loss"]
    assert penalty == pytest.approx(0.01 * (layer.kernel.numpy() ** 2).sum(), rel=1e-3)


def test_subclassed_backbones_train_built_or_not(blobs):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(3)

        def call(self, x):
            return self.last(x)

    built = Own()
    built(blobs[0])
    for backbone in (built, Own()):
        model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2))
        model.compile("adam")
        model.fit(*blobs, verbose=0)
        assert model.num_classes == 3

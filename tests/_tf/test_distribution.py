"""`MirroredStrategy` on two logical CPU devices, and `OneDeviceStrategy`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf


def chains_of(model):
    return model.buffer.arrays()["chains"]


def test_two_replicas_make_the_update_of_one_device(mirrored, make_model, blobs):
    """The same global batch and chain starts, no noise: the same weights, to 1e-5."""
    x, y = blobs[0][:40], blobs[1][:40]
    models = []
    for strategy, capacity in ((tf.distribute.get_strategy(), 40), (mirrored, 20)):
        with strategy.scope():
            keras.utils.set_random_seed(5)
            models.append(
                make_model(
                    sampler=jem_tf.SGLD(4, step_size=0.05, noise=0),
                    buffer=jem_tf.ReplayBuffer(capacity, reinit_probability=0.0),
                    input_noise=0.0,
                    optimizer=keras.optimizers.SGD(0.1),
                )
            )
    one, two = models
    one.adapt(x)
    two.adapt(x)
    for model, count in ((one, 1), (two, 2)):
        model._fill(40 // count, 1)
        starts = np.linspace(0, 4, 80).reshape(count, -1, 2).astype(np.float32)
        model.buffer.assign(chains=starts)
    for _ in range(3):
        logs = [m.fit(x, y, batch_size=40, shuffle=False, verbose=0).history for m in models]
        for a, b in zip(one.get_weights(), two.get_weights()):
            np.testing.assert_allclose(a, b, atol=1e-5)
        for name in ("loss", "generative_loss", "classification_loss", "accuracy"):
            assert logs[0][name] == pytest.approx(logs[1][name], abs=1e-4)
    together = np.sort(chains_of(two).reshape(-1, 2), axis=0)
    np.testing.assert_allclose(np.sort(chains_of(one)[0], axis=0), together, atol=1e-4)


def test_replicas_keep_different_buffers_and_draw_different_noise(mirrored, make_model, blobs):
    with mirrored.scope():
        model = make_model(buffer=jem_tf.ReplayBuffer(30), sampler=jem_tf.SGLD(2, 0.01))
    model.adapt(blobs[0])
    model._fill(20, 10)
    first, second = chains_of(model)
    assert (first != second).all()
    model.buffer.assign(chains=np.stack([first, first]))
    model.fit(*blobs, batch_size=40, verbose=0)
    assert (chains_of(model)[0] != chains_of(model)[1]).any(axis=-1).mean() > 0.9


@pytest.mark.slow
def test_replicas_agree_on_step_and_step_size(mirrored, make_model, blobs):
    with mirrored.scope():
        model = make_model()
    history = model.fit(*blobs, validation_data=blobs, batch_size=50, epochs=6, verbose=0).history
    assert history["accuracy"][-1] > 0.7
    assert history["val_accuracy"][-1] > 0.7
    for name in ("step", "step_size"):
        one, two = (part.numpy() for part in model.progress._arrays[name].values)
        assert one == two
    assert model.progress.arrays()["step"] == 36


@pytest.mark.slow
def test_answers_under_a_strategy_are_those_without(mirrored, make_model, blobs, tmp_path):
    """And a model saved on two replicas loads on one, with all its chains."""
    with mirrored.scope():
        model = make_model()
    model.fit(*blobs, batch_size=50, verbose=0)
    model.save(tmp_path / "model.keras")
    alone = keras.saving.load_model(tmp_path / "model.keras")
    for ask in (
        lambda m: m.ood_score(blobs[0]),
        lambda m: m.energy(blobs[0]),
        lambda m: m.sample(5, label=1, steps=5, seed=1),
        lambda m: m.refine(blobs[0][:5], steps=2),
    ):
        np.testing.assert_allclose(ask(model), ask(alone), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(chains_of(alone)[0], np.concatenate(chains_of(model)))
    alone.fit(*blobs, batch_size=50, verbose=0)
    with mirrored.scope():
        again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(chains_of(again), chains_of(model))
    again.fit(*blobs, batch_size=50, verbose=0)


def test_weights_loaded_into_replicas_keep_their_buffers_apart(
    mirrored, make_model, blobs, tmp_path
):
    with mirrored.scope():
        model = make_model()
    model.fit(*blobs, batch_size=50, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    before = chains_of(model)
    model.fit(*blobs, batch_size=50, verbose=0)
    model.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(chains_of(model), before)
    model.fit(*blobs, batch_size=50, verbose=0)
    assert chains_of(model).shape == before.shape and len(before) == 2


@pytest.mark.slow
def test_mala_replicas_agree_and_survive_an_empty_last_batch(mirrored, make_model, blobs):
    with mirrored.scope():
        model = make_model(sampler=jem_tf.MALA(3))
    x, y = blobs[0][:101], blobs[1][:101]
    history = model.fit(x, y, batch_size=50, epochs=3, verbose=0).history
    assert 0 < history["acceptance"][-1] <= 1
    one, two = (part.numpy() for part in model.progress._arrays["step_size"].values)
    assert one == two


def test_an_unbuilt_backbone_is_built_on_the_replicas(mirrored, blobs):
    with mirrored.scope():
        backbone = keras.Sequential([keras.layers.Dense(8, "silu"), keras.layers.Dense(3)])
        model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2))
        model.compile("adam")
    model.fit(*blobs, batch_size=50, verbose=0)
    assert len(chains_of(model)) == 2


def test_one_device_strategy(make_model, blobs):
    with tf.distribute.OneDeviceStrategy("CPU:1").scope():
        model = make_model()
    history = model.fit(*blobs, batch_size=50, epochs=6, verbose=0).history
    assert history["accuracy"][-1] > 0.7

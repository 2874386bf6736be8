"""Training on replicas: `MirroredStrategy` on two logical CPU devices, and `OneDeviceStrategy`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf._tf.state import replica_components


def chains_of(model):
    """The chains of each replica."""
    return model.buffer.arrays()["chains"]


def assert_replicas_agree(strategy, model, *names):
    """Assert that counters have the same value on both replicas."""
    with strategy.scope():
        for name in names:
            first, second = (part.numpy() for part in replica_components(model.progress[name]))
            assert first == second


@pytest.fixture
def fit_once(blobs):
    """A function that trains a model for one epoch of three steps."""
    return lambda model: model.fit(*blobs, batch_size=100, verbose=0)


def test_two_replicas_make_the_update_of_one_device(mirrored, make_model, blobs):
    """The same batch and chain starts, without noise: the same weights, to 1e-5."""
    x, y = blobs[0][:40], blobs[1][:40]
    models, logs = [], []
    for strategy, replicas in ((tf.distribute.get_strategy(), 1), (mirrored, 2)):
        with strategy.scope():
            keras.utils.set_random_seed(5)
            model = make_model(
                sampler=jem_tf.SGLD(4, step_size=0.05, noise=0),
                buffer=jem_tf.ReplayBuffer(40 // replicas, reinit_probability=0.0),
                input_noise=0.0,
                optimizer=keras.optimizers.SGD(0.1),
            )
            model.adapt(x)
            seed = tf.constant([0, 0])
            model.buffer.initialise(model.start, seed, 40 // replicas, 3, np.ones(3))
        starts = np.linspace(0, 4, 80).reshape(replicas, -1, 2).astype(np.float32)
        model.buffer.assign(chains=starts)
        history = model.fit(x, y, batch_size=40, epochs=3, shuffle=False, verbose=0).history
        models.append(model)
        logs.append(history)
    for weight, expected in zip(models[1].get_weights(), models[0].get_weights()):
        np.testing.assert_allclose(weight, expected, atol=1e-5)
    for name in ("loss", "generative_loss", "classification_loss", "accuracy"):
        assert logs[1][name] == pytest.approx(logs[0][name], abs=1e-4)
    chains, expected = (np.sort(model.stored_chains(), axis=0) for model in reversed(models))
    np.testing.assert_allclose(chains, expected, atol=1e-4)


@pytest.mark.slow
def test_replicas_have_their_own_chains_noise_and_files(mirrored, make_model, fit_once, tmp_path):
    with mirrored.scope():
        model = make_model(buffer=jem_tf.ReplayBuffer(60), sampler=jem_tf.SGLD(2, 0.01))
    fit_once(model)
    first, second = chains_of(model)
    assert (first != second).all()
    model.buffer.assign(chains=np.stack([first, first]))
    fit_once(model)
    assert (chains_of(model)[0] != chains_of(model)[1]).any(axis=-1).mean() > 0.9

    model.save_weights(tmp_path / "model.weights.h5")
    saved = chains_of(model)
    fit_once(model)
    assert (chains_of(model) != saved).any()
    model.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(chains_of(model), saved)
    fit_once(model)
    assert chains_of(model).shape == saved.shape and len(saved) == 2


@pytest.mark.slow
def test_replicas_agree_on_step_and_step_size(mirrored, blobs):
    """The last batch has one row, so that a replica gets none; the backbone is built by `fit`."""
    with mirrored.scope():
        backbone = keras.Sequential([keras.layers.Dense(8, "silu"), keras.layers.Dense(3)])
        model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2), seed=1)
        model.compile(keras.optimizers.Adam(1e-2), metrics=["accuracy"])
    x, y = blobs[0][:201], blobs[1][:201]
    options = {"batch_size": 50, "epochs": 2, "verbose": 0}
    history = model.fit(x, y, validation_data=(x[:50], y[:50]), **options).history
    assert all(np.isfinite(values).all() for values in history.values())
    assert_replicas_agree(mirrored, model, "step", "step_size")
    assert model.progress.number("step") == 10
    assert len(chains_of(model)) == 2


@pytest.mark.slow
def test_training_on_replicas_learns(mirrored, make_model, blobs):
    with mirrored.scope():
        model = make_model()
    history = model.fit(*blobs, validation_data=blobs, batch_size=50, epochs=6, verbose=0).history
    assert history["accuracy"][-1] > 0.7
    assert history["val_accuracy"][-1] > 0.7
    assert model.progress.number("step") == 36


@pytest.mark.slow
def test_answers_under_a_strategy_are_those_without(mirrored, make_model, blobs, tmp_path):
    """A model saved on two replicas is loaded on one, with all its chains, and on two."""
    with mirrored.scope():
        model = make_model()
    model.fit(*blobs, batch_size=50, verbose=0)
    model.save(tmp_path / "model.keras")
    alone = keras.saving.load_model(tmp_path / "model.keras")
    for call in (
        lambda m: m.ood_score(blobs[0]),
        lambda m: m.energy(blobs[0]),
        lambda m: m.sample(5, label=1, steps=5, seed=1),
        lambda m: m.refine(blobs[0][:5], steps=2),
    ):
        np.testing.assert_allclose(call(model), call(alone), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(chains_of(alone)[0], np.concatenate(chains_of(model)))
    alone.fit(*blobs, batch_size=50, verbose=0)
    with mirrored.scope():
        copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(chains_of(copy), chains_of(model))
    copy.fit(*blobs, batch_size=50, verbose=0)


@pytest.mark.slow
def test_mala_replicas_agree_although_one_gets_no_rows(mirrored, make_model, blobs):
    with mirrored.scope():
        model = make_model(sampler=jem_tf.MALA(3))
    x, y = blobs[0][:101], blobs[1][:101]
    history = model.fit(x, y, batch_size=50, epochs=3, verbose=0).history
    assert 0 < history["acceptance"][-1] <= 1
    assert_replicas_agree(mirrored, model, "step_size")


@pytest.mark.slow
def test_one_device_strategy(make_model, blobs):
    with tf.distribute.OneDeviceStrategy("CPU:1").scope():
        model = make_model()
    history = model.fit(*blobs, batch_size=50, epochs=6, verbose=0).history
    assert history["accuracy"][-1] > 0.7

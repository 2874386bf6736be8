"""`jem_tf.load`: files, finished runs, unfinished runs, and what is neither."""

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf._tf import checkpoints
from jem_tf.model.loading import save


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(4), seed=0)
    model.compile(keras.optimizers.SGD(0.1, use_ema=True))
    model.optimizer.build(model.trainable_variables)
    return model


X = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)


def test_a_file_and_a_run_directory_give_the_same_model(model, tmp_path):
    save(model, tmp_path / "run" / "model.keras")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["model.keras"]
    for path in (tmp_path / "run", str(tmp_path / "run" / "model.keras")):
        loaded = jem_tf.load(path)
        np.testing.assert_array_equal(loaded.energy(X), model.energy(X))
        assert loaded.sampler.steps == 4


def test_an_unfinished_run_gives_the_averaged_weights_of_its_checkpoint(model, tmp_path):
    averages = model.optimizer.variables[-2:]
    for average in averages:
        average.assign(np.full(average.shape, 0.5, np.float32))
    checkpoints.write(tmp_path / "checkpoints", model.save, {})
    with pytest.warns(UserWarning, match="not finished: using its last checkpoint"):
        loaded = jem_tf.load(tmp_path)
    for weight in loaded.get_weights():
        np.testing.assert_array_equal(weight, np.full(weight.shape, 0.5))


def test_a_plain_network_in_a_checkpoint_is_wrapped(model, tmp_path):
    """As version 0.1 wrote them for the objective cross_entropy."""
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    network.compile("sgd")
    checkpoints.write(tmp_path / "checkpoints", network.save, {})
    with pytest.warns(UserWarning, match="not finished"):
        loaded = jem_tf.load(tmp_path)
    assert isinstance(loaded, jem_tf.JEM)
    np.testing.assert_allclose(loaded.predict(X, verbose=0), network(X), rtol=1e-5)


def test_other_files_raise(tmp_path):
    with pytest.raises(ValueError, match=r"no trained model at .*model\.keras"):
        jem_tf.load(tmp_path)
    (tmp_path / "text.keras").write_text("not a model")
    with pytest.raises(ValueError, match="not a model that Keras can load"):
        jem_tf.load(tmp_path / "text.keras")
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]).save(tmp_path / "plain.keras")
    with pytest.raises(ValueError, match=r"plain\.keras' holds a Sequential, not a JEM"):
        jem_tf.load(tmp_path / "plain.keras")


def test_a_failed_save_keeps_the_old_file(model, tmp_path, monkeypatch):
    save(model, tmp_path / "model.keras")
    before = (tmp_path / "model.keras").read_bytes()

    def fail(path):
        path.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(model, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        save(model, tmp_path / "model.keras")
    assert (tmp_path / "model.keras").read_bytes() == before

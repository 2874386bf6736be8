"""`.keras` files hold everything: outputs, chains, counters and settings."""

import keras
import numpy as np
import pytest
from helpers import assert_same_weights

import jem_tf

FIT = {"batch_size": 100, "verbose": 0, "shuffle": False}


def assert_same_arrays(state, other):
    """Assert that two parts of models hold the same arrays."""
    arrays, expected = state.arrays(), other.arrays()
    assert arrays.keys() == expected.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], expected[name])


@pytest.mark.parametrize(
    "options",
    [
        {"buffer": jem_tf.ReplayBuffer(128, 0.1, per_class=True), "input_noise": 0.3},
        {
            "sampler": jem_tf.MALA(2, 1e-2),
            "start": jem_tf.GaussianMixture(rank=1),
            "augmentation": keras.layers.GaussianNoise(0.1),
            "objective": jem_tf.objectives.Joint(0.2, 3.0),
        },
    ],
    ids=["sgld", "mala"],
)
def test_a_saved_model_is_loaded_with_all_its_parts(options, make_model, blobs, tmp_path):
    x, y = blobs
    model = make_model(**options)
    num_weights = len(model.weights)
    model.fit(x, y, **FIT)
    assert len(model.weights) == num_weights == len(model.backbone.weights)  # state is no weight
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    config, expected = copy.get_config(), model.get_config()
    assert config.pop("backbone")["config"]["name"] == expected.pop("backbone")["config"]["name"]
    assert config == expected
    assert type(copy.augmentation) is type(model.augmentation)
    assert copy.one_pass == model.one_pass
    np.testing.assert_array_equal(copy.predict(x, verbose=0), model.predict(x, verbose=0))
    np.testing.assert_array_equal(copy.ood_score(x), model.ood_score(x))
    np.testing.assert_array_equal(copy.sample(4, 1, 5, seed=2), model.sample(4, 1, 5, seed=2))
    for part in ("buffer", "start", "progress", "input_range"):
        assert_same_arrays(getattr(copy, part), getattr(model, part))


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_loaded_model_continues_training_bit_for_bit(policy, make_model, blobs, tmp_path):
    """Two epochs, or one, a file, and another one: the same weights."""
    x, y = blobs
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = make_model()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    model.fit(x, y, **FIT)
    model.save(tmp_path / "model.keras")
    model.fit(x, y, **FIT)
    copy = keras.saving.load_model(tmp_path / "model.keras")
    copy.fit(x, y, **FIT)
    assert_same_weights(model, copy)
    assert_same_arrays(model.buffer, copy.buffer)


def test_an_untrained_model_can_be_saved_and_trained_later(make_model, blobs, tmp_path):
    model = make_model()
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert not copy.buffer.filled and not copy.input_range.adapted
    copy.fit(*blobs, **FIT)
    assert copy.buffer.filled


@pytest.mark.slow
def test_graphs_traced_before_use_the_loaded_weights(make_model, blobs, tmp_path):
    """Scores, validation and training use the range and the buffer of the file."""
    x, y = blobs
    model = make_model(buffer=jem_tf.ReplayBuffer(110))
    model.fit(x, y, **FIT)
    model.save_weights(tmp_path / "model.weights.h5")
    other = make_model(buffer=jem_tf.ReplayBuffer(150))
    other.ood_score(x)
    other.evaluate(x, y, batch_size=100, verbose=0)
    other.fit(x + 3.0, y, **FIT)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other.ood_score(x), model.ood_score(x))
    for network in (model, other):
        network.fit(x, y, **FIT)
    np.testing.assert_array_equal(*(m.buffer.arrays()["age"] for m in (model, other)))


def test_settings_from_before_there_were_objectives_are_read(make_model):
    config = make_model(compiled=False).get_config()
    del config["objective"]
    old = {**config, "generative_weight": 0.2, "lag": 3.0, "energy_penalty": 0.01}
    objective = jem_tf.JEM.from_config(old).objective
    assert (objective.weight, objective.lag, objective.energy_penalty) == (0.2, 3.0, 0.01)

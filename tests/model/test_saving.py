"""`.keras` files hold everything: outputs, chains, counters and settings."""

import keras
import numpy as np
import pytest

import jem_tf


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampler": jem_tf.MALA(2, 1e-2), "start": jem_tf.GaussianMixture(rank=1)},
        {"buffer": jem_tf.ReplayBuffer(64, 0.1, per_class=True), "input_noise": 0.3},
        {"objective": jem_tf.objectives.Joint(0.2, 3.0)},
    ],
    ids=["default", "mala", "per_class", "weight"],
)
def test_a_saved_model_comes_back_whole(options, make_model, blobs, tmp_path):
    x, y = blobs
    model = make_model(**options)
    model.fit(x, y, batch_size=50, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    one, other = model.get_config(), copy.get_config()
    assert one.pop("backbone")["config"]["name"] == other.pop("backbone")["config"]["name"]
    assert one == other
    np.testing.assert_array_equal(copy.predict(x, verbose=0), model.predict(x, verbose=0))
    np.testing.assert_array_equal(copy.ood_score(x), model.ood_score(x))
    np.testing.assert_array_equal(copy.sample(4, 1, 5, seed=2), model.sample(4, 1, 5, seed=2))
    for part in ("buffer", "start", "progress"):
        one, other = getattr(model, part).arrays(), getattr(copy, part).arrays()
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_reloaded_model_trains_on_as_if_nothing_had_happened(policy, make_model, blobs, tmp_path):
    """Four epochs, or two, a file, and two more: the same weights."""
    x, y = blobs
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = make_model()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    fit = {"batch_size": 50, "epochs": 2, "verbose": 0, "shuffle": False}
    model.fit(x, y, **fit)
    model.save(tmp_path / "model.keras")
    model.fit(x, y, **fit)
    copy = keras.saving.load_model(tmp_path / "model.keras")
    copy.fit(x, y, **fit)
    for one, other in zip(model.get_weights(), copy.get_weights()):
        np.testing.assert_array_equal(one, other)


def test_an_untrained_model_round_trips(make_model, blobs, tmp_path):
    model = make_model()
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    copy.fit(*blobs, verbose=0)
    assert copy.buffer.filled


def test_training_state_is_no_part_of_the_weights(make_model, blobs):
    model = make_model()
    before = len(model.weights)
    model.fit(*blobs, verbose=0)
    assert len(model.weights) == before == len(model.backbone.weights)


def test_loaded_weights_are_used_by_graphs_traced_before(make_model, blobs, tmp_path):
    """Scores, validation and training know the range and the buffer that a file brings."""
    x, y = blobs
    model = make_model(buffer=jem_tf.ReplayBuffer(60))
    model.fit(x, y, epochs=2, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    other = make_model(buffer=jem_tf.ReplayBuffer(100))
    other.ood_score(x), other.evaluate(x, y, verbose=0)
    other.fit(x + 3.0, y, verbose=0)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other.ood_score(x), model.ood_score(x))
    for one in (model, other):
        one.fit(x, y, verbose=0, shuffle=False)
    np.testing.assert_array_equal(*(m.buffer.arrays()["age"] for m in (model, other)))


def test_settings_from_before_there_were_objectives_are_understood(make_model):
    config = make_model(compiled=False).get_config()
    del config["objective"]
    old = {**config, "generative_weight": 0.2, "lag": 3.0, "energy_penalty": 0.01}
    objective = jem_tf.JEM.from_config(old).objective
    assert (objective.weight, objective.lag, objective.energy_penalty) == (0.2, 3.0, 0.01)

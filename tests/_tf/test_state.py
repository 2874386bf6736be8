"""Named arrays of a model: variables that are saved, and that each replica may have for itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf._tf.state import CHUNK, State, replica_components


class Chains(State):
    per_replica = ("chains",)


def test_arrays_are_assigned_and_read():
    state = State()
    assert "step" not in state
    state.assign(step=np.int64(3), mean=np.ones(2, np.float32))
    assert "step" in state and state.number("step") == 3
    variable = state["mean"]
    state.assign(mean=np.zeros(2, np.float32))
    assert state["mean"] is variable  # overwritten in place, for graphs that read it
    np.testing.assert_array_equal(variable, [0, 0])
    state.assign(mean=np.zeros(5, np.float32))
    assert state["mean"].shape == 5 and len(state.tf_variables) == 2


def test_arrays_are_no_weights_and_are_saved(tmp_path):
    class Holder(keras.Model):
        def __init__(self):
            super().__init__()
            self.state, self.built = State(), True

    model, copy = Holder(), Holder()
    model.state.assign(step=np.int64(3), mean=np.arange(4.0))
    assert model.weights == []
    model.save_weights(tmp_path / "state.weights.h5")
    copy.load_weights(tmp_path / "state.weights.h5")
    assert copy.state.number("step") == 3
    np.testing.assert_array_equal(copy.state["mean"], np.arange(4.0))


@pytest.mark.parametrize("rows", [3, CHUNK, 2 * CHUNK + 5])
def test_fill_draws_all_rows_in_chunks(rows):
    sizes = []

    def draw(replica, chunk, count):
        sizes.append(count)
        return tf.fill([count, 2], 10.0 * replica + chunk)

    state = Chains()
    state.fill("chains", (rows, 2), draw)
    expected = np.repeat(np.arange(len(sizes)), sizes)
    assert sum(sizes) == rows and max(sizes) <= CHUNK
    np.testing.assert_array_equal(state["chains"][:, 1], expected)
    assert state.arrays()["chains"].shape == (1, rows, 2)


def test_replicas_have_their_own_arrays(mirrored):
    with mirrored.scope():
        state = Chains()
        state.assign(chains=np.array([[1.0, 2.0], [3.0, 4.0]]), step=np.int64(7))
        parts = replica_components(state["chains"])

    @tf.function
    def double():
        mirrored.run(lambda: state["chains"].assign(2.0 * state["chains"]))

    double()
    assert [part.numpy().tolist() for part in parts] == [[2.0, 4.0], [6.0, 8.0]]
    np.testing.assert_array_equal(state.arrays()["chains"], [[2.0, 4.0], [6.0, 8.0]])
    assert state.number("step") == 7
    with state.gathered():
        double()
        np.testing.assert_array_equal(state.arrays()["chains"], [[2.0, 4.0], [6.0, 8.0]])
    np.testing.assert_array_equal(state.arrays()["chains"], [[4.0, 8.0], [12.0, 16.0]])

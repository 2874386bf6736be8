"""log Z against closed forms."""

import keras
import numpy as np
import pytest
from scipy.special import erf, logsumexp

import jem_tf
from jem_tf import cli
from jem_tf.evaluation.measures.likelihood import log_z


def gaussian(features):
    """log p(x) = -|x|^2 / 2 + log 2 - log Z, from two equal classes."""
    inputs = keras.Input((features,))
    half = -0.5 * keras.ops.sum(keras.ops.square(inputs), axis=-1, keepdims=True)
    return jem_tf.JEM(keras.Model(inputs, keras.ops.concatenate([half, half], axis=-1)))


@pytest.mark.parametrize("features, low, high", [(1, -3.0, 3.0), (2, -1.0, 4.0), (8, -3.0, 2.0)])
def test_a_gaussian_on_a_box(features, low, high):
    """Tolerance: 0.1 nat in one and two dimensions, and always four standard errors."""
    model = gaussian(features)
    model.adapt(np.array([[low] * features, [high] * features], np.float32))
    side = np.sqrt(2 * np.pi) * (erf(high / np.sqrt(2)) - erf(low / np.sqrt(2))) / 2
    exact = np.log(2) + features * np.log(side)
    found = log_z(model, chains=200, steps=300)
    assert found.value == pytest.approx(exact, abs=0.1 if features < 3 else 4 * found.error)
    assert found.error < 0.1 and 50 < found.effective <= 200 and found.acceptance > 0.6


def test_a_trained_density_in_the_plane(make_model, blobs):
    """Against a sum over a grid, on features of other scales."""
    model = make_model()
    model.fit(*blobs, batch_size=50, epochs=20, verbose=0)
    low, high = blobs[0].min(0), blobs[0].max(0)
    sides = [np.linspace(a, b, 401) for a, b in zip(low, high)]
    cells = [side[:-1] + np.diff(side) / 2 for side in sides]
    grid = np.stack(np.meshgrid(*cells), axis=-1).reshape(-1, 2).astype(np.float32)
    exact = logsumexp(-model.energy(grid)) + sum(np.log(np.diff(side)[0]) for side in sides)
    assert log_z(model, chains=200, steps=300).value == pytest.approx(exact, abs=0.1)


def test_the_same_seed_gives_the_same_answer():
    model = gaussian(2)
    model.adapt(np.array([[-2.0, -2.0], [2.0, 2.0]], np.float32))
    assert log_z(model, 10, 20, seed=1) == log_z(model, 10, 20, seed=1)
    assert log_z(model, 10, 20, seed=1) != log_z(model, 10, 20, seed=2)


def test_wrong_use_is_named(make_model):
    with pytest.raises(ValueError, match="call `fit` or `adapt`"):
        log_z(make_model())
    model = gaussian(2)
    model.adapt(np.array([[-2.0, -2.0], [2.0, 2.0]], np.float32))
    with pytest.raises(ValueError, match="chains=1"):
        log_z(model, chains=1)


def test_the_command_prints_it(run, capsys):
    assert cli.main(["loglik", str(run), "--chains", "10", "--steps", "20"]) == 0
    text = capsys.readouterr().out
    assert "log Z = " in text and "16 test inputs" in text

"""log Z against closed forms and numerical integration."""

import keras
import numpy as np
import pytest
from scipy.special import erf, logsumexp

import jem_tf
from jem_tf.evaluation.measures.likelihood import log_z
from jem_tf_cli import main


def gaussian_model(features, low, high):
    """A JEM with log p(x) = -|x|^2 / 2 + log 2 - log Z from two equal classes, on a box."""
    inputs = keras.Input((features,))
    half = -0.5 * keras.ops.sum(keras.ops.square(inputs), axis=-1, keepdims=True)
    model = jem_tf.JEM(keras.Model(inputs, keras.ops.concatenate([half, half], axis=-1)))
    model.adapt(np.array([[low] * features, [high] * features], np.float32))
    return model


@pytest.mark.parametrize("features, low, high", [(1, -3.0, 3.0), (2, -1.0, 4.0), (8, -3.0, 2.0)])
def test_a_gaussian_on_a_box(features, low, high):
    """Tolerance: 0.1 nat in one and two dimensions, four standard errors in eight."""
    model = gaussian_model(features, low, high)
    side = np.sqrt(2 * np.pi) * (erf(high / np.sqrt(2)) - erf(low / np.sqrt(2))) / 2
    exact = np.log(2) + features * np.log(side)
    estimate = log_z(model, chains=200, steps=300)
    tolerance = 0.1 if features < 3 else 4 * estimate.error
    assert estimate.value == pytest.approx(exact, abs=tolerance)
    assert estimate.error < 0.1 and 50 < estimate.effective <= 200 and estimate.acceptance > 0.6


@pytest.mark.slow
def test_a_trained_density_in_the_plane(make_model, blobs):
    """Against a sum over a grid, for features of different scales."""
    model = make_model()
    model.fit(*blobs, batch_size=50, epochs=20, verbose=0)
    low, high = blobs[0].min(0), blobs[0].max(0)
    edges = [np.linspace(a, b, 401) for a, b in zip(low, high)]
    centres = [edge[:-1] + np.diff(edge) / 2 for edge in edges]
    grid = np.stack(np.meshgrid(*centres), axis=-1).reshape(-1, 2).astype(np.float32)
    exact = logsumexp(-model.energy(grid)) + sum(np.log(np.diff(edge)[0]) for edge in edges)
    assert log_z(model, chains=200, steps=300).value == pytest.approx(exact, abs=0.1)


def test_the_seed_determines_the_estimate():
    model = gaussian_model(2, -2.0, 2.0)
    first, again, other = (log_z(model, 10, 20, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_wrong_arguments_raise_errors_with_their_values(make_model):
    with pytest.raises(ValueError, match="call `fit` or `adapt`"):
        log_z(make_model())
    with pytest.raises(ValueError, match="chains=1"):
        log_z(gaussian_model(2, -2.0, 2.0), chains=1)


def test_the_command_prints_log_z(run, capsys):
    assert main(["loglik", str(run), "--chains", "10", "--steps", "20"]) == 0
    text = capsys.readouterr().out
    assert "log Z = " in text and "96 test inputs" in text

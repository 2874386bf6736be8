"""Semi-supervised training: ten labels per class, and the other digits without labels.

python examples/semi_supervised.py [--seeds 5] [--labels 10] [--objective joint]

A classifier learns from the labelled rows only. A JEM learns from the same rows, and from all other
training rows with the label -1. Both have the same network, optimizer, noise and number of steps.
"""

import argparse

import keras
import numpy as np
from scipy import stats

import jem_tf
from jem_tf import backbones, data, objectives

BATCH, STEPS = 64, 1500


def accuracy(objective: str, x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """Return the test accuracy in percent after training on `x` with labels `y`."""
    keras.utils.set_random_seed(seed)
    model = jem_tf.JEM(
        backbones.convnet(digits.shape, 10),
        sampler=jem_tf.SGLD(10),
        objective=objective,
        input_noise=0.1,
        seed=seed,
    )
    model.compile(keras.optimizers.Adam(1e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.99))
    model.fit(x, y, batch_size=BATCH, epochs=-(-STEPS * BATCH // len(x)), verbose=0)
    return 100 * float((model.predict(x_test, verbose=0).argmax(1) == y_test).mean())


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--labels", type=int, default=10, help="labels per class")
parser.add_argument("--objective", choices=objectives.OBJECTIVES, default="joint")
arguments = parser.parse_args()

digits = data.load("digits")
x, y = digits.arrays("train")
x_test, y_test = digits.arrays("test")
gains = []
for seed in range(arguments.seeds):
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(np.flatnonzero(y == k), arguments.labels, False) for k in range(10)]
    labelled = np.isin(np.arange(len(x)), chosen)
    supervised = accuracy("cross_entropy", x[labelled], y[labelled], seed)
    # Labelled rows are repeated, so that every batch has some.
    rows = np.concatenate([np.repeat(np.flatnonzero(labelled), 4), np.flatnonzero(~labelled)])
    partial = np.where(labelled, y, -1)
    semi_supervised = accuracy(arguments.objective, x[rows], partial[rows], seed)
    gains.append(semi_supervised - supervised)
    print(
        f"seed {seed}: labelled rows only {supervised:.1f} %, with {(~labelled).sum()} unlabelled "
        f"rows {semi_supervised:.1f} %"
    )
gain, error = np.mean(gains), np.std(gains, ddof=1) / np.sqrt(len(gains))
low, high = stats.t.interval(0.95, len(gains) - 1, gain, error)
print(f"gain {gain:.1f} points, 95 % interval {low:.1f} to {high:.1f}")

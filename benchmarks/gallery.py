"""Densities in two dimensions: what each objective learns, beside the true density.

    python benchmarks/gallery.py [--out docs/images/gallery.png] [--epochs 40]

Two moons, spirals, eight Gaussians and a checkerboard, with two classes each. The true density is a
histogram of a million points. The learned density is exp(-E) on the same grid, scaled to sum to 1.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

import jem_tf
from jem_tf import objectives

SIDE = 100
AXIS = np.linspace(-4, 4, SIDE + 1)
CENTRES = (AXIS[1:] + AXIS[:-1]) / 2
GRID = np.stack(np.meshgrid(CENTRES, CENTRES, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)
DENSITY_OBJECTIVES = [name for name in objectives.OBJECTIVES if name != "cross_entropy"]


def moons(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    y, t = np.arange(n) % 2, rng.uniform(0, np.pi, n)
    x = np.where(y, 1 - np.cos(t), np.cos(t)), np.where(y, 0.5 - np.sin(t), np.sin(t))
    return 1.6 * (np.stack(x, 1) - [0.5, 0.25]) + 0.15 * rng.normal(size=(n, 2)), y


def spirals(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    y, t = np.arange(n) % 2, 3 * np.pi * np.sqrt(rng.uniform(0.02, 1, n))
    direction = np.stack([np.cos(t + np.pi * y), np.sin(t + np.pi * y)], 1)
    return 0.33 * t[:, None] * direction + 0.1 * rng.normal(size=(n, 2)), y


def eight(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    index = rng.integers(8, size=n)
    angle = np.pi / 4 * index
    centre = 2.7 * np.stack([np.cos(angle), np.sin(angle)], 1)
    return centre + 0.3 * rng.normal(size=(n, 2)), index % 2


def checkerboard(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    column, half = rng.integers(4, size=n), rng.integers(2, size=n)
    corner = np.stack([column, 2 * half + column % 2], 1)
    return 1.5 * (corner + rng.uniform(size=(n, 2)) - 2), half


def network() -> keras.Model:
    """Dense layers, and the term -x^2, so that the density can be normalised."""
    inputs = keras.Input((2,))
    hidden = inputs
    for _ in range(3):
        hidden = keras.layers.Dense(128, "silu")(hidden)
    squares = keras.ops.sum(keras.ops.square(inputs), axis=-1, keepdims=True)
    return keras.Model(inputs, keras.layers.Dense(2)(hidden) - 0.1 * squares)


def learn_density(name: str, x: np.ndarray, y: np.ndarray, epochs: int) -> np.ndarray:
    """Return the density on the grid that the objective `name` learns."""
    keras.utils.set_random_seed(0)
    model = jem_tf.JEM(
        network(),
        sampler=jem_tf.MALA(20, 3e-3),  # samples the density itself
        objective=name,
        input_noise=0.0,
        seed=0,
    )
    rate = keras.optimizers.schedules.CosineDecay(2e-3, epochs * len(x) // 250, alpha=0.02)
    model.compile(keras.optimizers.Adam(rate, clipnorm=1.0))
    model.fit(x, y, batch_size=250, epochs=epochs, verbose=0)
    f = -model.energy(GRID).astype(np.float64)
    p = np.exp(f - f.max())
    return (p / p.sum()).reshape(SIDE, SIDE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/gallery.png"))
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument(
        "--objectives", nargs="+", choices=DENSITY_OBJECTIVES, default=DENSITY_OBJECTIVES
    )
    arguments = parser.parse_args()
    sets = [moons, spirals, eight, checkerboard]
    columns = ["truth", *arguments.objectives]
    figure, axes = plt.subplots(
        len(sets), len(columns), figsize=(1.6 * len(columns), 1.65 * len(sets)), squeeze=False
    )
    for row, draw in zip(axes, sets):
        points, _ = draw(1_000_000, np.random.default_rng(1))
        truth = np.histogram2d(*points.T, bins=[AXIS, AXIS])[0]
        truth /= truth.sum()
        x, y = draw(5000, np.random.default_rng(0))
        for axis, name in zip(row, columns):
            p = (
                truth
                if name == "truth"
                else learn_density(name, x.astype(np.float32), y, arguments.epochs)
            )
            axis.imshow(p.T, origin="lower", cmap="magma", vmax=truth.max())
            axis.set(xticks=[], yticks=[])
            if draw is sets[0]:
                axis.set_title(name, fontsize=9)
            overlap = np.minimum(p, truth).sum()
            print(f"{draw.__name__}, {name}: overlap with the truth {overlap:.2f}", flush=True)
            if name != "truth":
                axis.set_xlabel(f"{overlap:.2f}", fontsize=8, labelpad=2)
    figure.tight_layout(pad=0.4)
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()

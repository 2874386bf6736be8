"""Flow contrastive estimation on two spirals, with seven labels per class.

python examples/spirals.py [--seeds 1] [--labels 7] [--out spirals.png]

A classifier learns from the labelled rows only. FCE learns from the same rows, and from all other
rows with the label -1. Both have the same network and number of steps. The picture has the
densities of the energy-based model, of the flow, and of the model for each class.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import jem_tf
from jem_tf.objectives import FCE, CrossEntropy, Flow, Objective

ROWS, TURNS, RADIUS, NOISE = 4000, 1.0, 4.0, 0.15
BATCH, STEPS = 200, 1500
SIZE = 5.0  # of the picture, from its middle


def make_spirals(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points `[rows, 2]` of two arms that turn around each other, and their arms."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    radius = np.sqrt(rng.uniform(0.06, 1.0, rows))  # as many points per length everywhere
    angle = 2 * np.pi * TURNS * radius + np.pi * y
    x = RADIUS * radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return (x + NOISE * rng.normal(size=x.shape)).astype("float32"), y


def train(objective: Objective, x: np.ndarray, y: np.ndarray, seed: int) -> jem_tf.JEM:
    """Train a network of dense layers for `STEPS` steps."""
    keras.utils.set_random_seed(seed)
    inputs = hidden = keras.Input((2,))
    for _ in range(3):
        hidden = keras.layers.Dense(128, activation="silu")(hidden)
    network = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    model = jem_tf.JEM(network, objective=objective, input_noise=0.0, seed=seed)
    rate = keras.optimizers.schedules.CosineDecay(2e-3, STEPS)
    model.compile(keras.optimizers.Adam(rate, clipnorm=1.0))
    model.fit(x, y, batch_size=BATCH, epochs=STEPS * BATCH // len(x), verbose=0)
    return model


def draw(model: jem_tf.JEM, x: np.ndarray, y: np.ndarray, path: str) -> None:
    """Draw the four densities, and the labelled rows over those of their classes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axis = np.linspace(-SIZE, SIZE, 150, dtype="float32")
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    log_z = float(model.objective.log_z)
    logs = {
        "energy model: log p(x)": model.log_density(grid),
        "flow: log q(x)": model.objective.noise.log_density(grid).numpy(),
        "log p(x, y = 0)": -model.energy(grid, np.zeros(len(grid), int)) - log_z,
        "log p(x, y = 1)": -model.energy(grid, np.ones(len(grid), int)) - log_z,
    }
    figure, axes = plt.subplots(1, 4, figsize=(10.4, 2.8), layout="constrained")
    for place, (title, log_p) in zip(axes, logs.items()):
        values = log_p.reshape(150, 150)
        place.pcolormesh(axis, axis, values, cmap="magma", vmin=-8, vmax=-2)
        place.set_title(title, fontsize=9)
        place.set(xticks=[], yticks=[], aspect="equal")
    for k in (0, 1):
        axes[2 + k].scatter(*x[y == k].T, c="cyan", s=8)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--labels", type=int, default=7, help="labels per class")
    parser.add_argument("--out", help="a picture of the first seed")
    arguments = parser.parse_args()
    plain_accuracies, fce_accuracies = [], []
    for seed in range(arguments.seeds):
        x, y = make_spirals(ROWS, seed)
        x_test, y_test = make_spirals(ROWS, 1000 + seed)
        rng = np.random.default_rng(seed)
        some = [rng.choice(np.flatnonzero(y == k), arguments.labels, False) for k in (0, 1)]
        labelled = np.concatenate(some)
        partial = np.full(ROWS, -1)
        partial[labelled] = y[labelled]
        # Labelled rows are repeated, so that every batch has some, and to fill the batches of
        # cross-entropy.
        repeated = np.tile(labelled, ROWS // len(labelled))
        rows = np.concatenate([np.repeat(labelled, 30), np.flatnonzero(partial < 0)])
        plain = train(CrossEntropy(), x[repeated], y[repeated], seed)
        model = train(FCE(Flow(couplings=8, steps=1000)), x[rows], partial[rows], seed)
        for network, accuracies in ((plain, plain_accuracies), (model, fce_accuracies)):
            right = network.predict(x_test, verbose=0).argmax(1) == y_test
            accuracies.append(100 * right.mean())
        print(
            f"seed {seed}: cross-entropy on {len(labelled)} labels {plain_accuracies[-1]:.1f} %, "
            f"FCE on all rows {fce_accuracies[-1]:.1f} %; mean log p(x) "
            f"{model.log_density(x_test).mean():.2f}, of the flow "
            f"{model.objective.noise.log_density(x_test).numpy().mean():.2f}",
            flush=True,
        )
        if seed == 0 and arguments.out:
            draw(model, x[labelled], y[labelled], arguments.out)
    print(f"mean: cross-entropy {np.mean(plain_accuracies):.1f} %", end=", ")
    print(f"FCE {np.mean(fce_accuracies):.1f} %")


if __name__ == "__main__":
    main()

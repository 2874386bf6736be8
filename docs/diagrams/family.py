"""Pictures of docs/explanations/family: what each objective learns on two moons.

    python docs/diagrams/family.py [NAME ...] [--out docs/images/family]

The left panel is log p(x) without its constant, relative to its maximum, from -8 (dark) to 0. The
right panel is p(y = 1 | x). Prints the accuracy, and which share of exp(log p(x)) in the picture is
near data.
"""

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np
from sklearn.datasets import make_moons

import jem_tf
from jem_tf import objectives

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MEMBERS: dict[
    str, tuple[str, Any]
] = {  # title of a picture, and a function that makes an objective
    "joint": ("joint (JEM)", lambda: objectives.Joint(1.0)),
    "factored": ("factored", objectives.Factored),
    "igebm": ("igebm", lambda: objectives.IGEBM(energy_penalty=0.0)),
    "hdge": ("hdge", objectives.HDGE),
    "supcon": ("supcon", objectives.SupCon),
    "nce": ("nce", objectives.NCE),
    "dual_adversarial": ("dual_adversarial", lambda: objectives.DualAdversarial(warmup=200)),
    "score_matching": ("score_matching", lambda: objectives.ScoreMatching(100.0, 0.04)),
    "energy_discrepancy": (
        "energy_discrepancy",
        lambda: objectives.EnergyDiscrepancy(sigma=0.2, samples=16),
    ),
    "cross_entropy": ("cross_entropy", objectives.CrossEntropy),
}
LABELS = 7  # of each class, in the semi-supervised picture
NEAR = 0.25  # from the nearest row of data: three standard deviations of the noise of the moons
WIDTH, HEIGHT = (-1.8, 2.8), (-1.4, 1.9)
STEPS, BATCH = 1000, 200

x, y = make_moons(4000, noise=0.08, random_state=0)
x = x.astype("float32")
across, up = np.meshgrid(np.linspace(*WIDTH, 160), np.linspace(*HEIGHT, 115))
grid = np.stack([across, up], axis=-1).reshape(-1, 2).astype("float32")


def make_network() -> keras.Model:
    """The network of all members: three dense layers."""
    inputs = hidden = keras.Input((2,))
    for _ in range(3):
        hidden = keras.layers.Dense(128, activation="silu")(hidden)
    return keras.Model(inputs, keras.layers.Dense(2)(hidden))


def train(objective: objectives.Objective, labels: np.ndarray, rows: np.ndarray) -> jem_tf.JEM:
    """Train on x[rows]. MALA samples at temperature 1, so that energies are log densities."""
    keras.utils.set_random_seed(0)
    model = jem_tf.JEM(
        make_network(),
        sampler=jem_tf.MALA(20, 3e-3),
        objective=objective,
        input_noise=0.0,
        seed=0,
    )
    rate = keras.optimizers.schedules.CosineDecay(2e-3, STEPS)
    model.compile(keras.optimizers.Adam(rate, clipnorm=1.0))
    model.adapt(x[rows], labels[rows])
    size = min(BATCH, len(rows))
    model.fit(x[rows], labels[rows], batch_size=size, epochs=STEPS * size // len(rows), verbose=0)
    return model


def describe(model: jem_tf.JEM) -> str:
    """Return the accuracy, and how much of the density in the picture is near data."""
    from scipy.spatial import cKDTree

    log_p = model.ood_score(grid, "log_density")
    density = np.exp(log_p - log_p.max())
    near = cKDTree(x).query(grid)[0] < NEAR
    accuracy = (model.predict(x, verbose=0).argmax(1) == y).mean()
    return f"accuracy {accuracy:.3f}, {density[near].sum() / density.sum():.0%} near data"


def draw_density(axis: Any, model: jem_tf.JEM) -> None:
    draw_log_density(axis, model.ood_score(grid, "log_density"))


def draw_log_density(axis: Any, log_p: np.ndarray) -> None:
    values = (log_p - log_p.max()).reshape(across.shape)
    axis.pcolormesh(across, up, values, cmap="magma", vmin=-8, vmax=0)


def draw_classes(axis: Any, model: jem_tf.JEM) -> None:
    probability = keras.ops.softmax(model.predict(grid, verbose=0)).numpy()[:, 1]
    axis.pcolormesh(across, up, probability.reshape(across.shape), cmap="coolwarm", vmin=0, vmax=1)


def new_figure(rows: int, columns: int, titles: list[str]) -> tuple[Any, np.ndarray]:
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.6 * columns, 2.0 * rows), layout="constrained", squeeze=False
    )
    for axis, title in zip(axes.flat, titles):
        axis.set_title(title, fontsize=9)
    for axis in axes.flat:
        axis.set(xlim=WIDTH, ylim=HEIGHT, aspect="equal", xticks=[], yticks=[])
    return figure, axes


def draw_member(name: str, model: jem_tf.JEM, path: Path) -> None:
    title, _ = MEMBERS[name]
    figure, axes = new_figure(1, 2, [f"{title}: log p(x)", "p(y = 1 | x)"])
    draw_density(axes[0, 0], model)
    draw_classes(axes[0, 1], model)
    figure.savefig(path, dpi=90)


def draw_semi_supervised(path: Path) -> None:
    """`LABELS` labels of each class: cross-entropy on them, and JEM on all rows."""
    some = np.concatenate([np.flatnonzero(y == k)[:LABELS] for k in (0, 1)])
    partial = np.full_like(y, -1)
    partial[some] = y[some]
    # Labelled rows are repeated, so that every batch has some.
    rows = np.concatenate([np.repeat(some, 30), np.flatnonzero(partial < 0)])
    plain = train(objectives.CrossEntropy(), y, some)
    joint = train(objectives.Joint(1.0), partial, rows)
    print(f"semi_supervised: cross-entropy {describe(plain)}; joint {describe(joint)}", flush=True)
    titles = ["cross-entropy on 14 labels", "joint on all rows: log p(x)", "its p(y = 1 | x)"]
    figure, axes = new_figure(1, 3, titles)
    draw_classes(axes[0, 0], plain)
    draw_density(axes[0, 1], joint)
    draw_classes(axes[0, 2], joint)
    for axis in axes[0, ::2]:
        axis.scatter(*x[some].T, c="black", s=8)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*MEMBERS, "semi_supervised"]
    parser.add_argument("names", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--out", type=Path, default=Path("docs/images/family"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        path = arguments.out / f"{name}.png"
        if name == "semi_supervised":
            draw_semi_supervised(path)
            continue
        model = train(MEMBERS[name][1](), y, np.arange(len(x)))
        print(f"{name}: {describe(model)}", flush=True)
        draw_member(name, model, path)


if __name__ == "__main__":
    main()

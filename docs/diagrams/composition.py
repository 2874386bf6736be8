"""Picture of docs/explanations/family/composition.md: the operators on two known densities.

    python docs/diagrams/composition.py [--out docs/images/family/composition.png]

a and b are Gaussians, a wide and a tall one. Each panel is p(x), relative to its maximum. Prints
log Z of both as estimated and in closed form, and the shares of samples of 0.3 * a | 0.7 * b.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np

import jem_tf

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LONG, SHORT = 1.2, 0.35  # standard deviations
SHARES = (0.3, 0.7)


def gaussian(spreads: tuple[float, float], centre: tuple[float, float]) -> jem_tf.Expert:
    """Return a model with the logits of N(centre, spreads²), at temperature 1."""
    inputs = keras.Input((2,))
    squares = ((inputs - np.float32(centre)) / np.float32(spreads)) ** 2
    logit = -0.5 * keras.ops.sum(squares, axis=-1, keepdims=True)
    backbone = keras.Model(inputs, keras.ops.concatenate([logit, logit], axis=-1))
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(20, step_size=2e-3, temperature=1.0), seed=0)
    model.adapt(np.float32([[-4, -4], [4, 4]]))
    return jem_tf.Expert(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/family/composition.png"))
    path = parser.parse_args().out
    a, b = gaussian((LONG, SHORT), (0, 0)), gaussian((SHORT, LONG), (1, 0))
    for name, part in (("a", a), ("b", b)):
        found, exact = part.log_z(), np.log(2 * 2 * np.pi * LONG * SHORT)
        print(f"log Z of {name}: {found.value:.3f} +- {found.error:.3f}, exactly {exact:.3f}")
    samples = (SHARES[0] * a | SHARES[1] * b).sample(2000, steps=400, seed=0)
    distance = (
        np.abs(samples - [[0, 0]]) / [LONG, SHORT],
        np.abs(samples - [[1, 0]]) / [SHORT, LONG],
    )
    nearer = (distance[1] ** 2).sum(1) < (distance[0] ** 2).sum(1)
    print(f"share of samples nearer to b: {nearer.mean():.3f}")

    across, up = np.meshgrid(np.linspace(-3.5, 3.5, 141), np.linspace(-3, 3, 121))
    grid = np.stack([across, up], axis=-1).reshape(-1, 2).astype("float32")
    panels = {
        "a": a,
        "b": b,
        "a & b": a & b,
        "0.3 * a | 0.7 * b": SHARES[0] * a | SHARES[1] * b,
        "a & ~b": a & ~b,
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(11, 2.2), layout="constrained")
    for axis, (title, part) in zip(axes, panels.items()):
        log_p = part.log_density(grid).reshape(across.shape)
        axis.pcolormesh(across, up, np.exp(log_p - log_p.max()), cmap="magma", vmin=0, vmax=1)
        axis.set_title(title, fontsize=10, family="monospace")
        axis.set(aspect="equal", xticks=[], yticks=[])
    figure.savefig(path, dpi=90)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()

"""Figures of docs/explanations/family/views.md: one energy, trained in several ways.

    python docs/diagrams/views.py [gradients] [densities] [--out docs/images/family]

`gradients` compares the gradient of JEM with that of a discriminator. `densities` draws what JEM,
score matching and energy discrepancy learn of two moons, and prints their distance from the truth.
"""

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from family import draw_log_density, grid, make_network, new_figure, train, x, y
from scipy.special import logsumexp

from jem_tf import objectives

NOISE = 0.08  # of the moons
SIGMA = 0.04  # of score matching, in half ranges
MEMBERS: dict[str, tuple[str, Any]] = {
    "joint": ("JEM, by chains", lambda: objectives.Joint(1.0)),
    "score_matching": ("score matching", lambda: objectives.ScoreMatching(100.0, SIGMA)),
    "energy_discrepancy": (
        "energy discrepancy",
        lambda: objectives.EnergyDiscrepancy(sigma=0.2, samples=16),
    ),
}


def flat_gradient(network: keras.Model, loss: Any) -> np.ndarray:
    """Return the gradient of `loss()` with respect to all weights, as one vector."""
    with tf.GradientTape() as tape:
        value = loss()
    weights = [weight.value for weight in network.trainable_weights]
    gradients = tape.gradient(value, weights)
    return np.concatenate([np.ravel(g) for g in gradients])


def compare_gradients() -> None:
    """Print how JEM's gradient agrees with a discriminator's while p moves away from q."""
    keras.utils.set_random_seed(0)
    network = make_network()
    log_p = lambda points: tf.reduce_logsumexp(network(points), axis=-1)  # noqa: E731
    # Samples of p, exactly: the plane is a grid here.
    probabilities = tf.nn.softmax(log_p(grid)).numpy().astype(float)
    chosen = np.random.default_rng(0).choice(
        len(grid), len(x), p=probabilities / probabilities.sum()
    )
    samples = grid[chosen]
    q_data, q_samples = log_p(x), log_p(samples)  # q = p, held constant

    def contrast() -> tf.Tensor:
        return tf.reduce_mean(log_p(samples)) - tf.reduce_mean(log_p(x))

    def discriminate() -> tf.Tensor:
        real, drawn = log_p(x) - q_data, log_p(samples) - q_samples
        return tf.reduce_mean(tf.nn.softplus(-real)) + tf.reduce_mean(tf.nn.softplus(drawn))

    def likelihood() -> tf.Tensor:
        return tf.reduce_logsumexp(log_p(grid)) - tf.reduce_mean(log_p(x))

    optimizer = keras.optimizers.Adam(1e-3)
    print("| updates since q = p | norm of D's gradient / JEM's | cosine | cosine with exact |")
    weights = network.trainable_weights
    for step in range(101):
        if step in (0, 1, 10, 100):
            losses = (contrast, discriminate, likelihood)
            ours, other, exact = (flat_gradient(network, loss) for loss in losses)
            ratio = np.linalg.norm(other) / np.linalg.norm(ours)
            cosines = cosine(ours, other), cosine(exact, other)
            print(f"| {step} | {ratio:.6f} | {cosines[0]:.6f} | {cosines[1]:.3f} |", flush=True)
        with tf.GradientTape() as tape:
            loss = discriminate()
        optimizer.apply(tape.gradient(loss, [w.value for w in weights]), weights)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def true_log_density(added: np.ndarray | float = 0.0) -> np.ndarray:
    """Return log p of the moons on the grid; `added` is a variance of each axis."""
    t = np.linspace(0, np.pi, 500)
    outer = np.stack([np.cos(t), np.sin(t)], axis=-1)
    arcs = np.concatenate([outer, [1, 0.5] - outer])
    variance = NOISE**2 + np.broadcast_to(added, 2)
    squares = sum((grid[:, i, None] - arcs[:, i]) ** 2 / variance[i] for i in (0, 1))
    log_p = logsumexp(-squares / 2, axis=1)
    return log_p - logsumexp(log_p)  # normalised on the grid


def draw_densities(path: Path) -> None:
    truth = true_log_density()
    seen = truth > truth.max() - 8  # what the picture shows
    figure, axes = new_figure(1, 1 + len(MEMBERS), ["truth", *(t for t, _ in MEMBERS.values())])
    draw_log_density(axes[0, 0], truth)
    print("| | KL from the truth | from the truth with its noise | correlation of log p |")
    for axis, (name, (_, make)) in zip(axes[0, 1:], MEMBERS.items()):
        model = train(make(), y, np.arange(len(x)))
        log_p = model.ood_score(grid, "log_density").astype(float)
        log_p -= logsumexp(log_p)
        sigma = SIGMA if name == "score_matching" else 0.0
        noisy = true_log_density((sigma * model.input_range.scale.numpy()) ** 2)
        distances = [np.sum(np.exp(t) * (t - log_p)) for t in (truth, noisy)]
        correlation = np.corrcoef(truth[seen], log_p[seen])[0, 1]
        print(
            f"| {name} | {distances[0]:.3f} | {distances[1]:.3f} | {correlation:.3f} |", flush=True
        )
        draw_log_density(axis, log_p)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["gradients", "densities"]
    parser.add_argument("names", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--out", type=Path, default=Path("docs/images/family"))
    arguments = parser.parse_args()
    if "gradients" in arguments.names:
        compare_gradients()
    if "densities" in arguments.names:
        draw_densities(arguments.out / "views.png")


if __name__ == "__main__":
    main()

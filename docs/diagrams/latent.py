"""Picture of docs/explanations/family/latent.md: which value of z is responsible for which inputs.

    python docs/diagrams/latent.py [--out docs/images/family/latent.png]

JEM with four values of z for each of two moons. A panel for each moon: rows of the data have the
colour of the likeliest z, and crosses are modes of p(x | y, z).
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np
from sklearn.datasets import make_moons

import jem_tf

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LATENT, STEPS, BATCH = 4, 500, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/family/latent.png"))
    path = parser.parse_args().out
    x, y = make_moons(2000, noise=0.08, random_state=0)
    x = x.astype("float32")
    keras.utils.set_random_seed(0)
    backbone = jem_tf.backbones.mlp((2,), 2, units=128, latent=LATENT)
    model = jem_tf.JEM(backbone, sampler=jem_tf.MALA(10, 3e-3), input_noise=0.0, seed=0)
    rate = keras.optimizers.schedules.CosineDecay(2e-3, STEPS)
    model.compile(keras.optimizers.Adam(rate, clipnorm=1.0))
    model.fit(x, y, batch_size=BATCH, epochs=STEPS * BATCH // len(x), verbose=0)

    accuracy = (model.predict(x, verbose=0).argmax(1) == y).mean()
    probabilities = model.latent_probabilities(x, y)
    shares = [[f"{share:.2f}" for share in probabilities[y == k].mean(0)] for k in range(2)]
    print(f"accuracy {accuracy:.3f}, p(z | y) {shares}")
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
    for label, axis in enumerate(axes):
        rows = y == label
        z = probabilities[rows].argmax(1)
        axis.scatter(*x[rows].T, c=z, s=4, cmap="tab10", vmin=0, vmax=9)
        values = np.arange(LATENT)
        modes = model.modes(LATENT, label, steps=1000, seed=0, latent=values)
        axis.scatter(
            *modes.T, c=values, s=70, marker="X", edgecolors="black", cmap="tab10", vmin=0, vmax=9
        )
        axis.set(title=f"likeliest z of moon {label}", xlim=(-1.8, 2.8), ylim=(-1.4, 1.9))
        axis.set(aspect="equal", xticks=[], yticks=[])
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main()

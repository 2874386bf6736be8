"""Two moons: a picture of the density that a JEM learns.

python examples/two_moons.py [two_moons.png]
"""

import sys

import keras
import matplotlib
import numpy as np
from sklearn.datasets import make_moons

import jem_tf

matplotlib.use("Agg")
import matplotlib.pyplot as plt

x, y = make_moons(4000, noise=0.08, random_state=0)
x = x.astype("float32")

inputs = keras.Input((2,))
hidden = inputs
for _ in range(3):
    hidden = keras.layers.Dense(128, activation="silu")(hidden)
backbone = keras.Model(inputs, keras.layers.Dense(2)(hidden))

# MALA samples at temperature 1: energies are the log density of the data. SGLD has a lower one.
model = jem_tf.JEM(backbone, sampler=jem_tf.MALA(20, 3e-3), input_noise=0.0, seed=0)
model.adapt(x)
model.compile(
    keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, 800), clipnorm=1.0),
    metrics=["accuracy"],
)
model.fit(x, y, batch_size=200, epochs=40, verbose=0)

across, up = np.meshgrid(np.linspace(-1.8, 2.8, 240), np.linspace(-1.4, 1.9, 180))
grid = np.stack([across, up], axis=-1).reshape(-1, 2).astype("float32")
log_p = model.ood_score(grid, "log_density").reshape(across.shape)
density = np.exp(log_p - log_p.max())
probability = keras.ops.softmax(model.predict(grid, verbose=0)).numpy()[:, 1]

share = density[density > np.quantile(density, 0.8)].sum() / density.sum()
print(f"accuracy {(model.predict(x, verbose=0).argmax(1) == y).mean():.3f}")
print(f"the densest fifth of the picture holds {share:.0%} of the probability in it")

figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
axes[0].scatter(*x[:1000].T, c=y[:1000], s=4, cmap="coolwarm")
axes[0].set_title("data")
axes[1].pcolormesh(across, up, density, cmap="magma")
axes[1].set_title("learned density p(x)")
axes[2].pcolormesh(across, up, probability.reshape(across.shape), cmap="coolwarm")
axes[2].set_title("p(y = 1 | x)")
for axis in axes:
    axis.set(xlim=(-1.8, 2.8), ylim=(-1.4, 1.9), aspect="equal", xticks=[], yticks=[])
path = sys.argv[1] if len(sys.argv) > 1 else "two_moons.png"
figure.savefig(path, dpi=110)
print(f"wrote {path}")

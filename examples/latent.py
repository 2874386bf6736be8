"""Kinds of digits that no label names: a latent variable z with four values for each class.

python examples/latent.py [latent.png] [--epochs 20]

JEM learns digits without z and with it. Samples of a digit and one z should be more alike than
samples of the digit: the mean Euclidean distance between two of them measures this. In the picture,
rows are digits, and columns are three samples of each z.
"""

import argparse
import dataclasses

import keras
import numpy as np
from scipy.spatial.distance import pdist
from sklearn.svm import SVC

import jem_tf
from jem_tf import data, pictures
from jem_tf.training import recipes

CLASSES, LATENT, SAMPLES = 10, 4, 10  # samples of each pair (y, z)


def train(latent: int) -> jem_tf.JEM:
    keras.utils.set_random_seed(0)
    recipe = dataclasses.replace(
        recipes.get("digits"),
        backbone="mlp",
        backbone_options={"latent": latent},
        epochs=arguments.epochs,
    )
    model = recipe.model(digits, seed=0)
    model.compile(recipe.optimizer(-(-len(x) // recipe.batch_size)), metrics=["accuracy"])
    model.fit(x, y, batch_size=recipe.batch_size, epochs=recipe.epochs, verbose=0)
    accuracy = (model.predict(x_test, verbose=0).argmax(1) == y_test).mean()
    print(f"M = {latent}: accuracy {accuracy:.3f}", flush=True)
    return model


def distance(groups: list[np.ndarray]) -> float:
    """Return the mean distance between two rows of a group."""
    return float(np.mean([pdist(rows.reshape(len(rows), -1)).mean() for rows in groups]))


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("picture", nargs="?", default="latent.png")
parser.add_argument("--epochs", type=int, default=20)
arguments = parser.parse_args()

digits = data.load("digits")
x, y = digits.arrays("train")
x_test, y_test = digits.arrays("test")
train(1)
model = train(LATENT)

shares = np.stack([model.latent_probabilities(x[y == k], y[y == k]).mean(0) for k in range(10)])
print(f"p(z | y) of the data is between {shares.min():.2f} and {shares.max():.2f}")

labels = np.repeat(np.arange(CLASSES), LATENT * SAMPLES)
z = np.tile(np.repeat(np.arange(LATENT), SAMPLES), CLASSES)
of_class = model.sample(len(labels), labels, seed=0)
of_pair = model.sample(len(labels), labels, latent=z, seed=0)
pairs = [of_pair[(labels == k) & (z == v)] for k in range(CLASSES) for v in range(LATENT)]
print(f"mean distance of samples of a class {distance(np.split(of_class, CLASSES)):.2f}")
print(f"mean distance of samples of a class and z {distance(pairs):.2f}")

judge = SVC(gamma="scale").fit(x.reshape(len(x), -1), y)
share = (judge.predict(of_pair.reshape(len(labels), -1)) == labels).mean()
print(f"samples that a support vector machine gives their class: {share:.2f}")
pictures.save_grid(np.concatenate([rows[:3] for rows in pairs]), 3 * LATENT, arguments.picture)

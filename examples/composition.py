"""Two models combined: each learns one attribute of digits, and samples have both.

python examples/composition.py [composition.png] [--epochs 60]

One JEM learns whether a digit is odd, another whether it is five or more. The sum of their energies
is a density of digits with both attributes. A support vector machine, trained on all ten digits,
classifies the samples.
"""

import argparse
import dataclasses

import keras
import numpy as np
from sklearn.svm import SVC

import jem_tf
from jem_tf import data, pictures
from jem_tf.training import recipes


def train(y: np.ndarray, seed: int) -> jem_tf.JEM:
    """Train a JEM on the digits and their attribute `y`, 0 or 1."""
    keras.utils.set_random_seed(seed)
    model = jem_tf.JEM(
        jem_tf.backbones.convnet(digits.shape, 2),
        sampler=jem_tf.SGLD(10),
        input_noise=0.05,
        seed=seed,
    )
    recipe = dataclasses.replace(recipes.get("digits"), epochs=arguments.epochs)
    steps_per_epoch = -(-len(x) // recipe.batch_size)
    model.compile(recipe.optimizer(steps_per_epoch), metrics=["accuracy"])
    model.fit(x, y, batch_size=recipe.batch_size, epochs=recipe.epochs, verbose=0)
    return model


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("picture", nargs="?", default="composition.png")
parser.add_argument("--epochs", type=int, default=60)
arguments = parser.parse_args()

digits = data.load("digits")
x, y = digits.arrays("train")
judge = SVC(gamma="scale").fit(x.reshape(len(x), -1), y)
odd, large = train(y % 2, seed=0), train(y // 5, seed=1)
both = jem_tf.compose([odd, large])


def share_of(targets: list[int], samples: np.ndarray) -> float:
    """Return the share of the samples that the judge classifies as one of the digits `targets`."""
    return float(np.isin(judge.predict(samples.reshape(len(samples), -1)), targets).mean())


rows = []
for is_odd, is_large in np.ndindex(2, 2):
    targets = [k for k in range(10) if (k % 2, k // 5) == (is_odd, is_large)]
    alone = share_of(targets, odd.sample(100, is_odd, seed=0))
    rows.append(both.sample(100, (is_odd, is_large), seed=0))
    kind = f"{'odd' if is_odd else 'even'} and {'5 to 9' if is_large else '0 to 4'}"
    print(f"{kind}: {share_of(targets, rows[-1]):.2f} of samples are one of {targets}, ", end="")
    print(f"{alone:.2f} by the first model alone")
pictures.save_grid(np.concatenate([row[:10] for row in rows]), 10, arguments.picture)

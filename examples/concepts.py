"""Concepts learned one after another, and generated together: position, shape and colour.

python examples/concepts.py [concepts.png] [--steps 700]

Three JEMs see the same pictures of one object. The first learns where it is, the second what it is,
the third its colour. Expressions of the three generate objects with all concepts, one of two
objects, and objects without a concept. Support vector machines, trained on other pictures, judge
the samples. The energies of the first model for all positions are a map: that of two objects, which
it has never seen, is the sum of the maps of each.
"""

import argparse
from pathlib import Path

import keras
import matplotlib
import numpy as np
from sklearn.svm import SVC

import jem_tf
from jem_tf import pictures

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SIZE, CENTRES = 12, (2, 4, 7, 9)  # rows and columns of the centres: 4 x 4 positions
SHAPES = {
    "square": "##### ##### ##### ##### #####",
    "cross": "..#.. ..#.. ##### ..#.. ..#..",
    "ring": "##### #...# #...# #...# #####",
}
COLOURS = {"red": (1, -0.6, -0.6), "green": (-0.6, 1, -0.6), "blue": (-0.4, -0.4, 1)}
CONCEPTS = {"position": len(CENTRES) ** 2, "shape": len(SHAPES), "colour": len(COLOURS)}


def render(position: int, shape: int, colour: int) -> np.ndarray:
    """Return a picture of one object, [12, 12, 3] in [-1, 1]."""
    picture = np.full((SIZE, SIZE, 3), -1, np.float32)
    row, column = (CENTRES[i] for i in divmod(position, len(CENTRES)))
    rows = list(SHAPES.values())[shape].split()
    mask = np.array([[c == "#" for c in row] for row in rows])
    picture[row - 2 : row + 3, column - 2 : column + 3][mask] = list(COLOURS.values())[colour]
    return picture


def make_data(n: int, seed: int, noise: float = 0.0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return pictures, and the labels of each concept."""
    rng = np.random.default_rng(seed)
    labels = {name: rng.integers(count, size=n) for name, count in CONCEPTS.items()}
    x = np.stack([render(*values) for values in zip(*labels.values())])
    return x + noise * rng.normal(size=x.shape).astype("float32"), labels


def train(concept: str, seed: int) -> jem_tf.JEM:
    """Train a JEM on the pictures and the labels of one concept."""
    keras.utils.set_random_seed(seed)
    model = jem_tf.JEM(
        jem_tf.backbones.convnet((SIZE, SIZE, 3), CONCEPTS[concept], width=16),
        sampler=jem_tf.SGLD(10),
        buffer=jem_tf.ReplayBuffer(500),
        start=jem_tf.GaussianMixture(),  # near the pictures of each class of this concept
        seed=seed,
    )
    rate = keras.optimizers.schedules.CosineDecay(2e-3, arguments.steps)
    optimizer = keras.optimizers.Adam(rate, clipnorm=1.0, use_ema=True, ema_momentum=0.99)
    model.compile(optimizer, metrics=["accuracy"])
    model.fit(
        x, y[concept], batch_size=BATCH, epochs=arguments.steps // (len(x) // BATCH), verbose=0
    )
    print(f"{concept}: accuracy {(model.predict(x, verbose=0).argmax(1) == y[concept]).mean():.3f}")
    return model


def judge(samples: np.ndarray) -> dict[str, np.ndarray]:
    """Return the concepts of samples, as the support vector machines see them."""
    return {name: machine.predict(samples.reshape(len(samples), -1)) for name, machine in judges}


def draw_maps(path: Path) -> float:
    """Draw the map of two objects beside the sum of two maps; return the mean correlation."""
    rng, correlations = np.random.default_rng(3), []
    for index in range(50):
        corners = rng.choice([0, 3, 12, 15], size=2, replace=False)  # objects that do not overlap
        one, two = (render(p, *rng.integers(3, size=2)) for p in corners)
        images = np.stack([one, two, np.maximum(one, two)])
        maps = -models["position"].predict(images, verbose=0)
        correlations.append(np.corrcoef(maps[0] + maps[1], maps[2])[0, 1])
        if index == 0:
            figure, axes = plt.subplots(2, 4, figsize=(8, 4), layout="constrained")
            titles = ["one", "two", "sum of both maps", "both together"]
            for axis, title, values in zip(
                axes[1], titles, [maps[0], maps[1], maps[0] + maps[1], maps[2]]
            ):
                axis.imshow(values.reshape(4, 4), cmap="magma_r")
                axis.set_title(f"E: {title}", fontsize=9)
            for axis, image in zip(axes[0, [0, 1, 3]], images):
                axis.imshow((image + 1) / 2)
            for axis in axes.flat:
                axis.axis("off")
            figure.savefig(path, dpi=90)
    return float(np.mean(correlations))


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("picture", nargs="?", type=Path, default=Path("concepts.png"))
parser.add_argument("--steps", type=int, default=700)
arguments = parser.parse_args()
BATCH, COUNT = 64, 40

x, y = make_data(3000, seed=0)
models = {concept: train(concept, seed) for seed, concept in enumerate(CONCEPTS)}
x_judge, y_judge = make_data(3000, seed=1, noise=0.2)
judges = [
    (name, SVC(gamma="scale").fit(x_judge.reshape(len(x_judge), -1), y_judge[name]))
    for name in CONCEPTS
]
x_test, y_test = make_data(500, seed=2, noise=0.2)
correct = [judge(x_test)[name] == y_test[name] for name in CONCEPTS]
print(f"judges: accuracy {np.all(correct, axis=0).mean():.2f} on rendered pictures")

rows = []
all_concepts = jem_tf.compose(list(models.values()))
shares = []
for wanted in [(0, 0, 0), (5, 1, 1), (15, 2, 2), (3, 1, 2), (12, 2, 0), (10, 0, 1)]:
    rows.append(all_concepts.sample(COUNT, labels=wanted, seed=0))
    found = judge(rows[-1])
    hits = [found[name] == value for name, value in zip(CONCEPTS, wanted)]
    shares.append(np.all(hits, axis=0).mean())
    names = f"{list(COLOURS)[wanted[2]]} {list(SHAPES)[wanted[1]]} at {wanted[0]}"
    print(
        f"{names}: {shares[-1]:.2f} of samples have all three, each " + str(np.mean(hits, axis=1))
    )
print(f"all concepts: {np.mean(shares):.2f}")


def expert(concept: str, label: int) -> jem_tf.Expert:
    return jem_tf.Expert(models[concept], label)


corner = expert("position", 0)
red_square = corner & expert("shape", 0) & expert("colour", 0)
blue_cross = expert("position", 15) & expert("shape", 1) & expert("colour", 2)
rows.append((0.25 * red_square | 0.75 * blue_cross).sample(COUNT, seed=1))
crosses = (judge(rows[-1])["position"] == 15).mean()
print(f"0.25 red square | 0.75 blue cross: share at the place of the cross {crosses:.2f}")

anything = corner.sample(COUNT, seed=2)
rows.append(anything)
excluded = []
for label, colour in enumerate(COLOURS):
    samples = (corner & ~expert("colour", label)).sample(COUNT, seed=2)
    before, after = ((judge(v)["colour"] == label).mean() for v in (anything, samples))
    print(f"corner: share of {colour} {before:.2f}; and not {colour}: {after:.2f}")
    excluded.append(after)
    rows.append(samples)
print(f"excluded colours: {np.mean(excluded):.2f}")

pictures.save_grid(np.concatenate([x[:10], *(row[:10] for row in rows)]), 10, arguments.picture)
maps = arguments.picture.with_stem(arguments.picture.stem + "_maps")
print(f"correlation of maps of two objects with sums of maps: {draw_maps(maps):.3f}")

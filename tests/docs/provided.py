"""Names that examples of the documentation may use without defining them."""

from functools import cache

import keras
import numpy as np
import tensorflow as tf

import jem_tf
from jem_tf import backbones

SHAPE, CLASSES, ROWS = (8, 8, 1), 10, 60


def make_rows(seed, count=ROWS):
    return np.random.default_rng(seed).uniform(-1, 1, (count, *SHAPE)).astype(np.float32)


def make_labels(count=ROWS):
    return np.arange(count) % CLASSES


def make_backbone():
    return backbones.mlp(SHAPE, CLASSES, units=16, depth=1)


@cache
def make_trained():
    """One model for all examples: an example may train it further."""
    model = jem_tf.JEM(make_backbone(), sampler=jem_tf.SGLD(steps=2), seed=0)
    model.compile(keras.optimizers.Adam(1e-3), metrics=["accuracy"])
    model.fit(make_rows(0), make_labels(), verbose=0)
    return model


def make_adapted():
    model = jem_tf.JEM(backbones.mlp(SHAPE, 2, units=8, depth=1), seed=0)
    model.adapt(make_rows(0))
    return model


PROVIDED = {
    "backbone": make_backbone,
    "model": make_trained,
    "x": lambda: make_rows(0, 5),
    "x_train": lambda: make_rows(0),
    "y_train": make_labels,
    "x_val": lambda: make_rows(1),
    "y_val": make_labels,
    "x_test": lambda: make_rows(2),
    "y_test": make_labels,
    "unusual": lambda: np.ones((20, *SHAPE), np.float32),
    "table": lambda: np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32),
    "table_labels": lambda: np.arange(ROWS) % 2,
    "parity": make_adapted,
    "size": make_adapted,
}

# Docstrings are shorter, and use more names.
PROVIDED_TO_DOCSTRINGS = {
    **PROVIDED,
    "y": lambda: make_labels(5),
    "rows": lambda: tf.data.Dataset.from_tensor_slices((make_rows(0), make_labels())).batch(20),
    "x_validation": lambda: make_rows(1),
    "noise": lambda: make_rows(3),
    "samples": lambda: make_rows(4),
    "logits": lambda: np.random.default_rng(0).normal(size=(ROWS, CLASSES)),
    "labels": make_labels,
    "shape": lambda: SHAPE,
    "network": make_backbone,
    "keras_model": make_backbone,
}

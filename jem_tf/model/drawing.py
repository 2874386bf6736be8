"""Inputs that a model makes up: chains from its start that sample a density or climb to its modes.

Not here: how chains move (`sampling/`), chains in training (`chains.py`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.checks import check_positive_integer
from jem_tf.data.labels import class_indices
from jem_tf.model.chains import Chains
from jem_tf.model.latent import find_latent
from jem_tf.sampling import SGLD, Sampler

DrawFn = Callable[[tf.Tensor, tf.Tensor | None, tf.Tensor], tf.Tensor]


def chains_from_start(
    model: Any, name: str, n: int, label: Any, latent: Any, steps: int
) -> tuple[str, DrawFn, np.ndarray | None]:
    """What `BatchedCalls` runs for `n` chains of p(x), p(x | y) or p(x | y, z): a name, a function
    in the graph, and its labels. `name` is "sample" or "modes"."""
    check_positive_integer("steps", steps)
    check_positive_integer("n", n)
    start = model.start
    if start is None or not model.input_range.adapted:
        raise ValueError(f"`{name}` needs the range of the data: call `fit` or `adapt` first.")
    labels = None if label is None else class_indices(label, n, model.num_classes)
    logits, per_class, key = model.logits, 1, f"{name}_{steps}"
    if latent is not None:
        variable = find_latent(model.backbone, f"`{name}` with `latent`")
        labels = variable.pair_indices(labels, latent, n)
        logits, per_class, key = variable.pair_logits, variable.values, f"{key}_latent"
    sampler = model.sampler if name == "sample" else _without_noise(model.sampler)
    chains = Chains(logits, sampler, model.input_range, model.progress)

    def run(rows: tf.Tensor, labels: tf.Tensor | None, seed: tf.Tensor) -> tf.Tensor:
        start_seed, chain_seed = tf.unstack(tf.random.split(seed, 2))
        classes = None if labels is None else labels // per_class
        x = start.draw(tf.shape(rows)[0], start_seed, classes)
        return chains.run(x, chain_seed, labels, steps)[0]

    return key, run, labels


def _without_noise(sampler: Sampler) -> SGLD:
    """The steps of `sampler` at temperature zero: gradient ascent of log p(x)."""
    # The tuned step size is a factor of steps of size 1; see `Sampler.step_size_at`.
    return SGLD(sampler.steps, 1.0 if sampler.tunes else sampler.step_size, noise=0.0)

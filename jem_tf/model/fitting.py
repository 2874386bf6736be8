"""Before the first training step: check the data, learn its range, fill the buffer.

Not here: the step itself (`jem.py`).
"""

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.backbones.actnorm import initialise_actnorm
from jem_tf.data import inputs
from jem_tf.data.labels import check_labels, check_weights
from jem_tf.model.backbone import check_logits
from jem_tf.model.classifiers import rescales
from jem_tf.model.encoding import as_features

FILL_PURPOSE = 2  # of the seeds that fill the buffer
WARNING_STEPS = 50  # of training, before a warning about its end makes sense
BALANCE_STEPS = 500  # of training, before the classes of chains say something
MAX_IMBALANCE = 0.15  # total variation between the classes of chains and of the data
NOISE_ROWS = 256  # that log p(x) is compared on, of data and of noise
MIN_AUROC = 0.4  # of that comparison; chance is 0.5, also for data that is noise
MAX_CHAINS = 2000  # whose classes are looked at


def before_fit(
    model: Any, x: Any, y: Any, batch_size: int, epochs: int, options: dict[str, Any]
) -> tuple[Any, inputs.Summary]:
    """Prepare `model` for `fit(x, y, batch_size, epochs, **options)`.

    Return `x`, or for an iterator that had to be read, another one that yields the same items; and
    the summary of the data.
    """
    if options.get("sample_weight") is not None:
        check_weights(options["sample_weight"])
    batches = inputs.batches_of(x, y, batch_size)
    if inputs.is_stream(x):
        inputs.check_batched(x)
        limit = (options.get("steps_per_epoch") or inputs.MAX_BATCHES) * epochs
        limit = 1 if model.buffer.filled else min(limit, inputs.MAX_BATCHES)
        batches, x = inputs.look_ahead(x, limit)
    summary = prepare(model, batches, need_labels=True)
    with model.distribute_strategy.scope():
        model.objective.check(summary)
        model.objective.prepare(model, summary)
    _check_validation(model, options.get("validation_data"))
    if not model.objective.uses_chains:
        return x, summary
    batch = -(-summary.batch // model.distribute_strategy.num_replicas_in_sync)
    if not model.buffer.filled or model.buffer.too_small(batch):
        per_epoch = inputs.batches_per_epoch(
            x, batch_size, options.get("steps_per_epoch"), options.get("validation_split", 0.0)
        )
        epochs_left = epochs - options.get("initial_epoch", 0)
        steps = None if per_epoch is None else per_epoch * epochs_left
        _fill_buffer(model, batch, steps, class_shares(summary, model.num_classes))
    model.buffer.check_capacity(batch)
    return x, summary


def batch_size_of(x: Any, batch_size: int | None, steps: int | None, split: float) -> int:
    """The batch size that Keras takes: 32, or all rows in as many batches as there are `steps`."""
    if batch_size is not None or steps is None or inputs.is_stream(x):
        return batch_size or 32
    return -(-round(len(x) * (1.0 - split)) // steps)


def _check_validation(model: Any, data: Any) -> None:
    """Raise `ValueError` for validation rows that the model cannot be measured on."""
    if data is None:
        return
    x, y, weights = inputs.unpack(data) if isinstance(data, (tuple, list)) else (data, None, None)
    batches = inputs.batches_of(x, y, 1024)
    if inputs.is_stream(x):
        if isinstance(x, Iterator):  # reading it would take rows away
            return
        batches = itertools.islice(batches, inputs.MAX_BATCHES)
    try:
        for rows, labels in batches:
            inputs.check_shape(np.shape(rows)[1:], model.example_shape)
            if labels is None:
                raise ValueError("they have no labels.")
            check_labels(np.asarray(labels), model.num_classes)
    except ValueError as error:
        raise ValueError(f"`validation_data` is not valid: {error}") from None
    if weights is not None:
        check_weights(weights)


def prepare(
    model: Any, batches: Iterator[Any], need_labels: bool = False, relearn: bool = False
) -> inputs.Summary:
    """Check the data, and learn its range and the chain start if they are not known yet."""
    first = next(batches, None)
    if first is None:
        raise ValueError("The data set is empty: there is no row to learn from.")
    if isinstance(first[0], (dict, tuple, list)):
        raise ValueError(inputs.SEVERAL_INPUTS.format(f"batches of {len(first[0])} inputs"))
    if need_labels and first[1] is None:
        raise ValueError("JEM needs labels `y`; mark unlabelled rows with -1. Received: y=None")
    rows = np.asarray(first[0])
    inputs.check_rows(rows)
    with model.distribute_strategy.scope():
        if not model.built:
            model.build((None, *rows.shape[1:]))
        inputs.check_shape(rows.shape[1:], model.example_shape)
        initialise_actnorm(model.backbone, rows.astype(np.float32))
        check_logits(model.backbone(rows[:32].astype(np.float32), training=False).numpy())
    summary = inputs.summarise(itertools.chain([first], batches), model.num_classes)
    if summary.unscaled is not None and not rescales(model.backbone):
        warnings.warn(summary.unscaled, stacklevel=4)
    if relearn or not model.input_range.adapted:
        with model.distribute_strategy.scope():
            model.input_range.adapt(summary.x, summary.bounds)
            model.start.adapt(summary.x, summary.y, model.num_classes)
        model.forget_traces()
    return summary


def choose_step_size(model: Any) -> None:
    """Set the step size of the sampler to one that suits the network as it is."""
    model.progress.assign(step_size=np.float32(suitable_step_size(model)))


def suitable_step_size(model: Any) -> float:
    """A step size with which new chains stay in the range of the inputs at first."""
    seed = tf.constant([model.seed, FILL_PURPOSE])
    return model.chains.suitable_step_size(model.start, seed)


def class_shares(summary: inputs.Summary, classes: int) -> np.ndarray:
    """The share of each class in the labelled rows; equal shares if there are none."""
    if summary.y is None:
        return np.full(classes, 1.0 / classes)
    return np.bincount(summary.y[summary.y >= 0], minlength=classes) / (summary.y >= 0).sum()


def warn_if_unhealthy(model: Any, summary: inputs.Summary) -> None:
    """Warn if the end of a training says that the density has not been learned."""
    shares = class_shares(summary, model.num_classes)
    if (problem := model.objective.unfinished(model)) is not None:
        warnings.warn(problem, stacklevel=3)
    if not model.objective.uses_chains:
        return
    vitals, step_size = model.health.vitals(), model.progress.number("step_size")
    if model.health.steps >= WARNING_STEPS and vitals["trusted"] < 0.5:
        warnings.warn(
            f"The density is not learned: samples are {-vitals['relative_gap']:.1f} standard "
            f"deviations of log p(x) below the data, and {vitals['trusted']:.0%} of them count in "
            "the loss. Train longer, with more sampler steps or a higher temperature.",
            stacklevel=3,
        )
    elif (problem := unlearned_density(model, summary.x) or _imbalance(model, shares)) is not None:
        warnings.warn(problem, stacklevel=3)
    if model.sampler.at_lower_bound(step_size):
        warnings.warn(
            f"The step size of the sampler is at its lower bound, {step_size:.3g}: the density is "
            "too steep for its temperature. Use more input noise or a higher temperature.",
            stacklevel=3,
        )


def unlearned_density(model: Any, x: np.ndarray) -> str | None:
    """Why log p(x) is not to be trusted yet, in words; None if data is above uniform noise."""
    x = x[:: -(-len(x) // NOISE_ROWS)].astype(np.float32)
    low, high = model.input_range.numpy()
    noise = np.random.default_rng(0).uniform(low, high, x.shape).astype(np.float32)
    data, other = (
        maths.log_density(model.logits(tf.constant(rows))).numpy() for rows in (x, noise)
    )
    auroc = (data[:, None] > other[None]).mean()
    if auroc >= MIN_AUROC:
        return None
    return (
        "The density has not been learned yet: log p(x) of uniform noise is above that of data "
        f"(AUROC {auroc:.3f}). Train longer before you trust log p(x)."
    )


def _imbalance(model: Any, shares: np.ndarray) -> str | None:
    """How the classes of the chains differ from those of the data, in words; None if little."""
    chains = model.stored_chains()
    if chains is None or model.health.steps < BALANCE_STEPS:
        return None
    chains = as_features(chains[:: -(-len(chains) // MAX_CHAINS)])
    logits = model.predict(chains, batch_size=256, verbose=0)
    excess = tf.nn.softmax(logits).numpy().mean(0) - shares
    if np.abs(excess).sum() / 2 <= MAX_IMBALANCE:
        return None
    worst = int(excess.argmax())
    return (
        f"{excess[worst] + shares[worst]:.0%} of the samples are of class {worst}, and "
        f"{shares[worst]:.0%} of the data: chains do not move between classes, and do not start "
        "in all of them alike. Use start=GaussianMixture()."
    )


def _fill_buffer(model: Any, batch: int, steps: int | None, shares: np.ndarray) -> None:
    """Fill the buffers for `steps` steps of `batch` on a replica; choose the step size."""
    with model.distribute_strategy.scope():
        seed = tf.constant([model.seed, FILL_PURPOSE])
        model.buffer.initialise(model.start, seed, batch, steps, shares)
    if model.sampler.tunes:
        choose_step_size(model)
    model.forget_traces()

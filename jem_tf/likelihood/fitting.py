"""Maximum likelihood by Adam, for `Glow` and `PixelCNN`; interrupted fits continue.

Not here: what a likelihood is (`glow.py`, `pixelcnn.py`). The loss is -log2 p(x, y) per value of
an image. The rows and the noise of a step depend on the seed and the number of the step only.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

CLIP = 1.0  # largest norm of a gradient, in bits per dimension
SAVE_STEPS = 200  # between two checkpoints


def redraw(variables: list[tf.Variable], seed: int) -> None:
    """Draw first weights by `seed`, as Glorot and Bengio do; those that are zero stay zero."""
    rng = np.random.default_rng(seed)
    for variable in variables:
        if len(variable.shape) > 1 and variable.numpy().any():
            *window, fan_in, fan_out = variable.shape
            spread = np.sqrt(2.0 / (np.prod(window) * (fan_in + fan_out)))
            variable.assign(rng.normal(0.0, spread, variable.shape).astype(np.float32))


def fit(
    model: Any,
    x: np.ndarray,
    y: np.ndarray | None,
    validation: np.ndarray | None,
    verbose: bool,
    checkpoint: Path | None,
    on_epoch: Callable[[dict[str, float]], None] | None,
) -> list[dict[str, float]]:
    """See `LikelihoodModel.fit`."""
    import tf_keras

    labels = _check_labels(model, x, y)
    size = min(model.batch_size, len(x))
    steps = len(x) // size
    rate = tf_keras.optimizers.schedules.CosineDecay(model.learning_rate, model.epochs * steps)
    optimizer = tf_keras.optimizers.Adam(rate, global_clipnorm=CLIP)  # applies the masks as well
    optimizer.build(model._learned)
    manager = None
    if checkpoint is not None:
        state = tf.train.Checkpoint(optimizer=optimizer, arrays=model.tf_variables)
        manager = tf.train.CheckpointManager(state, str(checkpoint), max_to_keep=1)
        if manager.latest_checkpoint:
            state.restore(manager.latest_checkpoint).expect_partial()
    update = _make_update(model, optimizer)
    lines: list[dict[str, float]] = []
    try:
        for epoch in range(int(optimizer.iterations) // steps, model.epochs):
            begin, losses = time.monotonic(), []
            order = np.random.default_rng([model.seed, epoch]).permutation(len(x))
            for step in range(int(optimizer.iterations), (epoch + 1) * steps):
                rows = order[(step % steps) * size :][:size]
                losses.append(update(x[rows], labels[rows], step))
                if manager is not None and step % SAVE_STEPS == 0:
                    manager.save()
            lines.append(_measure(model, epoch, losses, validation, begin))
            if verbose:
                numbers = "  ".join(f"{k} {v:.3f}" for k, v in lines[-1].items() if k != "epoch")
                print(f"epoch {epoch + 1}/{model.epochs}  {numbers}", flush=True)
            if on_epoch is not None:
                on_epoch(lines[-1])
    except KeyboardInterrupt:
        if manager is not None:
            manager.save()
        raise
    return lines


def _measure(
    model: Any, epoch: int, losses: list[float], validation: np.ndarray | None, begin: float
) -> dict[str, float]:
    """The line of an epoch."""
    line = {"epoch": epoch, "bits_per_dim": float(np.mean(losses))}
    if validation is not None:
        line["val_bits_per_dim"] = float(model.bits_per_dim(validation).mean())
    return {**line, "seconds": time.monotonic() - begin}


def _make_update(model: Any, optimizer: Any) -> Callable[..., float]:
    """A training step, from rows, labels and the number of the step to the loss."""
    bits = np.prod(model._shape) * np.log(2.0)

    @tf.function(reduce_retracing=True, autograph=False)
    def update(x: tf.Tensor, y: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        seed = tf.stack([tf.constant(model.seed), step])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(model._learned)
            loss = -tf.reduce_mean(model.training_log_mass(x, y, seed)) / bits
        gradients = tape.gradient(loss, model._learned)
        optimizer.apply_gradients(zip(gradients, model._learned))
        return loss

    return lambda x, y, step: float(update(x, y, tf.constant(step, tf.int32)))


def _check_labels(model: Any, x: np.ndarray, y: np.ndarray | None) -> np.ndarray:
    """The labels as integers, zeros without classes; sets the prior of the classes."""
    if not model.classes:
        return np.zeros(len(x), np.int32)
    if y is None or len(y) != len(x) or np.min(y) < 0 or np.max(y) >= model.classes:
        raise ValueError(
            f"A model of {model.classes} classes needs a label from 0 to {model.classes - 1} for "
            f"each row. Received: {'no labels' if y is None else np.unique(y)[:10]}"
        )
    counts = np.bincount(y, minlength=model.classes) + 1.0  # no class is impossible
    model.assign(log_prior=np.log(counts / counts.sum()).astype(np.float32))
    return np.asarray(y, np.int32)

"""Logits read as energies: pure functions from tensors to tensors.

Not here: training, sampling, anything with state.
p(x, y) = exp(f(x)[y]) / Z, so E(x, y) = -f(x)[y] and E(x) = -logsumexp_y f(x)[y].
"""

from collections.abc import Callable

import tensorflow as tf

LogitsFn = Callable[[tf.Tensor], tf.Tensor]

OOD_SCORES = ("log_density", "gradient_norm", "max_probability")


def log_density(logits: tf.Tensor, y: tf.Tensor | None = None) -> tf.Tensor:
    """log p(x) + log Z, or log p(x, y) + log Z when `y` is given; `[batch]`.

    Both up to the same unknown constant log Z. As a function of x, log p(x | y) differs from
    log p(x, y) by a constant only, so its gradient is the gradient of this.
    """
    logits = tf.cast(logits, tf.float32)
    if y is None:
        return tf.reduce_logsumexp(logits, axis=-1)
    return tf.gather(logits, y, axis=-1, batch_dims=1)


def energy(logits: tf.Tensor) -> tf.Tensor:
    """E(x) = -logsumexp_y f(x)[y]; `[batch]`."""
    return -log_density(logits)


def joint_energy(logits: tf.Tensor, y: tf.Tensor | None = None) -> tf.Tensor:
    """E(x, y) = -f(x)[y]; `[batch]`, or `[batch, classes]` for every class when `y` is None."""
    return -tf.cast(logits, tf.float32) if y is None else -log_density(logits, y)


def conditional_log_probability(logits: tf.Tensor) -> tf.Tensor:
    """log p(y | x), where Z cancels: the ordinary classifier; `[batch, classes]`."""
    return tf.nn.log_softmax(tf.cast(logits, tf.float32), axis=-1)


def input_score(logits_fn: LogitsFn, x: tf.Tensor, y: tf.Tensor | None = None) -> tf.Tensor:
    """The score d log p(x) / dx, or d log p(x | y) / dx when `y` is given; the shape of `x`."""
    return gradient(lambda x: log_density(logits_fn(x), y), x)


def gradient(function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """The gradient of `function`, which returns a value for each row, with respect to `x`."""
    return value_and_gradient(function, x)[1]


def value_and_gradient(
    function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The values of `function`, one for each row of `x`, and their gradient with respect to `x`."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        value = function(x)
    derivative = tape.gradient(value, x)
    if derivative is None:
        raise ValueError(
            "The backbone has no gradient with respect to its inputs, which must be floats."
        )
    return value, derivative


def log_density_gradient(logits: tf.Tensor) -> tf.Tensor:
    """d log p(x) / d logits, p(y | x): the graph of TensorFlow's own gradient of log-sum-exp has
    operators that LiteRT lacks."""
    return tf.nn.softmax(logits)


def gradient_norm(logits_fn: LogitsFn, x: tf.Tensor, scale: tf.Tensor | float = 1.0) -> tf.Tensor:
    """||d log p(x) / dx||, `[batch]`; `scale` is the unit of each input feature."""
    return logits_density_and_norm(logits_fn, x, scale)[2]


def logits_density_and_norm(
    logits_fn: LogitsFn, x: tf.Tensor, scale: tf.Tensor | float = 1.0
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Logits, log density and gradient norm from one forward and backward pass."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        logits = tf.cast(logits_fn(x), tf.float32)
    score = scale * tape.gradient(logits, x, log_density_gradient(logits))
    return logits, log_density(logits), tf.norm(tf.reshape(score, [tf.shape(x)[0], -1]), axis=-1)


def ood_score(
    logits_fn: LogitsFn,
    x: tf.Tensor,
    kind: str = "gradient_norm",
    scale: tf.Tensor | float = 1.0,
) -> tf.Tensor:
    """How typical `x` is, higher for inputs like the training data; `[batch]`.

    `gradient_norm` is -||d log p(x) / dx||, `log_density` is log p(x) + log Z and
    `max_probability` is max_y p(y | x).
    """
    check_ood_kind(kind)
    if kind == "gradient_norm":
        return -gradient_norm(logits_fn, x, scale)
    logits = logits_fn(x)
    if kind == "log_density":
        return log_density(logits)
    return tf.exp(tf.reduce_max(conditional_log_probability(logits), axis=-1))


def check_ood_kind(kind: str) -> None:
    """Raise `ValueError` unless `kind` names one of `OOD_SCORES`."""
    if kind not in OOD_SCORES:
        raise ValueError(f"`kind` must be one of {OOD_SCORES}. Received: kind={kind!r}")

"""Every use of a private name of Keras or TensorFlow, each with its reason.

Seen in Keras 3.15 and TensorFlow 2.21. `tests/_tf/test_private.py` fails in words when an upgrade
removes or changes one of them.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf import distribution
from jem_tf._tf.errors import short_errors

# Keras exports no name for the class of models made by `keras.Model(inputs, outputs)`.
Functional = keras.src.models.Functional

# Nor for the base class of its layers that augment, crop or resize images.
ImageLayer = keras.layers.RandomFlip.__base__

# Nor for that of its convolutions.
Convolution = keras.layers.Conv2D.__base__


def is_layer_graph(model: Any) -> bool:
    """Whether `model` only chains Keras layers: a Sequential or functional model."""
    return isinstance(model, (keras.Sequential, Functional))


def flatten_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """All layers of `model`, those inside other layers included.

    `model.layers` lists direct children only and hides layers kept in attributes of layers.
    """
    return list(model._flatten_layers())


def producer(tensor: Any) -> tuple[Any, list[Any]]:
    """The layer or operation whose output the symbolic `tensor` is, and its inputs.

    `layer.input` of a model inside another one is its own input, and not that of the call.
    """
    history = tensor._keras_history
    return history.operation, history.operation._inbound_nodes[history.node_index].input_tensors


def takes_training_argument(layer: keras.layers.Layer) -> bool:
    """Whether the `call` of `layer` has a `training` argument; Keras knows, and has no public way
    to ask."""
    return layer._call_has_training_arg


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer inside a `LossScaleOptimizer`, or `optimizer` itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def learning_rate(optimizer: Any) -> Any:
    """The learning rate of `optimizer` as it was set: a variable, or the schedule itself.

    The public `learning_rate` of a schedule is its present value.
    """
    return inner_optimizer(optimizer)._learning_rate


def replica_component(variable: Any) -> tf.Variable:
    """The component of a distributed variable that belongs to the current replica.

    Reading a `SyncOnRead` variable publicly gives its value, which cannot be assigned to.
    """
    return variable._get()


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Let the running `fit` continue at `epoch`, as Keras' own `BackupAndRestore` does."""
    model._initial_epoch = epoch


def build_compiled_metrics(model: keras.Model, batch: Any) -> None:
    """Create the variables of the metrics of `compile`, which Keras does in its first step."""
    metrics = model._compile_metrics
    if metrics is not None and not metrics.built:
        model._symbolic_build(data_batch=batch)


def is_inside_fit(options: dict[str, Any]) -> bool:
    """Whether `fit` has called `evaluate` with these options, for its validation data."""
    return "_use_cached_eval_dataset" in options


class TrainableModel(keras.Model):
    """A `keras.Model` whose `fit` also works with more than one worker (keras issue 20585)."""

    def check_compiled(self) -> None:
        """Raise `ValueError` if `compile` was not called, or was given a loss."""
        self._assert_compile_called("fit")
        if self._compile_loss is not None:
            raise ValueError(
                "JEM has its own loss, -log p(x, y): leave `loss` out of `compile`. "
                f"Received: loss={self.loss!r}"
            )

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`; wrong labels are a `ValueError` of one line."""
        with short_errors():
            return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.evaluate`; wrong labels are a `ValueError` of one line."""
        with short_errors():
            return super().evaluate(*args, **kwargs)

    @property
    def loss_tracker(self) -> keras.metrics.Mean:
        """The mean that `fit` shows as `loss`; updated by Keras only for losses of `compile`."""
        return self._loss_tracker

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # Keras reduces the first batch over workers, and their shares may differ in size.
        if iterator is not None and distribution.is_multi_worker(self.distribute_strategy):
            _, _, batches = next(iter(iterator))
            local = self.distribute_strategy.experimental_local_results
            data_batch = tf.nest.map_structure(lambda v: local(v)[0], next(batches))
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)

    def shape_logs(self, logs: dict[str, Any]) -> dict[str, Any]:
        """`logs` of a step as Keras reduces them: with more than one worker it takes means over
        axis 0, which scalars do not have."""
        if not distribution.is_multi_worker(self.distribute_strategy):
            return logs
        return {name: tf.reshape(value, [1]) for name, value in logs.items()}

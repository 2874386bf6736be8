"""State whose shape comes from data, saved and restored with a Keras model.

Not here: trainable weights. A `State` holds plain `tf.Variable`s, so they stay out of
`model.weights` and of every optimizer, yet travel in `.keras` and `.weights.h5` files.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf import distribution as distribute

CHUNK = 2048  # rows that are drawn at a time


class State(keras.layers.Layer):
    """A layer without a call: named arrays that exist once data has been seen.

    Arrays named in `per_replica` have a first axis over replicas when assigned and saved; each
    replica of a `tf.distribute` strategy keeps and changes its own part.
    """

    per_replica: tuple[str, ...] = ()

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.built = True
        self._arrays: dict[str, tf.Variable] = {}
        self._gathered: dict[str, np.ndarray] | None = None

    def __getitem__(self, name: str) -> tf.Variable:
        """The variable `name`, in a replica its own component."""
        variable = self._arrays[name]
        if isinstance(variable, tf.distribute.DistributedValues) and not _cross_replica():
            return variable._get()
        return variable

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def assign(self, **arrays: np.ndarray) -> None:
        """Create or overwrite variables; call it eagerly and outside `strategy.run`."""
        for name, value in arrays.items():
            local = name in self.per_replica
            variable = self._variable(name, value[0] if local else value)
            parts = components(variable)
            mine = value[_first_replica(variable) :] if local else [value] * len(parts)
            for part, part_value in zip(parts, mine):
                part.assign(part_value)

    def fill(
        self, name: str, shape: tuple[int, ...], draw: Callable[[int, int, int], tf.Tensor]
    ) -> None:
        """Create or overwrite what each replica has of `name`, some rows after the others, so that
        there is never a second copy of all: `draw(replica, chunk, rows)`."""
        variable = self._variable(name, tf.zeros(shape))
        for replica, part in enumerate(components(variable), start=_first_replica(variable)):
            for chunk, begin in enumerate(range(0, shape[0], CHUNK)):
                end = min(begin + CHUNK, shape[0])
                where = tf.range(begin, end)[:, tf.newaxis]
                part.scatter_nd_update(where, draw(replica, chunk, end - begin))

    def _variable(self, name: str, first: Any) -> tf.Variable:
        """The variable `name`, made with the value `first` if there is none of this shape."""
        variable = self._arrays.get(name)
        if variable is None or variable.shape != first.shape:
            local, sync = name in self.per_replica, tf.VariableSynchronization
            variable = tf.Variable(
                first,
                trainable=False,
                name=name,
                synchronization=sync.ON_READ if local else sync.AUTO,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self._arrays[name] = variable
        return variable

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array, with the replicas' parts stacked on a first axis.

        With more than one worker, all of them must ask, as they exchange their parts.
        """
        if self._gathered is not None:
            return self._gathered
        return {
            name: _stacked(variable)
            if name in self.per_replica
            else components(variable)[0].numpy()
            for name, variable in self._arrays.items()
        }

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Have the parts of all replicas at hand: inside, `arrays` needs no other worker."""
        self._gathered = self.arrays()
        try:
            yield
        finally:
            self._gathered = None

    @property
    def tf_variables(self) -> list[tf.Variable]:
        """The variables themselves, for those who export a graph that reads them."""
        return list(self._arrays.values())

    def save_own_variables(self, store: Any) -> None:
        for name, value in self.arrays().items():
            store[name] = value

    def load_own_variables(self, store: Any) -> None:
        self.assign(**self.restored({name: np.asarray(store[name]) for name in list(store.keys())}))

    def restored(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What to assign when `arrays` come from a file."""
        return arrays


def components(variable: tf.Variable) -> tuple[tf.Variable, ...]:
    """The per-replica parts of a variable; just itself without a strategy."""
    return getattr(variable, "values", (variable,))


def _stacked(variable: tf.Variable) -> np.ndarray:
    strategy: Any = getattr(variable, "distribute_strategy", None)
    if not distribute.is_multi_worker(strategy):
        parts = [part.numpy() for part in components(variable)]
        return parts[0][np.newaxis] if len(parts) == 1 else np.stack(parts)

    @tf.function
    def gathered() -> tf.Tensor:
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_gather(
                tf.convert_to_tensor(variable._get())[tf.newaxis], axis=0
            )
        )

    return strategy.experimental_local_results(gathered())[0].numpy()


def _first_replica(variable: tf.Variable) -> int:
    """The number of this worker's first replica."""
    strategy = getattr(variable, "distribute_strategy", None)
    return distribute.worker(strategy) * len(components(variable))


def sum_replicas(value: tf.Tensor) -> tf.Tensor:
    """The sum of `value` over all replicas, in each of them."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def _cross_replica() -> bool:
    return tf.distribute.in_cross_replica_context()

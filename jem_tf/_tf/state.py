"""Arrays that belong to a model and its training: counters, ranges, chains.

Not weights: plain `tf.Variable`s, so they stay out of `model.weights` and of every optimizer, yet
are saved in `.keras` and `.weights.h5` files.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf import distribution
from jem_tf._tf.private import replica_component

CHUNK = 2048  # rows that `fill` draws at a time


class State(keras.layers.Layer):
    """A layer without a `call`: named arrays that exist once data has been seen.

    Arrays named in `per_replica` have a first axis over replicas when assigned and saved; each
    replica of a `tf.distribute` strategy keeps and changes its own part.

    Args:
        fixed_shapes: skip arrays of another shape in a file: they are those of another version.
    """

    per_replica: tuple[str, ...] = ()

    def __init__(self, fixed_shapes: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.built = True
        self.fixed_shapes = fixed_shapes
        self._arrays: dict[str, tf.Variable] = {}
        self._gathered: dict[str, np.ndarray] | None = None

    def __getitem__(self, name: str) -> tf.Variable:
        """The variable `name`; inside a replica, that replica's component."""
        variable = self._arrays[name]
        distributed = isinstance(variable, tf.distribute.DistributedValues)
        if distributed and not tf.distribute.in_cross_replica_context():
            return replica_component(variable)
        return variable

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def number(self, name: str) -> Any:
        """The scalar `name` as a Python number; call it outside of graphs."""
        return replica_components(self._arrays[name])[0].numpy().item()

    def assign(self, **arrays: Any) -> None:
        """Create or overwrite variables; call it eagerly and outside `strategy.run`."""
        for name, value in arrays.items():
            local = name in self.per_replica
            variable = self._variable(name, value[0] if local else value)
            components = replica_components(variable)
            values = value[_first_replica(variable) :] if local else [value] * len(components)
            for component, component_value in zip(components, values):
                component.assign(component_value)

    def fill(
        self, name: str, shape: tuple[int, ...], draw: Callable[[int, int, int], tf.Tensor]
    ) -> None:
        """Create or overwrite `name` on each replica with rows of `draw(replica, chunk, rows)`.

        Rows are drawn `CHUNK` at a time, so that memory never holds a second copy of all of them.
        """
        variable = self._variable(name, tf.zeros(shape))
        first = _first_replica(variable)
        for replica, component in enumerate(replica_components(variable), start=first):
            for chunk, begin in enumerate(range(0, shape[0], CHUNK)):
                end = min(begin + CHUNK, shape[0])
                indices = tf.range(begin, end)[:, tf.newaxis]
                component.scatter_nd_update(indices, draw(replica, chunk, end - begin))

    def _variable(self, name: str, value: Any) -> tf.Variable:
        """The variable `name`, created with `value` if there is none of this shape."""
        variable = self._arrays.get(name)
        if variable is None or variable.shape != value.shape:
            local, sync = name in self.per_replica, tf.VariableSynchronization
            variable = tf.Variable(
                value,
                trainable=False,
                name=name,
                synchronization=sync.ON_READ if local else sync.AUTO,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self._arrays[name] = variable
        return variable

    def clear(self) -> None:
        """Forget all arrays."""
        self._arrays.clear()

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array, with the parts of the replicas stacked on a first axis.

        With more than one worker, all of them must call this, as they exchange their parts.
        """
        if self._gathered is not None:
            return self._gathered
        return {
            name: _stack_replicas(variable)
            if name in self.per_replica
            else replica_components(variable)[0].numpy()
            for name, variable in self._arrays.items()
        }

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather the parts of all replicas once: inside, `arrays` needs no other worker."""
        self._gathered = self.arrays()
        try:
            yield
        finally:
            self._gathered = None

    @property
    def tf_variables(self) -> list[tf.Variable]:
        """The variables themselves, for exported graphs that read them and for snapshots."""
        return list(self._arrays.values())

    def save_own_variables(self, store: Any) -> None:
        for name, value in self.arrays().items():
            store[name] = value

    def load_own_variables(self, store: Any) -> None:
        arrays = {name: np.asarray(store[name]) for name in list(store.keys())}
        if self.fixed_shapes:
            known = {k: v for k, v in self._arrays.items() if k in arrays}
            outdated = [k for k, v in known.items() if v.shape != arrays[k].shape]
            arrays = {k: v for k, v in arrays.items() if k not in outdated}
        self.assign(**self.convert_saved(arrays))

    def convert_saved(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What to assign when `arrays` come from a file."""
        return arrays


def replica_components(variable: tf.Variable) -> tuple[tf.Variable, ...]:
    """The components of a distributed variable on this worker; the variable itself otherwise."""
    return getattr(variable, "values", (variable,))


def _stack_replicas(variable: tf.Variable) -> np.ndarray:
    strategy: Any = getattr(variable, "distribute_strategy", None)
    if not distribution.is_multi_worker(strategy):
        parts = [component.numpy() for component in replica_components(variable)]
        return parts[0][np.newaxis] if len(parts) == 1 else np.stack(parts)

    @tf.function
    def gather() -> tf.Tensor:
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_gather(
                tf.convert_to_tensor(replica_component(variable))[tf.newaxis], axis=0
            )
        )

    return strategy.experimental_local_results(gather())[0].numpy()


def _first_replica(variable: tf.Variable) -> int:
    """The number of this worker's first replica."""
    strategy = getattr(variable, "distribute_strategy", None)
    return distribution.worker_index(strategy) * len(replica_components(variable))

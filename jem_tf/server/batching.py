"""Batching: a signature whose concurrent calls TensorFlow runs together.

Not here: the settings (`configuration.py`), splitting of large requests (`servable.py`).
"""

import math
from itertools import accumulate
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.server.graphs import GraphFunction


class BatchedFunction:
    """A signature for many threads; TensorFlow concatenates their rows into one call.

    ```python
    batched = BatchedFunction(loaded.signatures["logits"], Batching(), "digits/1/logits")
    batched(inputs=x)["logits"]
    ```

    Args:
        function: a signature of a loaded SavedModel.
        batching: the settings, a `configuration.Batching`.
        queue: a name that no other function has.
    """

    def __init__(self, function: Any, batching: Any, queue: str):
        specs = function.structured_input_signature[1]
        self._inputs, packing = sorted(specs), _Packing(function.structured_outputs)
        self.max_batch_size = batching.max_batch_size
        self.runs, self.rows = (tf.Variable(0, dtype=tf.int64) for _ in range(2))

        signature = [specs[key] for key in self._inputs]

        @tf.function(autograph=False, input_signature=signature)
        def run_batch(*tensors: tf.Tensor) -> list[tf.Tensor]:
            self.runs.assign_add(1)
            self.rows.assign_add(tf.shape(tensors[0], tf.int64)[0])
            return packing.pack(function(**dict(zip(self._inputs, tensors))))

        batch = run_batch.get_concrete_function()

        @tf.function(autograph=False, input_signature=signature)
        def enqueue(*tensors: tf.Tensor) -> list[tf.Tensor]:
            # `tf.nondifferentiable_batch_function` has no argument for the queue: all functions
            # share one, and a batch may mix requests for different functions.
            return tf.raw_ops.BatchFunction(
                in_tensors=tensors,
                captured_tensors=batch.captured_inputs,
                f=batch,
                num_batch_threads=batching.threads,
                max_batch_size=batching.max_batch_size,
                batch_timeout_micros=batching.timeout_micros,
                Tout=[output.dtype for output in batch.outputs],
                max_enqueued_batches=batching.max_enqueued,
                allowed_batch_sizes=list(batching.allowed_sizes),
                shared_name=f"jem_tf {batching}",  # one thread pool for all functions
                batching_queue=queue,
                enable_large_batch_splitting=False,
            )

        names = [str(i) for i in range(len(batch.outputs))]
        self._enqueue = GraphFunction(enqueue.get_concrete_function(), self._inputs, names)
        self._packing = packing

    def __call__(self, **tensors: tf.Tensor) -> dict[str, np.ndarray]:
        return self._packing.unpack([v.numpy() for v in self._enqueue(**tensors).values()])

    def reset_counts(self) -> None:
        """Set the numbers of runs and rows to zero."""
        self.runs.assign(0)
        self.rows.assign(0)


class _Packing:
    """Outputs of one type side by side in a matrix: a batch of many outputs is costly to split."""

    def __init__(self, outputs: dict[str, Any]):
        self._groups: dict[Any, list[str]] = {}
        self._shapes = {key: tuple(outputs[key].shape[1:]) for key in outputs}
        for key in sorted(outputs):
            alone = None in self._shapes[key]
            self._groups.setdefault(key if alone else outputs[key].dtype, []).append(key)

    def pack(self, results: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        """One tensor for each group of outputs."""
        packed = []
        for keys in self._groups.values():
            parts = [results[key] for key in keys]
            if len(parts) > 1:
                parts = [tf.reshape(p, [-1, math.prod(p.shape[1:])]) for p in parts]
            packed.append(tf.concat(parts, axis=1) if len(parts) > 1 else parts[0])
        return packed

    def unpack(self, packed: list[np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs by name."""
        results = {}
        for keys, values in zip(self._groups.values(), packed):
            if len(keys) == 1:
                results[keys[0]] = values
                continue
            ends = list(accumulate(math.prod(self._shapes[key]) for key in keys))
            for key, part in zip(keys, np.split(values, ends[:-1], axis=1)):
                results[key] = part.reshape(len(values), *self._shapes[key])
        return results


def can_batch(definition: Any) -> bool:
    """Return whether every input and output of a `SignatureDef` has a free first dimension."""
    infos = [*definition.inputs.values(), *definition.outputs.values()]
    return bool(definition.inputs) and all(
        not i.tensor_shape.unknown_rank and i.tensor_shape.dim and i.tensor_shape.dim[0].size == -1
        for i in infos
    )

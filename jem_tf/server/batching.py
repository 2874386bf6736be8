"""Batching: a signature whose concurrent calls TensorFlow runs together.

Not here: the settings (`configuration.py`), splitting of large requests (`servable.py`).
"""

from typing import Any

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
        self._inputs, self._outputs = sorted(specs), sorted(function.structured_outputs)
        self.max_batch_size = batching.max_batch_size
        self.runs, self.rows = (tf.Variable(0, dtype=tf.int64) for _ in range(2))

        signature = [specs[key] for key in self._inputs]

        @tf.function(autograph=False, input_signature=signature)
        def run_batch(*tensors: tf.Tensor) -> list[tf.Tensor]:
            self.runs.assign_add(1)
            self.rows.assign_add(tf.shape(tensors[0], tf.int64)[0])
            results = function(**dict(zip(self._inputs, tensors)))
            return [results[key] for key in self._outputs]

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

        self._enqueue = GraphFunction(enqueue.get_concrete_function(), self._inputs, self._outputs)

    def __call__(self, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._enqueue(**tensors)

    def reset_counts(self) -> None:
        """Set the numbers of runs and rows to zero."""
        self.runs.assign(0)
        self.rows.assign(0)


def can_batch(definition: Any) -> bool:
    """Return whether every input and output of a `SignatureDef` has a free first dimension."""
    infos = [*definition.inputs.values(), *definition.outputs.values()]
    return bool(definition.inputs) and all(
        not i.tensor_shape.unknown_rank and i.tensor_shape.dim and i.tensor_shape.dim[0].size == -1
        for i in infos
    )

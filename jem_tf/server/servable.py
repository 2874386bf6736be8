"""One version of a SavedModel in memory: its signatures, checked, and batched if wanted.

Not here: which versions there are (`manager.py`), how requests come (`grpc_api.py`, `rest_api.py`).
"""

import gc
import itertools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from jem_tf.server.errors import RequestError, invalid, of_tensorflow

DEFAULT_SIGNATURE = "serving_default"
WARMUP = Path("assets.extra") / "tf_serving_warmup_requests"
WARMUP_RECORDS = 1000  # at most, as TF Serving
INIT = "__saved_model_init_op"
_numbers = itertools.count()  # a version that is loaded again gets queues of its own

Arrays = dict[str, np.ndarray]


class Servable:
    """A loaded version; `run` is safe from many threads.

    ```python
    servable = Servable("digits", 1, Path("saved_models/digits/1"))
    servable.run("ood_score", {"inputs": x})["gradient_norm"]
    ```
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: Path,
        batching: Any = None,
        tags: Collection[str] = ("serve",),
    ):
        self.name, self.version, self.path = name, version, path
        self.signature_defs = _signature_defs(path, set(tags))
        self._loaded = tf.saved_model.load(str(path), tags=list(tags))
        self._functions: dict[str, Callable[..., dict[str, tf.Tensor]]] = {}
        self._batched: dict[str, _Batched] = {}
        self._takes = {
            signature: {name: _Input(name, info) for name, info in definition.inputs.items()}
            for signature, definition in self.signature_defs.items()
        }
        for signature, function in self._loaded.signatures.items():
            self._functions[signature] = function
            queue = f"{name}/{version}/{signature}/{next(_numbers)}"
            if batching is not None and _can_batch(self.signature_defs[signature]):
                self._batched[signature] = _Batched(function, batching, queue)

    def signature(self, name: str) -> Any:
        """The `SignatureDef` of `name`; `RequestError` if there is none."""
        found = self.signature_defs.get(name or DEFAULT_SIGNATURE)
        if found is None or (name or DEFAULT_SIGNATURE) not in self._functions:
            raise RequestError("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
        return found

    def check_names(
        self, signature: str, inputs: Collection[str], outputs: Collection[str] = ()
    ) -> None:
        """`RequestError` unless these are the inputs of a signature, and outputs of it."""
        _check_names(inputs, self.signature(signature), outputs)

    def run(
        self, signature: str, inputs: Arrays, outputs: Collection[str] = ()
    ) -> dict[str, np.ndarray]:
        """The outputs of a signature, or those named, after a check of its inputs."""
        signature = signature or DEFAULT_SIGNATURE
        self.check_names(signature, inputs, outputs)
        takes = self._takes[signature]
        tensors = {name: takes[name].tensor(value) for name, value in inputs.items()}
        results = self._call(signature, tensors)
        wanted = outputs or results
        return {key: results[key].numpy() for key in wanted}

    def _call(self, signature: str, tensors: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        batched = self._batched.get(signature)
        sizes = {t.shape[0] for t in tensors.values() if t.shape.rank}
        if batched is not None and len(sizes) == 1 and sizes != {0}:
            (rows,), most = sizes, batched.most
            if rows > most:
                parts = [
                    self._call(signature, {k: t[i : i + most] for k, t in tensors.items()})
                    for i in range(0, rows, most)
                ]
                return {k: tf.concat([part[k] for part in parts], 0) for k in parts[0]}
            try:
                return batched(**tensors)
            except tf.errors.UnavailableError as error:
                raise RequestError("RESOURCE_EXHAUSTED", error.message) from error
            except tf.errors.OpError:
                pass  # perhaps because of another request in the batch: alone, we will see
        try:
            return self._functions[signature](**tensors)
        except tf.errors.OpError as error:
            raise of_tensorflow(error) from error

    def executed(self) -> dict[str, tuple[int, int]]:
        """How often each batched signature ran, and on how many rows."""
        return {k: (int(b.runs.numpy()), int(b.rows.numpy())) for k, b in self._batched.items()}

    def count_anew(self) -> None:
        """Forget the runs so far, which were warming up."""
        for batched in self._batched.values():
            batched.runs.assign(0)
            batched.rows.assign(0)

    def warmup_records(self) -> Any:
        """The `PredictionLog` records that came with the model."""
        file = self.path / WARMUP
        if not file.is_file():
            return
        from tensorflow_serving.apis import prediction_log_pb2

        records = tf.data.TFRecordDataset(str(file)).take(WARMUP_RECORDS)
        for record in records.as_numpy_iterator():
            yield prediction_log_pb2.PredictionLog.FromString(record)

    def close(self) -> None:
        """Let go of the memory."""
        self._functions, self._batched, self._loaded = {}, {}, None
        gc.collect()


def _signature_defs(path: Path, tags: set[str]) -> dict[str, Any]:
    file = path / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for graph in saved.meta_graphs:
        if set(graph.meta_info_def.tags) == tags:
            return {k: v for k, v in graph.signature_def.items() if k != INIT}
    raise ValueError(f"{str(file)!r} has no graph with tags {sorted(tags)}")


def _can_batch(definition: Any) -> bool:
    """Whether every input and output has a first dimension of any size."""
    infos = [*definition.inputs.values(), *definition.outputs.values()]
    return bool(definition.inputs) and all(
        not i.tensor_shape.unknown_rank and i.tensor_shape.dim and i.tensor_shape.dim[0].size == -1
        for i in infos
    )


class _Batched:
    """A function for many threads, whose rows TensorFlow runs together."""

    def __init__(self, function: Any, batching: Any, name: str):
        specs = function.structured_input_signature[1]
        self._inputs, self._outputs = sorted(specs), sorted(function.structured_outputs)
        self.most = batching.max_batch_size
        self.runs, self.rows = (tf.Variable(0, dtype=tf.int64) for _ in range(2))

        signature = [specs[key] for key in self._inputs]

        @tf.function(autograph=False, input_signature=signature)
        def together(*tensors: tf.Tensor) -> list[tf.Tensor]:
            self.runs.assign_add(1)
            self.rows.assign_add(tf.shape(tensors[0], tf.int64)[0])
            results = function(**dict(zip(self._inputs, tensors)))
            return [results[key] for key in self._outputs]

        batch = together.get_concrete_function()

        @tf.function(autograph=False, input_signature=signature)
        def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
            # `tf.nondifferentiable_batch_function` has one queue for all, and thereby puts
            # requests for different functions into one batch.
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
                shared_name=f"jem_tf {batching}",  # one pool of threads for all
                batching_queue=name,
                enable_large_batch_splitting=False,
            )

        self._call = call.get_concrete_function()

    def __call__(self, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(zip(self._outputs, self._call(*(tensors[key] for key in self._inputs))))


def _check_names(inputs: Collection[str], definition: Any, outputs: Collection[str]) -> None:
    sent, expected = set(inputs), set(definition.inputs)
    listed = lambda names: "{" + ",".join(sorted(names)) + "}"  # noqa: E731
    if len(sent) == len(expected) and sent != expected:
        raise invalid(
            f"input tensor alias not found in signature: {min(sent - expected)}. Inputs expected "
            f"to be in the set {listed(expected)}."
        )
    if sent != expected:
        raise invalid(
            "input size does not match signature: "
            f"{len(sent)}!={len(expected)} len({listed(sent)}) != len({listed(expected)}). "
            f"Sent extra: {listed(sent - expected)}. "
            f"Missing but required: {listed(expected - sent)}."
        )
    for name in outputs:
        if name not in definition.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {name} Outputs expected to be in "
                f"the set {listed(definition.outputs)}."
            )
    if len(set(outputs)) < len(outputs):
        raise invalid(f"duplicate output tensor alias: {max(outputs, key=list(outputs).count)}")


class _Input:
    """An input of a signature, to check arrays against."""

    def __init__(self, name: str, info: Any):
        self._name, self._dtype = name, tf.as_dtype(info.dtype)
        strings = self._dtype == tf.string
        self._array_type = np.dtype(object if strings else self._dtype.as_numpy_dtype)
        shape = info.tensor_shape
        sizes = [None if dim.size < 0 else dim.size for dim in shape.dim]
        self._shape = None if shape.unknown_rank else sizes

    def tensor(self, value: np.ndarray) -> tf.Tensor:
        if value.dtype != self._array_type:
            raise invalid(
                f"Expected tensor `{self._name}` of type {self._dtype.name}, got {value.dtype.name}"
            )
        shape = self._shape
        if shape is not None and (
            len(shape) != value.ndim
            or any(size not in (None, given) for size, given in zip(shape, value.shape))
        ):
            raise invalid(
                f"Tensor `{self._name}` must have the shape {shape}. Received: {list(value.shape)}"
            )
        return tf.constant(value, self._dtype)

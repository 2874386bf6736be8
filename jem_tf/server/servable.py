"""One loaded version of a SavedModel: runs its signatures on checked inputs.

Not here: which versions are loaded (`manager.py`), transports (`grpc_api.py`, `rest_api.py`).
"""

import gc
import os
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.saved_model import layout
from jem_tf.server import graphs, limits, model_files
from jem_tf.server.batching import Arrays, BatchedFunction, can_batch
from jem_tf.server.errors import RequestError, from_tensorflow, invalid

DEFAULT_SIGNATURE = "serving_default"
INIT_SIGNATURE = "__saved_model_init_op"
PART_ROWS, SAMPLE_PART_ROWS = 64, 16  # a row of `sample` takes hundreds of steps
MAX_WARMUP_RECORDS = 1000  # TF Serving's limit
FILES = "image_bytes"  # the input of signatures of jem_tf that decode images
MAX_DECODING = 2  # requests at a time, as a file of a few bytes may have millions of pixels


class Servable:
    """A loaded version; `run` is thread-safe.

    ```python
    servable = Servable("digits", 1, "saved_models/digits/1")
    servable.run("ood_score", {"inputs": x})["gradient_norm"]
    ```

    Args:
        name: of the model.
        version: its number.
        path: directory of the SavedModel.
        batching: a `configuration.Batching`; None: no batching.
        tags: of the graph to load.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: str | os.PathLike[str],
        batching: Any = None,
        tags: Collection[str] = ("serve",),
    ):
        self.name, self.version, self.path = name, version, os.fspath(path)
        meta_graph = graphs.read_meta_graph(path, tags)
        meta_graph.signature_def.pop(INIT_SIGNATURE, None)
        self.signature_defs = dict(meta_graph.signature_def)
        self._functions, self._loaded = graphs.load_functions(path, meta_graph)
        self._batched: dict[str, BatchedFunction] = {}
        self._decoders = threading.BoundedSemaphore(MAX_DECODING)
        self._part_rows: dict[str, int] = {}  # of signatures that large requests run in parts
        exported = bool(model_files.read_json(model_files.join(path, layout.METADATA)))
        self._input_specs = {
            signature: {key: _InputSpec(key, info) for key, info in definition.inputs.items()}
            for signature, definition in self.signature_defs.items()
        }
        for signature in self._functions:
            batchable = can_batch(self.signature_defs[signature])
            if batchable and batching:
                run = partial(self._run_graph, signature)
                self._batched[signature] = BatchedFunction(run, batching)
                self._part_rows[signature] = batching.max_batch_size
            elif batchable and exported:  # by jem_tf: rows do not depend on each other
                self._part_rows[signature] = PART_ROWS
        if exported and "sample" in self._part_rows:
            self._part_rows["sample"] = min(self._part_rows["sample"], SAMPLE_PART_ROWS)

    def signature(self, name: str) -> Any:
        """Return the `SignatureDef` of `name`; raise `RequestError` if there is none."""
        definition = self.signature_defs.get(name or DEFAULT_SIGNATURE)
        if definition is None or (name or DEFAULT_SIGNATURE) not in self._functions:
            raise RequestError("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
        return definition

    def check_names(
        self, signature: str, inputs: Collection[str], outputs: Collection[str] = ()
    ) -> None:
        """Raise `RequestError` unless `inputs` and `outputs` are names of the signature."""
        definition = self.signature(signature)
        _check_input_names(set(inputs), set(definition.inputs))
        seen: set[str] = set()
        for name in outputs:
            if name not in definition.outputs:
                raise invalid(
                    f"output tensor alias not found in signature: {name} Outputs expected to be in "
                    f"the set {_format_set(definition.outputs)}."
                )
            if name in seen:
                raise invalid(f"duplicate output tensor alias: {name}")
            seen.add(name)

    def run(self, signature: str, inputs: Arrays, outputs: Collection[str] = ()) -> Arrays:
        """Return the outputs of a signature (only those in `outputs`, if any are named).

        Raise `RequestError` if the inputs do not fit the signature.
        """
        signature = signature or DEFAULT_SIGNATURE
        unusual = self._check(signature, inputs, outputs)
        if unusual and not self._functions[signature].is_elementwise:
            raise self._input_specs[signature][unusual].shape_error(inputs[unusual])
        run = self.run_alone if unusual else self._run
        results = run(signature, inputs)
        return {key: results[key] for key in outputs or results}

    def submit(
        self, signature: str, inputs: Arrays, outputs: Collection[str] = ()
    ) -> "Future[Arrays] | None":
        """Return a future of all outputs of a signature, or None if `run` must be called.

        Errors of other requests in the same batch are errors of the future, too.
        """
        signature = signature or DEFAULT_SIGNATURE
        batched = self._batched.get(signature)
        if batched is None or self._check(signature, inputs, outputs):
            return None
        rows = _rows_of(inputs)
        return batched.submit(inputs) if 0 < rows <= self._part_rows[signature] else None

    def _check(self, signature: str, inputs: Arrays, outputs: Collection[str]) -> str:
        """Return the name of an input with a shape that is not declared, or ""."""
        self.check_names(signature, inputs, outputs)
        specs = self._input_specs[signature]
        for name, value in inputs.items():
            specs[name].check_type(value)
        return next((name for name, v in inputs.items() if not specs[name].has_shape(v)), "")

    def _run(self, signature: str, inputs: Arrays) -> Arrays:
        """Run a signature in parts of limited size, as long as the deadline allows."""
        rows, limit = _rows_of(inputs), self._part_rows.get(signature)
        if limit is None or rows == 0:
            return self.run_alone(signature, inputs)
        if rows > limit:
            parts = [
                self._run(signature, {k: v[i : i + limit] for k, v in inputs.items()})
                for i in range(0, rows, limit)
            ]
            return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
        if (batched := self._batched.get(signature)) is not None:
            try:
                return batched.submit(inputs).result()
            except RequestError:
                raise
            except Exception:  # another request in the batch may be the cause
                pass
        return self.run_alone(signature, inputs)

    def run_alone(self, signature: str, inputs: Arrays) -> Arrays:
        """Return all outputs of a signature for checked inputs, which are not part of a batch."""
        limits.check_deadline()
        try:
            return self._run_graph(signature or DEFAULT_SIGNATURE, inputs)
        except tf.errors.OpError as error:
            raise from_tensorflow(error) from error

    def _run_graph(self, signature: str, inputs: Arrays) -> Arrays:
        specs = self._input_specs[signature]
        tensors = {name: specs[name].to_tensor(value) for name, value in inputs.items()}
        with self._decoders if FILES in inputs else nullcontext():
            results = self._functions[signature](**tensors)
        return {key: _to_array(value) for key, value in results.items()}

    def executed(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of runs and rows of each batched signature."""
        return {key: (batched.runs, batched.rows) for key, batched in self._batched.items()}

    def reset_counts(self) -> None:
        """Set the numbers of runs and rows to zero, e.g. after warm-up."""
        for batched in self._batched.values():
            batched.reset_counts()

    def warmup_records(self) -> Iterator[Any]:
        """Yield the `PredictionLog` records that were exported with the model."""
        file = model_files.join(self.path, layout.WARMUP)
        if not model_files.exists(file):
            return
        from tensorflow_serving.apis import prediction_log_pb2

        records = tf.data.TFRecordDataset(file).take(MAX_WARMUP_RECORDS)
        for record in records.as_numpy_iterator():
            yield prediction_log_pb2.PredictionLog.FromString(record)

    def close(self) -> None:
        """Free the memory of the model."""
        for batched in self._batched.values():
            batched.close()
        if hasattr(self._loaded, "close"):
            self._loaded.close()
        self._functions, self._batched, self._loaded = {}, {}, None
        gc.collect()


def _check_input_names(sent: set[str], expected: set[str]) -> None:
    if len(sent) == len(expected) and sent != expected:
        raise invalid(
            f"input tensor alias not found in signature: {min(sent - expected)}. Inputs expected "
            f"to be in the set {_format_set(expected)}."
        )
    if sent != expected:
        raise invalid(
            "input size does not match signature: "
            f"{len(sent)}!={len(expected)} len({_format_set(sent)}) != "
            f"len({_format_set(expected)}). "
            f"Sent extra: {_format_set(sent - expected)}. "
            f"Missing but required: {_format_set(expected - sent)}."
        )


def _format_set(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"


def _rows_of(inputs: Arrays) -> int:
    """The number of rows of `inputs`; 0 if they do not have the same one."""
    sizes = {len(value) if value.ndim else 0 for value in inputs.values()}
    return sizes.pop() if len(sizes) == 1 else 0


def _to_array(result: Any) -> np.ndarray:
    value = result.numpy() if isinstance(result, tf.Tensor) else result
    return np.asarray(value, object) if isinstance(value, (bytes, str)) else np.asarray(value)


class _InputSpec:
    """Type and shape of an input of a signature."""

    def __init__(self, name: str, info: Any):
        self._name, self._dtype = name, tf.as_dtype(info.dtype)
        is_string = self._dtype == tf.string
        self._numpy_dtype = np.dtype(object if is_string else self._dtype.as_numpy_dtype)
        self._shape = tf.TensorShape(info.tensor_shape)

    def has_shape(self, value: np.ndarray) -> bool:
        """Return whether `value` has a shape that the signature declares."""
        return self._shape.is_compatible_with(value.shape)

    def shape_error(self, value: np.ndarray) -> RequestError:
        """Return the error for a value of another shape."""
        return invalid(
            f"Tensor `{self._name}` must have the shape {self._shape}. Received: "
            f"{list(value.shape)}"
        )

    def check_type(self, value: np.ndarray) -> None:
        """Raise `RequestError` if `value` does not have the type that the signature declares."""
        if value.dtype != self._numpy_dtype:
            raise invalid(
                f"Expected tensor `{self._name}` of type {self._dtype.name}, got {value.dtype.name}"
            )

    def to_tensor(self, value: np.ndarray) -> tf.Tensor:
        """Return `value` as a tensor."""
        return tf.constant(value, self._dtype)

"""What a server answers to requests of TF Serving's protocol, whatever carried them.

Not here: gRPC and REST themselves (`grpc_api.py`, `rest_api.py`).
"""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.manager import Manager, Version
from jem_tf.server.metrics import Metrics
from jem_tf.server.servable import DEFAULT_SIGNATURE, Arrays, Servable

_FIELDS = {
    np.dtype(kind): f"{field}_val"
    for kind, field in (
        ("int8", "int"),
        ("uint8", "int"),
        ("int16", "int"),
        ("int32", "int"),
        ("float32", "float"),
        ("float64", "double"),
        ("int64", "int64"),
        ("bool", "bool"),
        ("object", "string"),
    )
}
CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


class Service:
    """Answers requests from the models of a `Manager`."""

    def __init__(self, manager: Manager, metrics: Metrics, max_bytes: int = 2**26):
        self.manager, self.metrics, self.max_bytes = manager, metrics, max_bytes

    def known(self, name: str) -> str:
        """`name` if there is such a model: what is counted by it must not grow without end."""
        return name if name in self.manager.names else ""

    def run(
        self, servable: Servable, signature: str, inputs: Arrays, outputs: Collection[str] = ()
    ) -> Arrays:
        """A signature of a model, counted."""
        results = servable.run(signature, inputs, outputs)
        rows = max((len(v) for v in inputs.values() if v.ndim), default=1)
        self.metrics.answered(servable.name, signature or DEFAULT_SIGNATURE, rows, results)
        return results

    def predict(self, request: Any) -> Any:
        with self._servable(request) as servable:
            signature = request.model_spec.signature_name
            outputs = list(request.output_filter)
            servable.check_names(signature, request.inputs, outputs)
            results = self.run(servable, signature, self._arrays(request), outputs)
            response = predict_pb2.PredictResponse()
            _specify(response.model_spec, servable, signature)
        for key, value in results.items():
            _fill(response.outputs[key], value)
        return response

    def classify(self, request: Any) -> Any:
        response = classification_pb2.ClassificationResponse()
        return self._of_examples(request, response, self.classifications)

    def regress(self, request: Any) -> Any:
        response = regression_pb2.RegressionResponse()
        return self._of_examples(request, response, self.regressions)

    def _of_examples(self, request: Any, response: Any, method: Callable) -> Any:
        with self._servable(request) as servable:
            signature = request.model_spec.signature_name
            response.result.CopyFrom(method(servable, signature, _examples(request.input)))
            _specify(response.model_spec, servable, signature)
        return response

    def multi_inference(self, request: Any) -> Any:
        names = {task.model_spec.name for task in request.tasks}
        signatures = [task.model_spec.signature_name for task in request.tasks]
        if "" in names or not names:
            raise invalid("Found ModelSpec with an empty model name.")
        if len(names) > 1:
            raise invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        for signature in signatures:
            if signatures.count(signature) > 1:
                raise invalid(f"Duplicate evaluation of signature: {signature}")
        response = inference_pb2.MultiInferenceResponse()
        examples = _examples(request.input)
        with self._servable(request.tasks[0]) as servable:
            for task, signature in zip(request.tasks, signatures):
                result = response.results.add()
                if task.method_name == CLASSIFY:
                    found = self.classifications(servable, signature, examples)
                    result.classification_result.CopyFrom(found)
                elif task.method_name == REGRESS:
                    found = self.regressions(servable, signature, examples)
                    result.regression_result.CopyFrom(found)
                else:
                    raise RequestError(
                        "UNIMPLEMENTED", f"Unsupported signature method_name: {task.method_name}"
                    )
                _specify(result.model_spec, servable, signature)
        return response

    def classifications(self, servable: Servable, signature: str, examples: list[bytes]) -> Any:
        """A `ClassificationResult` for serialised examples."""
        definition = _on_examples(servable, signature)
        known = {"classes", "scores"} & set(definition.outputs)
        if not known:
            raise invalid(
                "Expected classification signature outputs to contain at least one of "
                '"classes" or "scores".'
            )
        results = self.run(servable, signature, _inputs(definition, examples), sorted(known))
        for name, array in results.items():
            if array.ndim != 2:
                raise invalid(
                    f"Expected Tensor shape: [batch_size num_classes] but got {list(array.shape)}"
                )
            if len(array) != len(examples):
                raise invalid(
                    f"Expected {name} output batch size of {len(examples)}. Got: {len(array)}"
                )
        found = classification_pb2.ClassificationResult()
        classes, scores = results.get("classes"), results.get("scores")
        for i in range(len(examples)):
            row = found.classifications.add()
            labels = [] if classes is None else classes[i]
            for j in range(len(labels) if scores is None else len(scores[i])):
                label = _label(labels[j]) if len(labels) else ""
                score = 0.0 if scores is None else float(scores[i][j])
                row.classes.add(label=label, score=score)
        return found

    def regressions(self, servable: Servable, signature: str, examples: list[bytes]) -> Any:
        """A `RegressionResult` for serialised examples."""
        definition = _on_examples(servable, signature)
        if "outputs" not in definition.outputs:
            raise invalid("No regression outputs found in SignatureDef")
        results = self.run(servable, signature, _inputs(definition, examples), ["outputs"])
        values = results["outputs"]
        if values.shape not in ((len(examples),), (len(examples), 1)):
            raise invalid(
                "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but "
                f"got {list(values.shape)}"
            )
        found = regression_pb2.RegressionResult()
        for value in values.reshape(-1):
            found.regressions.add(value=float(value))
        return found

    def metadata(self, request: Any) -> Any:
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for name in request.metadata_field:
            if name != "signature_def":
                raise invalid(f"Metadata field {name} is not supported")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        signatures = get_model_metadata_pb2.SignatureDefMap()
        with self._servable(request) as servable:
            for name, definition in servable.signature_defs.items():
                signatures.signature_def[name].CopyFrom(definition)
            response.model_spec.name = servable.name
            response.model_spec.version.value = servable.version
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(self, request: Any) -> Any:
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        response = get_model_status_pb2.GetModelStatusResponse()
        for found in self.manager.status(spec.name, version):
            row = response.model_version_status.add(version=found.number, state=found.state)
            row.status.error_code, row.status.error_message = error_number(found), found.error
        return response

    def reload(self, request: Any) -> Any:
        response = model_management_pb2.ReloadConfigResponse()
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                "ModelConfigList is currently supported"
            )
        self.manager.reload(request.config)
        response.status.error_code = 0
        return response

    def warm_up(self, servable: Servable) -> None:
        """Replay the requests that came with a model; one that fails, fails the model.

        First requests are slow, as TensorFlow then looks at a graph, and it does that on one core:
        signatures warm up side by side.
        """
        requests = defaultdict(list)
        for record in servable.warmup_records():
            kind = record.WhichOneof("log_type")
            if kind in ("predict_log", "classify_log", "regress_log"):
                request = getattr(record, kind).request
                requests[request.model_spec.signature_name].append(request)

        def replay(signature: str) -> None:
            for request in requests[signature]:
                if hasattr(request, "inputs"):
                    inputs = self._arrays(request)
                else:
                    definition = _on_examples(servable, signature)
                    inputs = _inputs(definition, _examples(request.input))
                servable.run(signature, inputs)

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(replay, requests))
        servable.count_anew()

    def _servable(self, request: Any) -> Any:
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        spec = request.model_spec
        choice = spec.WhichOneof("version_choice")
        version = spec.version.value if choice == "version" else None
        label = spec.version_label if choice == "version_label" else ""
        return self.manager.use(spec.name, version, label)

    def _arrays(self, request: Any) -> Arrays:
        """The tensors of a request, which may not claim more than a message may hold."""
        arrays, left = {}, self.max_bytes
        for name, proto in request.inputs.items():
            try:
                dtype = tf.as_dtype(proto.dtype)
                sizes = [dim.size for dim in proto.tensor_shape.dim]
                if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
                    raise invalid(f"tensor parsing error: {name}")
                left -= math.prod(sizes) * max(dtype.size or 1, 1)
                if left < 0:
                    raise invalid(f"tensor parsing error: {name} is too large: {sizes}")
                arrays[name] = tf.make_ndarray(proto)
            except (TypeError, ValueError, OverflowError, LookupError) as error:
                raise invalid(f"tensor parsing error: {name}: {error}") from error
        return arrays


def error_number(version: Version) -> int:
    """The number of a code by its name."""
    return 0 if version.code == "OK" else getattr(tf.errors, version.code, tf.errors.UNKNOWN)


def _fill(proto: Any, array: np.ndarray) -> None:
    """`array` in the field of its type, where clients of TF Serving look for it."""
    field = _FIELDS.get(array.dtype)
    if field is None:
        proto.CopyFrom(tf.make_tensor_proto(array))
        return
    proto.dtype = tf.as_dtype(array.dtype if field != "string_val" else tf.string).as_datatype_enum
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(array.ravel().tolist())


def _specify(spec: Any, servable: Servable, signature: str) -> None:
    spec.name = servable.name
    spec.version.value = servable.version
    spec.signature_name = signature or DEFAULT_SIGNATURE


def _examples(given: Any) -> list[bytes]:
    kind = given.WhichOneof("kind")
    listed = [] if kind is None else getattr(given, kind).examples
    if not listed:
        raise invalid("Input is empty.")
    context = b""
    if kind == "example_list_with_context":
        context = given.example_list_with_context.context.SerializeToString()
    return [context + example.SerializeToString() for example in listed]


def _on_examples(servable: Servable, signature: str) -> Any:
    """The signature, if it takes serialised examples."""
    definition = servable.signature_defs.get(signature or DEFAULT_SIGNATURE)
    if definition is None:
        raise invalid(f"No signature was found with the name: {signature or DEFAULT_SIGNATURE}")
    if len(definition.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    (info,) = definition.inputs.values()
    if tf.as_dtype(info.dtype) != tf.string:
        raise invalid("No inputs of serialised examples found in SignatureDef")
    return definition


def _inputs(definition: Any, examples: list[bytes]) -> Arrays:
    (name,) = definition.inputs
    array = np.empty(len(examples), object)
    array[:] = examples
    return {name: array}


def _label(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

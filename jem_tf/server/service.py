"""Answers to the requests of TF Serving's protocol, independent of the transport.

Not here: gRPC and REST themselves (`grpc_api.py`, `rest_api.py`).
"""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

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

from jem_tf.server import examples as example_io
from jem_tf.server import limits, tensor_protos
from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.manager import Manager
from jem_tf.server.metrics import Metrics
from jem_tf.server.servable import DEFAULT_SIGNATURE, Arrays, Servable
from jem_tf.server.versions import Version
from jem_tf.server.workers import Steps

MAX_SMALL = 2**14  # values of a tensor that is parsed on the event loop
CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


class Service:
    """Answers requests with the models of a `Manager`.

    ```python
    service = Service(manager, Metrics())
    service.classify(classification_request)  # a `ClassificationResponse`, or `RequestError`
    ```

    Args:
        manager: the loaded models.
        metrics: counts the requests.
        max_bytes: limit for the tensors of a request.
        max_rows: limit for the rows of a request.
        max_sample_rows: limit for the rows of a request to `sample`.
    """

    def __init__(
        self,
        manager: Manager,
        metrics: Metrics,
        max_bytes: int = 2**26,
        max_rows: int = 4096,
        max_sample_rows: int = 256,
    ):
        self.manager, self.metrics = manager, metrics
        self.max_bytes, self._max_rows, self._max_sample_rows = max_bytes, max_rows, max_sample_rows

    def metrics_name(self, name: str) -> str:
        """Return the model name to count a request by, empty for unknown models.

        Counting by any name that clients send would let the metrics grow without limit.
        """
        return name if name in self.manager.names else ""

    def run(
        self, servable: Servable, signature: str, inputs: Arrays, outputs: Collection[str] = ()
    ) -> Arrays:
        """Run a signature and count its rows."""
        self.check_rows(servable, signature, {name: v.shape for name, v in inputs.items()})
        results = servable.run(signature, inputs, outputs)
        self._record(servable, signature, inputs, results)
        return results

    def _record(self, servable: Servable, signature: str, inputs: Arrays, results: Arrays) -> None:
        rows = max((len(v) for v in inputs.values() if v.ndim), default=1)
        self.metrics.record_response(servable.name, signature or DEFAULT_SIGNATURE, rows, results)

    def check_rows(
        self, servable: Servable, signature: str, shapes: Mapping[str, Sequence[int]]
    ) -> None:
        """Raise `RequestError` if inputs of these shapes have too many rows."""
        limit = self._max_sample_rows if signature == "sample" else self._max_rows
        definition = servable.signature_defs.get(signature or DEFAULT_SIGNATURE)
        for name, info in definition.inputs.items() if definition else ():
            sizes, shape = info.tensor_shape.dim, shapes.get(name)
            declared = sizes[0].size if sizes else -1  # -1: any
            if shape and shape[0] > max(limit, declared):
                raise invalid(
                    f"A request may have up to {limit} rows. Received: {shape[0]} in {name}. Send "
                    "them in parts."
                )

    def predict(self, request: Any) -> Steps:
        """Answer a `PredictRequest`, in steps of `Workers.run_steps`."""
        with self._use_servable(request) as servable:
            signature, outputs = request.model_spec.signature_name, list(request.output_filter)
            servable.check_names(signature, request.inputs, outputs)
            shapes = {name: tensor_protos.shape(proto) for name, proto in request.inputs.items()}
            self.check_rows(servable, signature, shapes)
            parse = partial(tensor_protos.to_arrays, request.inputs, self.max_bytes)
            large = any(math.prod(shape) > MAX_SMALL for shape in shapes.values())
            inputs = (yield parse) if large else parse()
            batched = servable.submit(signature, inputs, outputs)
            try:
                results = yield batched or partial(servable.run, signature, inputs, outputs)
            except Exception as error:
                if batched is None or isinstance(error, RequestError):
                    raise
                # Another request in the batch may be the cause.
                results = yield partial(servable.run_alone, signature, inputs)
            results = {key: results[key] for key in outputs or results}
            return self._predict_response(servable, signature, inputs, results)

    def _predict_response(
        self, servable: Servable, signature: str, inputs: Arrays, results: Arrays
    ) -> Any:
        self._record(servable, signature, inputs, results)
        response = predict_pb2.PredictResponse()
        _fill_model_spec(response.model_spec, servable, signature)
        size = sum(value.nbytes for value in results.values())
        limits.reserve(3 * size, "The response")  # as a message, and serialised
        for key, value in results.items():
            tensor_protos.fill_proto(response.outputs[key], value)
        return response

    def classify(self, request: Any) -> Any:
        """Answer a `ClassificationRequest`."""
        response = classification_pb2.ClassificationResponse()
        return self._run_on_examples(request, response, self.classify_examples)

    def regress(self, request: Any) -> Any:
        """Answer a `RegressionRequest`."""
        response = regression_pb2.RegressionResponse()
        return self._run_on_examples(request, response, self.regress_examples)

    def _run_on_examples(self, request: Any, response: Any, method: Callable) -> Any:
        with self._use_servable(request) as servable:
            signature = request.model_spec.signature_name
            examples = example_io.serialize_examples(request.input)
            response.result.CopyFrom(method(servable, signature, examples))
            _fill_model_spec(response.model_spec, servable, signature)
        return response

    def multi_inference(self, request: Any) -> Any:
        """Answer a `MultiInferenceRequest`: several signatures of one model on the same input."""
        names = {task.model_spec.name for task in request.tasks}
        signatures = [task.model_spec.signature_name for task in request.tasks]
        if "" in names or not names:
            raise invalid("Found ModelSpec with an empty model name.")
        if len(names) > 1:
            raise invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        seen: set[str] = set()
        for signature in signatures:
            if signature in seen:
                raise invalid(f"Duplicate evaluation of signature: {signature}")
            seen.add(signature)
        response = inference_pb2.MultiInferenceResponse()
        examples = example_io.serialize_examples(request.input)
        with self._use_servable(request.tasks[0]) as servable:
            for task, signature in zip(request.tasks, signatures):
                result = response.results.add()
                if task.method_name == CLASSIFY:
                    classification = self.classify_examples(servable, signature, examples)
                    result.classification_result.CopyFrom(classification)
                elif task.method_name == REGRESS:
                    regression = self.regress_examples(servable, signature, examples)
                    result.regression_result.CopyFrom(regression)
                else:
                    raise RequestError(
                        "UNIMPLEMENTED", f"Unsupported signature method_name: {task.method_name}"
                    )
                _fill_model_spec(result.model_spec, servable, signature)
        return response

    def classify_examples(self, servable: Servable, signature: str, examples: list[bytes]) -> Any:
        """Return the `ClassificationResult` of serialised examples."""
        definition = example_io.example_signature(servable, signature)
        outputs = example_io.classification_outputs(definition)
        inputs = example_io.example_inputs(definition, examples)
        results = self.run(servable, signature, inputs, outputs)
        return example_io.classification_result(results, len(examples))

    def regress_examples(self, servable: Servable, signature: str, examples: list[bytes]) -> Any:
        """Return the `RegressionResult` of serialised examples."""
        definition = example_io.example_signature(servable, signature)
        outputs = example_io.regression_outputs(definition)
        inputs = example_io.example_inputs(definition, examples)
        results = self.run(servable, signature, inputs, outputs)
        return example_io.regression_result(results, len(examples))

    def metadata(self, request: Any) -> Any:
        """Answer a `GetModelMetadataRequest`."""
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for name in request.metadata_field:
            if name != "signature_def":
                raise invalid(f"Metadata field {name} is not supported")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        with self._use_servable(request) as servable:
            signatures = signature_def_map(servable)
            response.model_spec.name = servable.name
            response.model_spec.version.value = servable.version
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(self, request: Any) -> Any:
        """Answer a `GetModelStatusRequest`."""
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        spec = request.model_spec
        number = spec.version.value if spec.HasField("version") else None
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in self.manager.status(spec.name, number):
            row = response.model_version_status.add(version=version.number, state=version.state)
            row.status.error_code = _error_code(version)
            row.status.error_message = version.error
        return response

    def reload(self, request: Any) -> Any:
        """Answer a `ReloadConfigRequest`."""
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
        """Replay the warm-up requests of a model; raise `RequestError` if one fails.

        First requests are slow because TensorFlow then optimises the graph, on one core. Hence the
        signatures warm up in parallel.
        """
        requests = defaultdict(list)
        for record in servable.warmup_records():
            log_type = record.WhichOneof("log_type")
            if log_type in ("predict_log", "classify_log", "regress_log"):
                request = getattr(record, log_type).request
                requests[request.model_spec.signature_name].append(request)

        def replay(signature: str) -> None:
            for request in requests[signature]:
                if hasattr(request, "inputs"):
                    inputs = tensor_protos.to_arrays(request.inputs, self.max_bytes)
                else:
                    definition = example_io.example_signature(servable, signature)
                    examples = example_io.serialize_examples(request.input)
                    inputs = example_io.example_inputs(definition, examples)
                servable.run(signature, inputs)

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(replay, requests))
        servable.reset_counts()

    def _use_servable(self, request: Any) -> AbstractContextManager[Servable]:
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        spec = request.model_spec
        choice = spec.WhichOneof("version_choice")
        version = spec.version.value if choice == "version" else None
        label = spec.version_label if choice == "version_label" else ""
        return self.manager.use(spec.name, version, label)


def signature_def_map(servable: Servable) -> Any:
    """Return the signatures of a model as a `SignatureDefMap`."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in servable.signature_defs.items():
        signatures.signature_def[name].CopyFrom(definition)
    return signatures


def _error_code(version: Version) -> int:
    return 0 if version.code == "OK" else getattr(tf.errors, version.code, tf.errors.UNKNOWN)


def _fill_model_spec(spec: Any, servable: Servable, signature: str) -> None:
    spec.name = servable.name
    spec.version.value = servable.version
    spec.signature_name = signature or DEFAULT_SIGNATURE

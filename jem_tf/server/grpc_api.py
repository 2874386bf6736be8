"""The gRPC services of TF Serving, with health checks and reflection.

Not here: how requests are answered (`service.py`).
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from tensorflow_serving.apis import (
    model_service_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2,
    prediction_service_pb2_grpc,
)

from jem_tf.server import configuration
from jem_tf.server.errors import RequestError
from jem_tf.server.flags import Options
from jem_tf.server.service import Service

log = logging.getLogger("jem_tf.server")
SERVICES = (
    prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"].full_name,
    model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
)


class GrpcServer:
    """The gRPC side of a server.

    ```python
    server = GrpcServer(service, Options(port=8500))
    server.start()
    ```
    """

    def __init__(self, service: Service, options: Options):
        max_bytes = options.max_message_bytes
        self._server = grpc.server(
            ThreadPoolExecutor(options.grpc_max_threads, "grpc"),
            maximum_concurrent_rpcs=options.max_concurrent_requests,
            options=[
                ("grpc.max_receive_message_length", max_bytes),
                ("grpc.max_send_message_length", max_bytes),
                ("grpc.so_reuseport", 0),
                # No compression: a small message could decompress to a very large one.
                ("grpc.compression_enabled_algorithms_bitset", 1),
            ],
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            _PredictionServicer(service), self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            _ModelServicer(service), self._server
        )
        self.health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        self._address, self._tls = f"{options.host}:{options.port}", configuration.read_tls(options)

    def start(self) -> None:
        """Listen; raise `OSError` if the address is taken."""
        try:
            if self._tls is None:
                self._server.add_insecure_port(self._address)
            else:
                self._server.add_secure_port(self._address, self._tls.grpc_credentials())
        except RuntimeError as error:
            raise OSError(f"Cannot listen at {self._address}: {error}") from error
        self._server.start()
        self.set_serving(True)

    def set_serving(self, serving: bool) -> None:
        """Set what health checks report."""
        status = health_pb2.HealthCheckResponse
        for name in ("", *SERVICES):
            self.health.set(name, status.SERVING if serving else status.NOT_SERVING)

    def stop(self, seconds: float) -> None:
        """Refuse new requests, and wait up to `seconds` for those in progress."""
        self.set_serving(False)
        self._server.stop(seconds).wait()


def _handle(service: Service, method: Callable, api: str, request: Any, context: Any) -> Any:
    remaining = context.time_remaining()
    try:
        with service.metrics.request(service.metrics_name(_model_name(request)), api, "GRPC"):
            if remaining is not None and remaining <= 0:
                raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded")
            response = method(request)
            if not context.is_active():  # the client no longer waits
                raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded")
            return response
    except RequestError as error:
        context.abort(getattr(grpc.StatusCode, error.code, grpc.StatusCode.UNKNOWN), error.message)
    except Exception as error:
        log.exception("%s failed", api)
        context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__} in {api}")


def _model_name(request: Any) -> str:
    if hasattr(request, "model_spec"):
        return request.model_spec.name
    tasks = getattr(request, "tasks", None)
    return tasks[0].model_spec.name if tasks else ""


class _PredictionServicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, service: Service):
        self._service = service

    def Predict(self, request: Any, context: Any) -> Any:
        return _handle(self._service, self._service.predict, "Predict", request, context)

    def Classify(self, request: Any, context: Any) -> Any:
        return _handle(self._service, self._service.classify, "Classify", request, context)

    def Regress(self, request: Any, context: Any) -> Any:
        return _handle(self._service, self._service.regress, "Regress", request, context)

    def MultiInference(self, request: Any, context: Any) -> Any:
        method = self._service.multi_inference
        return _handle(self._service, method, "MultiInference", request, context)

    def GetModelMetadata(self, request: Any, context: Any) -> Any:
        return _handle(self._service, self._service.metadata, "GetModelMetadata", request, context)


class _ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, service: Service):
        self._service = service

    def GetModelStatus(self, request: Any, context: Any) -> Any:
        return _handle(self._service, self._service.status, "GetModelStatus", request, context)

    def HandleReloadConfigRequest(self, request: Any, context: Any) -> Any:
        return _handle(self._service, self._service.reload, "ReloadConfig", request, context)

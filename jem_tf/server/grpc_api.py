"""The gRPC services of TF Serving and of V2, with health checks and, if asked for, reflection.

Not here: how requests are answered (`service.py`), calls without a message (`grpc_timeout.py`).
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2

from jem_tf.server import access, configuration, health, limits, message_size, v2_grpc, v2_protos
from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.flags import Options
from jem_tf.server.grpc_timeout import MessageTimeout
from jem_tf.server.service import Service
from jem_tf.server.sockets import format_address
from jem_tf.server.workers import Steps, Workers

log = logging.getLogger("jem_tf.server")


class GrpcServer:
    """The gRPC side of a server, in one event loop.

    ```python
    server = GrpcServer(service, workers, Options(port=8500))
    await server.start()
    ```
    """

    def __init__(self, service: Service, workers: Workers, options: Options):
        self._service, self._workers, self._options = service, workers, options
        self._tls = configuration.read_tls(options)
        self._names: list[str] = []  # of the services

    async def start(self) -> None:
        """Listen; raise `OSError` if the address is taken."""
        options, service = self._options, self._service
        token = access.read_token(options.auth_token_file)
        max_waiting = 4 * options.max_concurrent_requests
        self._server = grpc.aio.server(
            options=channel_options(options),
            interceptors=[access.TokenInterceptor(token)] if token else [],
            maximum_concurrent_rpcs=2 * max_waiting + health.MAX_WATCHERS,
        )
        self._timeout = MessageTimeout(options.body_timeout_seconds or None, max_waiting)
        predictions = {
            "Predict": service.predict,
            "Classify": service.classify,
            "Regress": service.regress,
            "MultiInference": service.multi_inference,
            "GetModelMetadata": service.metadata,
        }
        self._add(prediction_service_pb2.DESCRIPTOR, "PredictionService", predictions)
        models = {"GetModelStatus": service.status}
        if options.enable_reload_config:
            models["HandleReloadConfigRequest"] = service.reload
        self._add(model_service_pb2.DESCRIPTOR, "ModelService", models)
        reflected = tuple(self._names)  # V2 is not in the pool that reflection describes
        self._add(v2_protos.DESCRIPTOR, v2_protos.SERVICE, v2_grpc.methods(service))
        self._health = health.Health(self._names, lambda: service.manager.ready)
        self._add_handlers(health.NAME, self._health.handlers())
        if options.enable_grpc_reflection:
            names = (*reflected, health.NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)
        self._listen(format_address(options.host, options.port))
        await self._server.start()
        self._watching = asyncio.create_task(self._health.watch_models())

    def _add(self, file: Any, name: str, methods: Mapping[str, Callable[[Any], Any]]) -> None:
        """Add the service `name` of a proto file; `methods` take and return its messages, at once
        or in steps."""
        service = file.services_by_name[name]
        self._names.append(service.full_name)
        handlers = {}
        for api, method in methods.items():
            request_type = message_factory.GetMessageClass(service.methods_by_name[api].input_type)
            answer = partial(self._answer, api, method, request_type)
            steps = inspect.isgeneratorfunction(method)
            respond = partial(self._respond, answer, steps)
            handlers[api] = grpc.unary_unary_rpc_method_handler(respond)
        self._add_handlers(service.full_name, handlers)

    def _add_handlers(self, name: str, handlers: dict[str, Any]) -> None:
        limited = {api: self._timeout.wrap(handler) for api, handler in handlers.items()}
        handler = grpc.method_handlers_generic_handler(name, limited)
        self._server.add_generic_rpc_handlers((handler,))

    def _listen(self, address: str) -> None:
        try:
            if self._tls is None:
                self._server.add_insecure_port(address)
            else:
                self._server.add_secure_port(address, self._tls.grpc_credentials())
        except RuntimeError as error:
            raise OSError(f"Cannot listen at {address}: {error}") from error

    async def stop(self, seconds: float) -> None:
        """Refuse new requests, and wait up to `seconds` for those in progress."""
        self._watching.cancel()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(seconds)

    async def _respond(
        self, answer: Callable[[bytes], Steps], has_steps: bool, message: bytes, context: Any
    ) -> Any:
        call = self._workers.call(context.time_remaining())
        try:
            call.reserve(len(message), "The message")
            in_thread = not has_steps or len(message) > limits.FREE_BYTES
            return await self._workers.run_steps(call, answer(message), in_thread)
        except RequestError as error:
            code = getattr(grpc.StatusCode, error.code, grpc.StatusCode.UNKNOWN)
            await context.abort(code, error.message)

    def _answer(self, api: str, method: Callable, request_type: Any, message: bytes) -> Steps:
        """Return the response to a serialised request, serialised, in steps."""
        try:
            if len(message) > limits.FREE_BYTES:
                size = message_size.parsed_bytes(message, request_type.DESCRIPTOR)
                limits.reserve(size, "The parsed message")
            request = request_type.FromString(message)
            name = self._service.metrics_name(_model_name(request))
            with self._service.metrics.request(name, api, "GRPC"):
                response = method(request)
                if isinstance(response, Generator):
                    response = yield from response
                return response.SerializeToString()
        except RequestError:
            raise
        except DecodeError as error:
            raise invalid(f"The message is not a {request_type.DESCRIPTOR.name}.") from error
        except Exception as error:
            log.exception("%s failed", api)
            raise RequestError("INTERNAL", f"{type(error).__name__} in {api}") from error


def channel_options(options: Options) -> list[tuple[str, int]]:
    """Return the settings of a gRPC server."""
    idle = int(1e3 * options.idle_timeout_seconds)
    return [
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_send_message_length", options.max_message_bytes),
        ("grpc.so_reuseport", 0),
        # A small message can decompress to `max_message_bytes`, before any budget is asked.
        ("grpc.compression_enabled_algorithms_bitset", 0b111 if options.grpc_compression else 1),
        ("grpc.max_concurrent_streams", 4 * options.max_concurrent_requests),  # of a connection
        ("grpc.max_allowed_incoming_connections", options.max_connections),
        ("grpc.server_handshake_timeout_ms", int(1e3 * options.header_timeout_seconds)),
        ("grpc.max_connection_idle_ms", idle),  # without calls
        ("grpc.keepalive_time_ms", idle),  # pings clients during calls: some vanish silently
        ("grpc.keepalive_timeout_ms", int(1e3 * options.header_timeout_seconds)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),  # lets clients ping, too
    ]


def _model_name(request: Any) -> str:
    if hasattr(request, "model_spec"):
        return request.model_spec.name
    if hasattr(request, "model_name"):
        return request.model_name
    tasks = getattr(request, "tasks", None)
    return tasks[0].model_spec.name if tasks else ""

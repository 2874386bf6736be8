"""A proxy in front of TF Serving that counts how many inputs are out of distribution.

TF Serving's own metrics are numbers and latencies of requests, not what the responses say. The
gateway forwards every request and response unchanged, and reads the verdicts in the responses.

Not here: reading the verdicts (`gateway_counts.py`), the embedded server, which counts verdicts
itself (`metrics.py`).
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
import httpx
import uvicorn

from jem_tf.server import access, bodies, metrics, web
from jem_tf.server.configuration import METRICS_PATH
from jem_tf.server.errors import RequestError
from jem_tf.server.flags import Options
from jem_tf.server.gateway_counts import VerdictCounter
from jem_tf.server.grpc_api import channel_options
from jem_tf.server.grpc_timeout import MessageTimeout
from jem_tf.server.sockets import bind_socket, format_address
from jem_tf.server.transports import uvicorn_options
from jem_tf.server.workers import Workers

log = logging.getLogger("jem_tf.gateway")
PREDICT_METHOD = "/tensorflow.serving.PredictionService/Predict"
RELOAD_METHOD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
DRAIN_SECONDS = 25
COUNTING_THREADS, COUNTING_SECONDS = 4, 5.0
_PREDICT_PATH = re.compile(r"/v1/models/([^/:]+)(?:/(?:versions|labels)/[^/:]+)?:predict")
_CONNECTION_HEADERS = {  # belong to one connection and are not forwarded
    b"host",
    b"connection",
    b"keep-alive",
    b"content-length",
    b"transfer-encoding",
    b"accept-encoding",
    b"te",
    b"trailer",
    b"upgrade",
}
HttpResponse = tuple[int, list[tuple[bytes, bytes]], bytes]


class Gateway:
    """Forwards requests to a TF Serving, and counts the OOD verdicts in its responses.

    ```python
    Gateway("serving:8500", "serving:8501", Options(port=8510, rest_api_port=8511)).run()
    ```

    Args:
        upstream: `host:port` of TF Serving's gRPC.
        upstream_rest: `host:port` of its REST API.
        options: where to listen, and limits.
        forward_reload: forward HandleReloadConfigRequest, which changes the models.
    """

    def __init__(
        self, upstream: str, upstream_rest: str, options: Options, forward_reload: bool = False
    ):
        self._forward_reload = forward_reload
        self._upstream, self._upstream_rest, self._options = upstream, upstream_rest, options
        self._num_in_progress = 0
        self._workers = Workers(
            COUNTING_THREADS, options.max_concurrent_requests, options.max_memory_bytes
        )
        self._counter = VerdictCounter(options.max_message_bytes)
        self._timeout = MessageTimeout(
            options.body_timeout_seconds or None, 4 * options.max_concurrent_requests
        )
        app: Any = self
        for middleware in reversed(web.make_middleware(options)):
            app = middleware.cls(app, *middleware.args, **middleware.kwargs)
        config = uvicorn.Config(
            app,
            host=options.host.strip("[]"),
            port=options.rest_api_port,
            lifespan="on",
            server_header=False,
            date_header=False,
            **uvicorn_options(options, DRAIN_SECONDS),
        )
        self._rest_server = _RestServer(config, self._stop_grpc)

    def run(self) -> None:
        """Serve until `stop`, SIGTERM or Ctrl-C, then finish the requests in progress."""
        for port in (self._options.port, self._options.rest_api_port):
            bind_socket(self._options.host, port).close()
        self._rest_server.run()

    def stop(self) -> None:
        """Make `run`, which is in another thread, finish and return."""
        self._rest_server.should_exit = True

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Run the REST side, an ASGI application; its lifespan starts and ends the gRPC side."""
        if scope["type"] == "lifespan":
            await receive()
            await self._start()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._client.aclose()
            await self._channel.close()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            status, headers, body = await self._respond(scope, receive)
            if scope["method"] != "HEAD":
                headers = [*headers, (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _start(self) -> None:
        options, max_bytes = self._options, self._options.max_message_bytes
        sizes = [(f"grpc.max_{way}_message_length", max_bytes) for way in ("send", "receive")]
        self._channel = grpc.aio.insecure_channel(self._upstream, sizes)
        self._client = httpx.AsyncClient(
            base_url=f"http://{self._upstream_rest}",
            timeout=httpx.Timeout(60.0, connect=5.0),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),
            trust_env=False,
        )
        token = access.read_token(options.auth_token_file)
        self._server = grpc.aio.server(
            options=channel_options(options),
            interceptors=[access.TokenInterceptor(token)] if token else [],
            maximum_concurrent_rpcs=8 * options.max_concurrent_requests,
        )
        self._server.add_generic_rpc_handlers((_AnyMethod(self._timeout, self._forward_grpc),))
        address = format_address(options.host, options.port)
        self._server.add_insecure_port(address)
        await self._server.start()
        print(
            f"Forwarding gRPC at {address} to {self._upstream}, REST at "
            f"{format_address(options.host, options.rest_api_port)} to {self._upstream_rest}",
            flush=True,
        )

    async def _stop_grpc(self) -> None:
        await self._server.stop(DRAIN_SECONDS)

    async def _forward_grpc(self, method: str, message: bytes, context: Any) -> bytes:
        if method == RELOAD_METHOD and not self._forward_reload:
            text = "The gateway does not forward this call. Start it with --enable-reload-config."
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        metadata = [
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if not key.startswith("grpc-") and key != "user-agent"
        ]
        call, seconds = self._channel.unary_unary(method), context.time_remaining()
        try:
            with self._request_in_progress(len(message)):
                response = await call(message, timeout=seconds, metadata=metadata)
        except RequestError as error:
            await context.abort(getattr(grpc.StatusCode, error.code), error.message)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        if method == PREDICT_METHOD:
            await self._count(self._counter.count_grpc, response)
        return response

    @contextmanager
    def _request_in_progress(self, size: int) -> Iterator[None]:
        """Count a request whose content of `size` bytes has arrived."""
        if self._num_in_progress >= self._options.max_concurrent_requests:
            raise RequestError("RESOURCE_EXHAUSTED", "Too many concurrent requests.")
        call = self._workers.call(None)
        call.reserve(size, "The request")
        self._num_in_progress += 1
        try:
            yield
        finally:
            self._num_in_progress -= 1
            call.close()

    async def _count(self, count: Callable[..., None], *arguments: Any) -> None:
        """Count verdicts in a thread; the response is forwarded even if that fails."""
        try:
            await self._workers.run(self._workers.call(COUNTING_SECONDS), count, *arguments)
        except RequestError as error:
            log.warning("a response was not counted: %s", error)

    async def _respond(self, scope: dict[str, Any], receive: Any) -> HttpResponse:
        if scope["path"] == METRICS_PATH:
            content_type = metrics.CONTENT_TYPE.encode()
            return 200, [(b"content-type", content_type)], self._counter.metrics.render([])
        options, call = self._options, self._workers.call(None)
        seconds = options.body_timeout_seconds or None
        try:
            limit, arriving = options.max_message_bytes, self._workers.arriving
            body = await bodies.read_body(scope, receive, limit, seconds, call, arriving)
            call.close()
            with self._request_in_progress(len(body)):
                return await self._forward_rest(scope, bytes(body))
        except RequestError as error:
            return _error_response(error.http_status, error.message)
        except httpx.TimeoutException:
            return _error_response(504, f"{self._upstream_rest} did not answer in time.")
        except httpx.TransportError as error:
            log.warning("%s does not answer: %s", self._upstream_rest, error)
            return _error_response(503, f"{self._upstream_rest} does not answer.")

    async def _forward_rest(self, scope: dict[str, Any], body: bytes) -> HttpResponse:
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        headers = [h for h in scope["headers"] if h[0] not in _CONNECTION_HEADERS]
        headers.append((b"accept-encoding", b"identity"))  # uncompressed, to read the verdicts
        raw_path = (f"{path}?{query}" if query else path).encode("latin-1")
        url = httpx.URL(str(self._client.base_url), raw_path=raw_path)
        response = await self._client.request(scope["method"], url, content=body, headers=headers)
        match = _PREDICT_PATH.fullmatch(path)
        if match is not None and response.status_code == 200 and b"is_ood" in response.content:
            model, gzipped = unquote(match[1]), bodies.is_gzipped(scope)
            await self._count(self._counter.count_rest, model, body, gzipped, response.content)
        dropped = _CONNECTION_HEADERS | {b"content-encoding"}
        if scope["method"] == "HEAD":
            dropped = dropped - {b"content-length"}
        kept = [(k.lower(), v) for k, v in response.headers.raw if k.lower() not in dropped]
        return response.status_code, kept, response.content


class _AnyMethod(grpc.GenericRpcHandler):
    """Handles any method with one request and one response, both as bytes."""

    def __init__(self, timeout: MessageTimeout, handle: Any):
        self._timeout, self._handle = timeout, handle

    def service(self, details: Any) -> Any:
        respond = partial(self._handle, details.method)
        return self._timeout.wrap(grpc.unary_unary_rpc_method_handler(respond))


class _RestServer(uvicorn.Server):
    """A server that also stops gRPC at the first signal, while REST requests finish."""

    def __init__(self, config: uvicorn.Config, stop_grpc: Any):
        super().__init__(config)
        self._stop_grpc = stop_grpc

    async def shutdown(self, sockets: Any = None) -> None:
        await asyncio.gather(super().shutdown(sockets), self._stop_grpc())


def _error_response(status: int, text: str) -> HttpResponse:
    headers = [(b"content-type", b"application/json")]
    return status, headers, json.dumps({"error": text}).encode()

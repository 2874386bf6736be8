"""A proxy in front of TF Serving that counts how many inputs are out of distribution.

TF Serving's own metrics are numbers and latencies of requests, not what the responses say. The
gateway forwards every request and response unchanged, and reads the verdicts in the responses.

Not here: the metrics of the embedded server, which counts verdicts itself (`metrics.py`).
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import grpc
import httpx
import numpy as np
import tensorflow as tf
import uvicorn
from tensorflow_serving.apis import predict_pb2

from jem_tf.server import bodies, metrics
from jem_tf.server.configuration import KEEP_ALIVE_SECONDS, METRICS_PATH
from jem_tf.server.errors import RequestError
from jem_tf.server.limits import Budget, Call
from jem_tf.server.servable import DEFAULT_SIGNATURE
from jem_tf.server.sockets import bind_socket

log = logging.getLogger("jem_tf.gateway")
PREDICT_METHOD = "/tensorflow.serving.PredictionService/Predict"
COUNTED: dict[str, type] = {"is_ood": bool, "percentile": float}  # outputs, and their types
MAX_SERIES = 1000  # pairs of model and signature in the metrics
DRAIN_SECONDS = 25
BODY_SECONDS = 30.0  # for a client to send the body of a request
MAX_MEMORY_BYTES = 2**28  # for the contents of all requests in progress
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
    Gateway("serving:8500", "serving:8501", port=8510, rest_port=8511).run()
    ```

    Args:
        upstream: `host:port` of TF Serving's gRPC.
        upstream_rest: `host:port` of its REST API.
        host: address to listen at.
        port: port of gRPC.
        rest_port: port of REST and of the metrics.
        max_message_bytes: largest accepted request.
        max_concurrent_requests: further requests are refused.
    """

    def __init__(
        self,
        upstream: str,
        upstream_rest: str,
        host: str = "127.0.0.1",
        port: int = 8500,
        rest_port: int = 8501,
        max_message_bytes: int = 2**26,
        max_concurrent_requests: int = 256,
    ):
        self._upstream, self._upstream_rest = upstream, upstream_rest
        self._host, self._port, self._rest_port = host, port, rest_port
        self._max_bytes, self._max_requests = max_message_bytes, max_concurrent_requests
        self._num_in_progress, self._budget = 0, Budget(MAX_MEMORY_BYTES)
        self._series: set[tuple[str, str]] = set()
        self.metrics = metrics.Metrics()
        config = uvicorn.Config(
            self,
            host=host,
            port=rest_port,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        self._rest_server = _RestServer(config, self._stop_grpc)

    def run(self) -> None:
        """Serve until `stop`, SIGTERM or Ctrl-C, then finish the requests in progress."""
        for port in (self._port, self._rest_port):
            bind_socket(self._host, port).close()
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
        sizes = [(f"grpc.max_{way}_message_length", self._max_bytes) for way in ("send", "receive")]
        self._channel = grpc.aio.insecure_channel(self._upstream, sizes)
        self._client = httpx.AsyncClient(
            base_url=f"http://{self._upstream_rest}",
            timeout=httpx.Timeout(60.0, connect=5.0),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),
            trust_env=False,
        )
        self._server = grpc.aio.server(
            options=[*sizes, ("grpc.so_reuseport", 0)], maximum_concurrent_rpcs=self._max_requests
        )
        self._server.add_generic_rpc_handlers((_UnaryHandler(self._forward_grpc),))
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._server.add_insecure_port(f"{host}:{self._port}")
        await self._server.start()
        print(
            f"Forwarding gRPC at {host}:{self._port} to {self._upstream}, "
            f"REST at {host}:{self._rest_port} to {self._upstream_rest}",
            flush=True,
        )

    async def _stop_grpc(self) -> None:
        await self._server.stop(DRAIN_SECONDS)

    async def _forward_grpc(self, method: str, message: bytes, context: Any) -> bytes:
        call = self._channel.unary_unary(method)
        metadata = [
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if not key.startswith("grpc-") and key != "user-agent"
        ]
        try:
            response = await call(message, timeout=context.time_remaining(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        if method == PREDICT_METHOD:
            self._try_to_count(self._count_grpc, response)
        return response

    async def _respond(self, scope: dict[str, Any], receive: Any) -> HttpResponse:
        if scope["path"] == METRICS_PATH:
            content_type = metrics.CONTENT_TYPE.encode()
            return 200, [(b"content-type", content_type)], self.metrics.render([])
        if self._num_in_progress >= self._max_requests:
            return _error_response(429, "Too many concurrent requests.")
        self._num_in_progress += 1
        try:
            return await self._forward_rest(scope, receive)
        except RequestError as error:
            return _error_response(error.http_status, error.message)
        except httpx.TimeoutException:
            return _error_response(504, f"{self._upstream_rest} did not answer in time.")
        except httpx.TransportError as error:
            log.warning("%s does not answer: %s", self._upstream_rest, error)
            return _error_response(503, f"{self._upstream_rest} does not answer.")
        finally:
            self._num_in_progress -= 1

    async def _forward_rest(self, scope: dict[str, Any], receive: Any) -> HttpResponse:
        call = Call(self._budget)
        try:
            return await self._forward_body(scope, receive, call)
        finally:
            call.close()

    async def _forward_body(self, scope: dict[str, Any], receive: Any, call: Call) -> HttpResponse:
        body = await bodies.read_body(scope, receive, self._max_bytes, BODY_SECONDS, call)
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        headers = [h for h in scope["headers"] if h[0] not in _CONNECTION_HEADERS]
        headers.append((b"accept-encoding", b"identity"))  # uncompressed, to read the verdicts
        raw_path = (f"{path}?{query}" if query else path).encode("latin-1")
        url = httpx.URL(str(self._client.base_url), raw_path=raw_path)
        response = await self._client.request(scope["method"], url, content=body, headers=headers)
        match = _PREDICT_PATH.fullmatch(path)
        if match is not None and response.status_code == 200 and b"is_ood" in response.content:
            gzipped = bodies.is_gzipped(scope)
            self._try_to_count(self._count_rest, unquote(match[1]), body, gzipped, response.content)
        dropped = _CONNECTION_HEADERS | {b"content-encoding"}
        if scope["method"] == "HEAD":
            dropped = dropped - {b"content-length"}
        kept = [(k.lower(), v) for k, v in response.headers.raw if k.lower() not in dropped]
        return response.status_code, kept, response.content

    def _try_to_count(self, count: Callable[..., None], *arguments: Any) -> None:
        """Count verdicts; the response is forwarded even if it cannot be parsed."""
        try:
            count(*arguments)
        except Exception as error:
            log.warning("a response was not counted: %r", error)

    def _count_grpc(self, message: bytes) -> None:
        response = predict_pb2.PredictResponse.FromString(message)
        if "is_ood" in response.outputs:
            outputs = {k: v for k, v in response.outputs.items() if k in COUNTED}
            arrays = {name: tf.make_ndarray(value) for name, value in outputs.items()}
            self._count(response.model_spec.name, response.model_spec.signature_name, arrays)

    def _count_rest(self, model: str, request: bytes, gzipped: bool, response: bytes) -> None:
        if gzipped:
            request = bodies.gunzip(request, self._max_bytes)
        question = json.loads(request, object_pairs_hook=_keep_first)
        answer = json.loads(response)
        columns = answer.get("outputs") or {
            name: [row[name] for row in answer["predictions"]]
            for name in COUNTED
            if name in answer["predictions"][0]
        }
        arrays: dict[str, np.ndarray] = {
            k: np.asarray(columns[k], v) for k, v in COUNTED.items() if k in columns
        }
        self._count(model, question.get("signature_name", ""), arrays)

    def _count(self, model: str, signature: str, arrays: dict[str, np.ndarray]) -> None:
        labels = (model, signature or DEFAULT_SIGNATURE)
        if labels not in self._series and len(self._series) >= MAX_SERIES:
            raise ValueError(f"the metrics already have {MAX_SERIES} models and signatures")
        self._series.add(labels)
        self.metrics.record_response(*labels, arrays["is_ood"].size, arrays)


class _UnaryHandler(grpc.GenericRpcHandler):
    """Handles any method with one request and one response, both as bytes."""

    def __init__(self, handle: Any):
        self._handle = handle

    def service(self, details: Any) -> Any:
        async def respond(message: bytes, context: Any) -> bytes:
            return await self._handle(details.method, message, context)

        return grpc.unary_unary_rpc_method_handler(respond)


class _RestServer(uvicorn.Server):
    """A server that also stops gRPC at the first signal, while REST requests finish."""

    def __init__(self, config: uvicorn.Config, stop_grpc: Any):
        super().__init__(config)
        self._stop_grpc = stop_grpc

    async def shutdown(self, sockets: Any = None) -> None:
        await asyncio.gather(super().shutdown(sockets), self._stop_grpc())


def _keep_first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict where the first of several equal keys wins, as in TF Serving."""
    return dict(reversed(pairs))


def _error_response(status: int, text: str) -> HttpResponse:
    headers = [(b"content-type", b"application/json")]
    return status, headers, json.dumps({"error": text}).encode()

"""A door before TF Serving that counts what comes through: the share of inputs that are OOD.

TF Serving's own metrics say how many requests and how slow, not what the answers were. A gateway
passes every request on as it came, every answer back as it is, and reads the verdicts in it.

Not here: the metrics of a server of ours, which counts by itself (`metrics.py`).
"""

import json
import logging
import re
from typing import Any
from urllib.parse import unquote

import grpc
import httpx
import numpy as np
import uvicorn
from tensorflow_serving.apis import predict_pb2

from jem_tf.server import metrics
from jem_tf.server.configuration import METRICS_PATH
from jem_tf.server.servable import DEFAULT_SIGNATURE
from jem_tf.server.serving import bound

log = logging.getLogger("jem_tf.gateway")
PREDICT = "/tensorflow.serving.PredictionService/Predict"
_PREDICT_PATH = re.compile(r"/v1/models/([^/:]+)(?:/(?:versions|labels)/[^/:]+)?:predict")
_OWN_HEADERS = {  # of a connection, not of what it carries
    b"host",
    b"connection",
    b"keep-alive",
    b"content-length",
    b"transfer-encoding",
    b"accept-encoding",
}


class Gateway:
    """Passes requests on to a TF Serving.

    Args:
        upstream: `host:port` of its gRPC.
        upstream_rest: `host:port` of its REST API.
        host, port, rest_port: where to listen.
        limit: bytes that a message may hold.
    """

    def __init__(
        self,
        upstream: str,
        upstream_rest: str,
        host: str = "127.0.0.1",
        port: int = 8500,
        rest_port: int = 8501,
        limit: int = 2**26,
    ):
        self._upstream, self._upstream_rest = upstream, upstream_rest
        self._host, self._port, self._rest_port, self._limit = host, port, rest_port, limit
        self.metrics = metrics.Metrics()

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C, and answer what came until then."""
        for port in (self._port, self._rest_port):
            bound(self._host, port).close()
        print(
            f"Passing gRPC at {self._host}:{self._port} on to {self._upstream}, "
            f"REST at {self._host}:{self._rest_port} to {self._upstream_rest}",
            flush=True,
        )
        uvicorn.run(self, host=self._host, port=self._rest_port, log_config=None, access_log=False)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """The REST side, an ASGI application; gRPC begins and ends with it."""
        if scope["type"] == "lifespan":
            await receive()
            await self._start()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._stop()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            status, headers, body = await self._respond(scope, receive)
            headers = [*headers, (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _start(self) -> None:
        sizes = [(f"grpc.max_{way}_message_length", self._limit) for way in ("send", "receive")]
        self._channel = grpc.aio.insecure_channel(self._upstream, sizes)
        self._client = httpx.AsyncClient(
            base_url=f"http://{self._upstream_rest}", timeout=None, trust_env=False
        )
        self._server = grpc.aio.server(options=[*sizes, ("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Everything(self._pass_grpc),))
        self._server.add_insecure_port(f"{self._host}:{self._port}")
        await self._server.start()

    async def _stop(self) -> None:
        await self._server.stop(30.0)
        await self._client.aclose()
        await self._channel.close()

    async def _pass_grpc(self, method: str, message: bytes, context: Any) -> bytes:
        call = self._channel.unary_unary(method)
        metadata = [
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if not key.startswith("grpc-") and key != "user-agent"
        ]
        try:
            answer = await call(message, timeout=context.time_remaining(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        if method == PREDICT:
            self._read_grpc(answer)
        return answer

    def _read_grpc(self, answer: bytes) -> None:
        import tensorflow as tf

        found = predict_pb2.PredictResponse.FromString(answer)
        if "is_ood" in found.outputs:
            spec, verdicts = found.model_spec, tf.make_ndarray(found.outputs["is_ood"])
            self._count(spec.name, spec.signature_name, verdicts)

    def _count(self, model: str, signature: str, verdicts: np.ndarray) -> None:
        results = {"is_ood": verdicts}
        self.metrics.answered(model, signature or DEFAULT_SIGNATURE, verdicts.size, results)

    async def _respond(self, scope: dict[str, Any], receive: Any) -> tuple[int, list, bytes]:
        if scope["path"] == METRICS_PATH:
            kind = metrics.CONTENT_TYPE.encode()
            return 200, [(b"content-type", kind)], self.metrics.render([])
        try:
            return await self._pass_rest(scope, receive)
        except httpx.TransportError as error:
            log.warning("%s does not answer: %s", self._upstream_rest, error)
            return 503, [], _error(f"{self._upstream_rest} does not answer.")

    async def _pass_rest(self, scope: dict[str, Any], receive: Any) -> tuple[int, list, bytes]:
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
            if sum(map(len, parts)) > self._limit:
                return 429, [], _error(f"A request may hold {self._limit} bytes, and no more.")
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        headers = [h for h in scope["headers"] if h[0] not in _OWN_HEADERS]
        headers.append((b"accept-encoding", b"identity"))  # answers come plain, to be read
        body = b"".join(parts)
        answer = await self._client.request(
            scope["method"], f"{path}?{query}" if query else path, content=body, headers=headers
        )
        match = _PREDICT_PATH.fullmatch(path)
        if match is not None and answer.status_code == 200 and b"is_ood" in answer.content:
            self._read_rest(unquote(match[1]), body, answer.content)
        kept = [h for h in answer.headers.raw if h[0].lower() not in _OWN_HEADERS]
        return answer.status_code, kept, answer.content

    def _read_rest(self, model: str, request: bytes, answer: bytes) -> None:
        try:
            signature = json.loads(request).get("signature_name", "")
            found = json.loads(answer)
            verdicts = (
                found["outputs"]["is_ood"]
                if "outputs" in found
                else [row["is_ood"] for row in found["predictions"]]
            )
            self._count(model, signature, np.asarray(verdicts, bool))
        except (ValueError, KeyError, TypeError) as error:
            log.info("an answer of %s was not counted: %r", model, error)  # such as gzip


class _Everything(grpc.GenericRpcHandler):
    """Any method with one request and one answer, as bytes."""

    def __init__(self, handle: Any):
        self._handle = handle

    def service(self, details: Any) -> Any:
        async def answer(message: bytes, context: Any) -> bytes:
            return await self._handle(details.method, message, context)

        return grpc.unary_unary_rpc_method_handler(answer)


def _error(text: str) -> bytes:
    return json.dumps({"error": text}).encode()

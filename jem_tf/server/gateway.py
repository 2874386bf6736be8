"""A door before TF Serving that counts what comes through: the share of inputs that are OOD.

TF Serving's own metrics say how many requests and how slow, not what the answers were. A gateway
passes every request on as it came, every answer back as it is, and reads the verdicts in it.

Not here: the metrics of a server of ours, which counts by itself (`metrics.py`).
"""

import asyncio
import json
import logging
import re
import zlib
from typing import Any
from urllib.parse import unquote

import grpc
import httpx
import numpy as np
import uvicorn
from tensorflow_serving.apis import predict_pb2

from jem_tf.server import metrics
from jem_tf.server.configuration import KEEP_ALIVE, METRICS_PATH
from jem_tf.server.servable import DEFAULT_SIGNATURE
from jem_tf.server.serving import bound

log = logging.getLogger("jem_tf.gateway")
PREDICT = "/tensorflow.serving.PredictionService/Predict"
SERIES = 1000  # pairs of model and signature that are counted, at most
DRAIN = 25  # seconds for requests to end
_PREDICT_PATH = re.compile(r"/v1/models/([^/:]+)(?:/(?:versions|labels)/[^/:]+)?:predict")
_OWN_HEADERS = {  # of a connection, not of what it carries
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
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


class Gateway:
    """Passes requests on to a TF Serving.

    Args:
        upstream: `host:port` of its gRPC.
        upstream_rest: `host:port` of its REST API.
        host, port, rest_port: where to listen.
        limit: bytes that a message may hold.
        most: requests at a time; more are refused.
    """

    def __init__(
        self,
        upstream: str,
        upstream_rest: str,
        host: str = "127.0.0.1",
        port: int = 8500,
        rest_port: int = 8501,
        limit: int = 2**26,
        most: int = 256,
    ):
        self._upstream, self._upstream_rest = upstream, upstream_rest
        self._host, self._port, self._rest_port = host, port, rest_port
        self._limit, self._most, self._going = limit, most, 0
        self._series: set[tuple[str, str]] = set()
        self.metrics = metrics.Metrics()

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C, and answer what came until then."""
        for port in (self._port, self._rest_port):
            bound(self._host, port).close()
        config = uvicorn.Config(
            self,
            host=self._host,
            port=self._rest_port,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=DRAIN,
        )
        self._rest = _Server(config)
        self._rest.leaving = self._close
        self._rest.run()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """The REST side, an ASGI application; gRPC begins and ends with it."""
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
        sizes = [(f"grpc.max_{way}_message_length", self._limit) for way in ("send", "receive")]
        self._channel = grpc.aio.insecure_channel(self._upstream, sizes)
        self._client = httpx.AsyncClient(
            base_url=f"http://{self._upstream_rest}",
            timeout=httpx.Timeout(60.0, connect=5.0),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),
            trust_env=False,
        )
        self._server = grpc.aio.server(
            options=[*sizes, ("grpc.so_reuseport", 0)], maximum_concurrent_rpcs=self._most
        )
        self._server.add_generic_rpc_handlers((_Everything(self._pass_grpc),))
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._server.add_insecure_port(f"{host}:{self._port}")
        await self._server.start()
        print(
            f"Passing gRPC at {host}:{self._port} on to {self._upstream}, "
            f"REST at {host}:{self._rest_port} to {self._upstream_rest}",
            flush=True,
        )

    async def _close(self) -> None:
        await self._server.stop(DRAIN)

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
            self._counted(self._read_grpc, answer)
        return answer

    def _counted(self, read: Any, *messages: Any) -> None:
        """Count verdicts; whatever an answer holds, it is passed on."""
        try:
            read(*messages)
        except Exception as error:
            log.warning("an answer was not counted: %r", error)

    def _read_grpc(self, answer: bytes) -> None:
        import tensorflow as tf

        found = predict_pb2.PredictResponse.FromString(answer)
        if "is_ood" in found.outputs:
            spec, verdicts = found.model_spec, tf.make_ndarray(found.outputs["is_ood"])
            self._count(spec.name, spec.signature_name, verdicts)

    def _count(self, model: str, signature: str, verdicts: np.ndarray) -> None:
        pair = (model, signature or DEFAULT_SIGNATURE)
        if pair not in self._series and len(self._series) >= SERIES:
            raise ValueError(f"there are {SERIES} models and signatures already")
        self._series.add(pair)
        self.metrics.answered(*pair, verdicts.size, {"is_ood": verdicts})

    async def _respond(self, scope: dict[str, Any], receive: Any) -> Answer:
        if scope["path"] == METRICS_PATH:
            kind = metrics.CONTENT_TYPE.encode()
            return 200, [(b"content-type", kind)], self.metrics.render([])
        if self._going >= self._most:
            return _error(429, "Too many requests at a time.")
        self._going += 1
        try:
            return await self._pass_rest(scope, receive)
        except httpx.TimeoutException:
            return _error(504, f"{self._upstream_rest} did not answer in time.")
        except httpx.TransportError as error:
            log.warning("%s does not answer: %s", self._upstream_rest, error)
            return _error(503, f"{self._upstream_rest} does not answer.")
        finally:
            self._going -= 1

    async def _pass_rest(self, scope: dict[str, Any], receive: Any) -> Answer:
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _error(400, "The client has left.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self._limit:
                return _error(429, f"A request may hold {self._limit} bytes, and no more.")
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        headers = [h for h in scope["headers"] if h[0] not in _OWN_HEADERS]
        headers.append((b"accept-encoding", b"identity"))  # answers come plain, to be read
        body = b"".join(parts)
        url = httpx.URL(str(self._client.base_url), raw_path=_target(path, query))
        answer = await self._client.request(scope["method"], url, content=body, headers=headers)
        match = _PREDICT_PATH.fullmatch(path)
        if match is not None and answer.status_code == 200 and b"is_ood" in answer.content:
            zipped = b"gzip" in dict(scope["headers"]).get(b"content-encoding", b"")
            self._counted(self._read_rest, unquote(match[1]), body, zipped, answer.content)
        dropped = _OWN_HEADERS | {b"content-encoding"}
        if scope["method"] == "HEAD":
            dropped = dropped - {b"content-length"}
        kept = [(k.lower(), v) for k, v in answer.headers.raw if k.lower() not in dropped]
        return answer.status_code, kept, answer.content

    def _read_rest(self, model: str, request: bytes, zipped: bool, answer: bytes) -> None:
        if zipped:
            request = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(request, self._limit)
        asked = json.loads(request, object_pairs_hook=_first_wins)
        found = json.loads(answer)
        verdicts = (
            found["outputs"]["is_ood"]
            if "outputs" in found
            else [row["is_ood"] for row in found["predictions"]]
        )
        self._count(model, asked.get("signature_name", ""), np.asarray(verdicts, bool))


class _Everything(grpc.GenericRpcHandler):
    """Any method with one request and one answer, as bytes."""

    def __init__(self, handle: Any):
        self._handle = handle

    def service(self, details: Any) -> Any:
        async def answer(message: bytes, context: Any) -> bytes:
            return await self._handle(details.method, message, context)

        return grpc.unary_unary_rpc_method_handler(answer)


class _Server(uvicorn.Server):
    """Closes gRPC with the first signal, while REST drains."""

    leaving: Any

    async def shutdown(self, sockets: Any = None) -> None:
        await asyncio.gather(super().shutdown(sockets), self.leaving())


def _target(path: str, query: str) -> bytes:
    return (f"{path}?{query}" if query else path).encode("latin-1")


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of equal keys the first one counts, as in TF Serving."""
    return dict(reversed(pairs))


def _error(status: int, text: str) -> Answer:
    headers = [(b"content-type", b"application/json")]
    return status, headers, json.dumps({"error": text}).encode()

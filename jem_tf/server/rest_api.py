"""The REST API of TF Serving as an ASGI application, with metrics and health.

Not here: the answers (`service.py`), JSON (`json_tensors.py`).
"""

import asyncio
import logging
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from jem_tf.server import configuration, json_tensors, metrics
from jem_tf.server import pages as inspector
from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.flags import Options
from jem_tf.server.servable import DEFAULT_SIGNATURE, Servable
from jem_tf.server.service import Service

log = logging.getLogger("jem_tf.server")
_WHICH = r"(?:/versions/(\d+)|/labels/([^/:]+))?"
_POST = re.compile(rf"/v1/models/([^/:]+){_WHICH}:(classify|regress|predict)")
_GET = re.compile(rf"/v1/models(?:/([^/:]+))?{_WHICH}(/metadata)?")
JSON = b"application/json"
CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
]


class App:
    """An ASGI application over a `Service`."""

    def __init__(self, service: Service, options: Options):
        self._service, self._options = service, options
        self._metrics_path = configuration.metrics_path(options)
        self._inspector = (
            inspector.Inspector(service.manager, self._metrics_path) if options.inspector else None
        )
        self._threads = ThreadPoolExecutor(options.grpc_max_threads, "rest")
        self._waiting = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
                if kind == "lifespan.shutdown":
                    return
        if scope["type"] != "http":
            return
        page = await self._page(scope)
        status, body, kind = (200, *page) if page else await self._respond(scope, receive)
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        headers += inspector.HEADERS if page else []
        if self._options.rest_api_enable_cors_support:
            headers += CORS
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send(
            {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body}
        )

    async def _page(self, scope: dict[str, Any]) -> tuple[bytes, bytes] | None:
        if self._inspector is None or scope["method"] not in ("GET", "HEAD"):
            return None
        if scope["path"] != inspector.MODELS:
            return self._inspector.get(scope["path"])
        return await asyncio.to_thread(self._inspector.get, scope["path"])  # reads files

    async def _respond(self, scope: dict[str, Any], receive: Any) -> tuple[int, bytes, bytes]:
        path, method = (
            scope.get("raw_path", scope["path"].encode()).decode("latin-1"),
            scope["method"],
        )
        if path == self._metrics_path and not scope["query_string"]:
            page = self._service.metrics.render(self._service.manager.servables())
            return 200, page, metrics.CONTENT_TYPE.encode()
        if path == "/health":
            ready = self._service.manager.ready
            return (200 if ready else 503), b'{"ready": %s}' % str(ready).lower().encode(), JSON
        if not path.startswith("/v1/"):
            return 404, b'{"error": "Not Found"}', JSON
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        if method == "OPTIONS" and self._options.rest_api_enable_cors_support:
            return 200, b"", JSON
        try:
            return 200, await self._answer(method, path, scope, receive), JSON
        except RequestError as error:
            return error.http, json_tensors.dump({"error": error.message}), JSON
        except Exception as error:
            log.exception("%s %s failed", method, path)
            text = f"{type(error).__name__} in {method} {path}"
            return 500, json_tensors.dump({"error": text}), JSON

    async def _answer(self, method: str, path: str, scope: Any, receive: Any) -> bytes:
        match = (_POST if method == "POST" else _GET).fullmatch(path)
        if match is None or method not in ("GET", "POST"):
            raise invalid(f"Malformed request: {method} {path}")
        name, version, label, what = match.groups()
        name, label = unquote(name or ""), unquote(label or "")
        if not name:
            raise invalid("Missing model name in request.")
        if version is not None and (len(version) > 19 or int(version) >= 2**63):
            raise invalid(f"Failed to convert version: {version} to numeric.")
        which = (name, None if version is None else int(version), label)
        if method == "GET":
            return self._metadata(*which) if what else self._status(*which[:2])
        with self._service.metrics.request(self._service.known(name), what, "REST"):
            return await self._inferred(what, which, scope, receive)

    async def _inferred(self, what: str, which: tuple, scope: Any, receive: Any) -> bytes:
        if self._waiting >= self._options.max_concurrent_requests:
            raise RequestError("RESOURCE_EXHAUSTED", "Too many requests at a time.")
        self._waiting += 1
        work: Any = None
        try:
            async with asyncio.timeout(self._options.rest_api_timeout_in_ms / 1e3 or None):
                body = await self._body(receive)
                zipped = b"gzip" in dict(scope["headers"]).get(b"content-encoding", b"")
                loop = asyncio.get_running_loop()
                work = loop.run_in_executor(self._threads, self._infer, what, which, body, zipped)
                return await asyncio.shield(work)
        except TimeoutError as error:
            raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded") from error
        finally:
            if work is None or work.done():
                self._waiting -= 1
            else:
                work.add_done_callback(self._late)  # it goes on, and counts until it ends

    def _late(self, work: Any) -> None:
        self._waiting -= 1
        work.exception()  # nobody waits for it

    async def _body(self, receive: Any) -> bytes:
        limit = self._options.max_message_bytes
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError("CANCELLED", "The client has left.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > limit:
                raise RequestError(
                    "RESOURCE_EXHAUSTED", f"A request may hold {limit} bytes, and no more."
                )
        return b"".join(parts)

    def _unzipped(self, body: bytes) -> bytes:
        limit = self._options.max_message_bytes
        try:
            body = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body, limit + 1)
        except zlib.error as error:
            raise invalid(f"The body is no gzip: {error}") from error
        if len(body) > limit:
            raise RequestError("RESOURCE_EXHAUSTED", f"A request may unpack to {limit} bytes.")
        return body

    def _infer(self, what: str, which: tuple, body: bytes, zipped: bool) -> bytes:
        service = self._service
        with service.manager.use(*which) as found:
            document = json_tensors.parse(self._unzipped(body) if zipped else body)
            signature = document.get("signature_name", "")
            if what == "predict":
                return self._predict(found, signature, document)
            examples = json_tensors.examples_of(document, what)
            if what == "classify":
                result = service.classifications(found, signature, examples)
                rows: Any = [
                    [[c.label, c.score] for c in r.classes] for r in result.classifications
                ]
            else:
                result = service.regressions(found, signature, examples)
                rows = [regression.value for regression in result.regressions]
            return json_tensors.dump({"results": rows})

    def _predict(self, servable: Servable, signature: str, document: dict[str, Any]) -> bytes:
        definition = servable.signature_defs.get(signature or DEFAULT_SIGNATURE)
        if definition is None:
            raise invalid(f'Serving signature name: "{signature}" not found in signature def')
        inputs, rows = json_tensors.inputs_of(document, definition.inputs)
        return json_tensors.answer(self._service.run(servable, signature, inputs), rows)

    def _status(self, name: str, version: int | None) -> bytes:
        versions = [
            {
                "version": str(found.number),
                "state": found.state,
                "status": {"error_code": found.code, "error_message": found.error},
            }
            for found in self._service.manager.status(name, version)
        ]
        return json_tensors.dump({"model_version_status": versions})

    def _metadata(self, name: str, version: int | None, label: str) -> bytes:
        with self._service.manager.use(name, version, label) as servable:
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for key, definition in servable.signature_defs.items():
                signatures.signature_def[key].CopyFrom(definition)
            spec = {"name": name, "signature_name": "", "version": str(servable.version)}
        shown = json_format.MessageToDict(
            signatures, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return json_tensors.dump({"model_spec": spec, "metadata": {"signature_def": shown}})

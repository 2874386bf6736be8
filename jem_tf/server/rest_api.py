"""The REST API of TF Serving as an ASGI application.

Not here: how requests are answered (`service.py`), JSON (`json_requests.py`,
`json_responses.py`), other paths (`web.py`).
"""

import logging
import re
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from google.protobuf import json_format
from starlette.responses import Response

from jem_tf.saved_model import layout
from jem_tf.server import bodies, json_requests, json_responses
from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.flags import Options
from jem_tf.server.limits import Bytes
from jem_tf.server.servable import DEFAULT_SIGNATURE, Servable
from jem_tf.server.service import Service, signature_def_map
from jem_tf.server.workers import Workers

log = logging.getLogger("jem_tf.server")
_VERSION = r"(?:/versions/(\d+)|/labels/([^/:]+))?"
# As in TF Serving, only the verb at the end is case-sensitive.
_POST_PATH = re.compile(rf"(?i:/v1/models/([^/:]+){_VERSION}):(classify|regress|predict)")
_GET_PATH = re.compile(rf"(?i:/v1/models(?:/([^/:]+))?{_VERSION})(/metadata)?")


class Target(NamedTuple):
    """The model of a request; `version` None and `label` "": the newest version."""

    name: str
    version: int | None
    label: str


class RestApi:
    """The paths below `/v1/`, as an ASGI application.

    ```python
    Route("/{path:path}", RestApi(service, Workers(64, 256, 2**28), Options()))
    ```
    """

    def __init__(self, service: Service, workers: Workers, options: Options):
        self._service, self._workers, self._options = service, workers, options

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        status, body = await self._respond(scope, receive)
        await Response(body, status, media_type="application/json")(scope, receive, send)

    async def _respond(self, scope: dict[str, Any], receive: Any) -> tuple[int, bytes]:
        """Return status and body."""
        path, method = scope["raw_path"].decode("latin-1"), scope["method"]
        if not path.lower().startswith("/v1/"):
            return 404, b'{"error": "Not Found"}'
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        try:
            return 200, await self._route(method, path, scope, receive)
        except RequestError as error:
            return error.http_status, json_responses.dump({"error": error.message})
        except Exception as error:
            log.exception("%s %s failed", method, path)
            text = f"{type(error).__name__} in {method} {path}"
            return 500, json_responses.dump({"error": text})

    async def _route(self, method: str, path: str, scope: Any, receive: Any) -> bytes:
        match = (_POST_PATH if method == "POST" else _GET_PATH).fullmatch(path)
        if match is None or method not in ("GET", "POST"):
            raise invalid(f"Malformed request: {method} {path}")
        name, version, label, suffix = match.groups()
        name, label = unquote(name or ""), unquote(label or "")
        if not name:
            raise invalid("Missing model name in request.")
        if version is not None and (len(version) > 19 or int(version) > layout.MAX_VERSION):
            raise invalid(f"Failed to convert version: {version} to numeric.")
        target = Target(name, None if version is None else int(version), label)
        if method == "GET":
            return self._metadata(target) if suffix else self._status(target)
        with self._service.metrics.request(self._service.metrics_name(name), suffix, "REST"):
            infer = partial(self._infer, suffix, target)
            return await bodies.answer(self._workers, self._options, scope, receive, infer)

    def _infer(self, verb: str, target: Target, body: Bytes) -> bytes:
        """Answer a predict, classify or regress request; runs in a thread."""
        service = self._service
        with service.manager.use(*target) as servable:
            document = json_requests.parse_body(body)
            signature = document.get("signature_name", "")
            if verb == "predict":
                return self._predict(servable, signature, document)
            examples = json_requests.parse_examples(document, verb)
            if verb == "classify":
                result = service.classify_examples(servable, signature, examples)
                rows: Any = [
                    [[c.label, c.score] for c in r.classes] for r in result.classifications
                ]
            else:
                result = service.regress_examples(servable, signature, examples)
                rows = [regression.value for regression in result.regressions]
            return json_responses.dump({"results": rows})

    def _predict(self, servable: Servable, signature: str, document: dict[str, Any]) -> bytes:
        definition = servable.signature_defs.get(signature or DEFAULT_SIGNATURE)
        if definition is None:
            raise invalid(f'Serving signature name: "{signature}" not found in signature def')
        inputs, as_rows = json_requests.parse_inputs(document, definition.inputs)
        outputs = self._service.run(servable, signature, inputs)
        return json_responses.format_outputs(outputs, as_rows)

    def _status(self, target: Target) -> bytes:
        versions = [
            {
                "version": str(version.number),
                "state": version.state,
                "status": {"error_code": version.code, "error_message": version.error},
            }
            for version in self._service.manager.status(target.name, target.version)
        ]
        return json_responses.dump({"model_version_status": versions})

    def _metadata(self, target: Target) -> bytes:
        with self._service.manager.use(*target) as servable:
            signatures = signature_def_map(servable)
            version = str(servable.version)
        fields = json_format.MessageToDict(
            signatures, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        spec = {"name": target.name, "signature_name": "", "version": version}
        return json_responses.dump({"model_spec": spec, "metadata": {"signature_def": fields}})

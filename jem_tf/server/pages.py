"""The inspector: a page of `static/` that uses the REST API like any other client.

Not here: the responses of the API (`rest_api.py`). Static files are read when the server starts;
no path of a request reaches the file system.
"""

import json
import mimetypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jem_tf.saved_model import layout
from jem_tf.server import model_files

STATIC = Path(__file__).parent / "static"
MODELS_PATH = "/inspector/models.json"
HEADERS = {  # scripts and styles come from this server only; other sites cannot frame the page
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Inspector:
    """Answers `GET` for the page, its files, and descriptions of the models.

    ```python
    Starlette(routes=Inspector(manager, METRICS_PATH).routes())
    ```
    """

    def __init__(self, manager: Any, metrics_path: str | None):
        self._manager, self._metrics_path = manager, metrics_path
        self._descriptions: dict[tuple[str, int], bytes] = {}  # JSON by name and version

    def routes(self) -> list[Route]:
        """Return the routes of the page."""
        files = [
            Route(f"/inspector/{file.name}", _file_endpoint(file)) for file in STATIC.iterdir()
        ]
        page = Route("/", _file_endpoint(STATIC / "index.html"))
        return [page, Route(MODELS_PATH, self._get_models), *files]

    def _get_models(self, _: Request) -> Response:  # reads files: Starlette runs it in a thread
        return Response(self._describe_models(), 200, HEADERS, "application/json")

    def _describe_models(self) -> bytes:
        servables = {(s.name, s.version): s for s in self._manager.servables()}
        self._descriptions = {
            key: self._descriptions.get(key) or _describe(servable)
            for key, servable in servables.items()
        }
        return b'{"metrics": %s, "models": [%s]}' % (
            json.dumps(self._metrics_path).encode(),
            b",".join(self._descriptions.values()),
        )


def _describe(servable: Any) -> bytes:
    """Return the metadata and examples of a model; SavedModels of other tools have neither."""
    examples = model_files.read_json(model_files.join(servable.path, layout.EXAMPLES))
    description = {
        "name": servable.name,
        "version": servable.version,
        "facts": model_files.read_json(model_files.join(servable.path, layout.METADATA)) or None,
        "examples": examples.get("instances", []),
    }
    return json.dumps(description).encode()


def _file_endpoint(file: Path) -> Callable[[Request], Any]:
    content_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    response = Response(file.read_bytes(), 200, HEADERS, content_type)

    async def get_file(_: Request) -> Response:
        return response

    return get_file

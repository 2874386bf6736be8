"""The inspector: a page of `static/` that uses the REST API like any other client.

Not here: the responses of the API (`rest_api.py`). Static files are read when the server starts;
no path of a request reaches the file system.
"""

import json
import mimetypes
from pathlib import Path
from typing import Any

from jem_tf.saved_model import layout

STATIC = Path(__file__).parent / "static"
MODELS_PATH = "/inspector/models.json"
HEADERS = [  # scripts and styles come from this server only; other sites cannot frame the page
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


class Inspector:
    """Answers `GET` for the page, its files, and descriptions of the models.

    ```python
    body, content_type = Inspector(manager, METRICS_PATH).get("/")
    ```
    """

    def __init__(self, manager: Any, metrics_path: str | None):
        self._manager, self._metrics_path = manager, metrics_path
        self._files = {f"/inspector/{file.name}": _read(file) for file in STATIC.iterdir()}
        self._files["/"] = self._files["/inspector/index.html"]
        self._descriptions: dict[tuple[str, int], bytes] = {}  # JSON by name and version

    def get(self, path: str) -> tuple[bytes, bytes] | None:
        """Return the body at `path` and its content type; None if there is no such page."""
        if path == MODELS_PATH:
            return self._describe_models(), b"application/json"
        return self._files.get(path)

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
    examples = layout.read_json(servable.path / layout.EXAMPLES)
    description = {
        "name": servable.name,
        "version": servable.version,
        "facts": layout.read_metadata(servable.path) or None,
        "examples": examples.get("instances", []),
    }
    return json.dumps(description).encode()


def _read(file: Path) -> tuple[bytes, bytes]:
    content_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return file.read_bytes(), content_type.encode()

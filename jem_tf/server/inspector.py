"""The inspector: the pages of `jem_tf/inspector/`, which ask the REST API as any client would.

Not here: what is answered (`rest_api.py`). Files are read when the server starts; no path of a
request reaches the file system.
"""

import json
import mimetypes
from pathlib import Path
from typing import Any

FILES = Path(__file__).parents[1] / "inspector"
FACTS = Path("assets.extra") / "jem.json"
EXAMPLES = Path("assets.extra") / "examples.json"
MODELS = "/inspector/models.json"
HEADERS = [  # scripts and styles are files of this server, and pages of others may not frame it
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
    """Answers `GET` for the page, its files, and what models say about themselves."""

    def __init__(self, manager: Any, metrics_path: str | None):
        self._manager, self._metrics_path = manager, metrics_path
        self._files = {f"/inspector/{file.name}": _read(file) for file in FILES.iterdir()}
        self._files["/"] = self._files["/inspector/index.html"]

    def get(self, path: str) -> tuple[bytes, bytes] | None:
        """A body and its type; None where the inspector has nothing."""
        if path == MODELS:
            return json.dumps(self._models()).encode(), b"application/json"
        return self._files.get(path)

    def _models(self) -> dict[str, Any]:
        newest: dict[str, Any] = {}
        for servable in self._manager.servables():
            known = newest.setdefault(servable.name, servable)
            if servable.version > known.version:
                newest[servable.name] = servable
        models = [
            {
                "name": name,
                "version": servable.version,
                "facts": _json(servable.path / FACTS),
                "examples": (_json(servable.path / EXAMPLES) or {}).get("instances", []),
            }
            for name, servable in newest.items()
        ]
        return {"metrics": self._metrics_path, "models": models}


def _read(file: Path) -> tuple[bytes, bytes]:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return file.read_bytes(), kind.encode()


def _json(file: Path) -> Any:
    """What a file of a model holds; None for those of other tools, which need not have it."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None

"""The inspector: the pages of `static/`, which ask the REST API as any client would.

Not here: what is answered (`rest_api.py`). Files are read when the server starts; no path of a
request reaches the file system.
"""

import json
import mimetypes
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "static"
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
        self._known: dict[tuple[str, int], bytes] = {}  # what models say, as JSON

    def get(self, path: str) -> tuple[bytes, bytes] | None:
        """A body and its type; None where the inspector has nothing."""
        if path == MODELS:
            return self._models(), b"application/json"
        return self._files.get(path)

    def _models(self) -> bytes:
        newest: dict[str, Any] = {}
        for servable in self._manager.servables():
            known = newest.setdefault(servable.name, servable)
            if servable.version > known.version:
                newest[servable.name] = servable
        present = {(name, servable.version): servable for name, servable in newest.items()}
        self._known = {key: self._known.get(key) or _told(present[key]) for key in present}
        models = b",".join(self._known.values())
        return b'{"metrics": %s, "models": [%s]}' % (
            json.dumps(self._metrics_path).encode(),
            models,
        )


def _told(servable: Any) -> bytes:
    """What a model says about itself, with nothing for what models of other tools lack."""
    facts, request = _json(servable.path / FACTS), _json(servable.path / EXAMPLES)
    name = {"name": servable.name, "version": servable.version}
    return json.dumps(
        {**name, "facts": facts or None, "examples": request.get("instances", [])}
    ).encode()


def _read(file: Path) -> tuple[bytes, bytes]:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return file.read_bytes(), kind.encode()


def _json(file: Path) -> dict[str, Any]:
    """What a file of a model holds, if it is there and holds that."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

"""The versions of a served model and their states, which are TF Serving's.

Not here: the transitions between states (`manager.py`).
"""

from dataclasses import dataclass, field
from typing import Any

from jem_tf.server.servable import Servable

START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"


@dataclass
class Version:
    """A version of a model, from when it is found on disk until after it is unloaded.

    `code` and `error` say why it failed to load; `users` counts the requests in progress.
    """

    number: int
    path: str
    state: str = START
    code: str = "OK"
    error: str = ""
    servable: Servable | None = None
    users: int = 0
    attempts: int = 0
    retry_at: float = 0.0


@dataclass
class Model:
    """A model and its versions by number; `config` is None once it is no longer configured."""

    config: Any
    versions: dict[int, Version] = field(default_factory=dict)

    @property
    def available(self) -> list[Version]:
        """The versions that take requests, the newest first."""
        versions = [v for v in self.versions.values() if v.state == AVAILABLE]
        return sorted(versions, key=lambda version: -version.number)

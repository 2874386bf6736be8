"""Which models and versions are served: found on disk, loaded before others are let go.

Not here: what a version can do (`servable.py`). States and messages are TF Serving's.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jem_tf.server.errors import RequestError, invalid, not_found
from jem_tf.server.protos import ModelServerConfig
from jem_tf.server.servable import Servable

START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"
ENDED_KEPT = 20  # versions of a model that remain in its status after they were unloaded

log = logging.getLogger("jem_tf.server")


@dataclass
class Version:
    """A version of a model, from when it is seen on disk."""

    number: int
    path: Path
    state: str = START
    code: str = "OK"
    error: str = ""
    servable: Servable | None = None
    users: int = 0
    attempts: int = 0
    retry_at: float = 0.0


@dataclass
class Model:
    """A model of the configuration, and its versions."""

    config: Any
    versions: dict[int, Version] = field(default_factory=dict)

    @property
    def available(self) -> list[Version]:
        """Those that answer, the newest first."""
        found = [v for v in self.versions.values() if v.state == AVAILABLE]
        return sorted(found, key=lambda version: -version.number)


class Manager:
    """Keeps what is served in step with the configuration and the disk.

    ```python
    manager = Manager(config, load=Servable)
    manager.start()
    with manager.use("digits") as servable: ...
    ```

    Args:
        config: a `ModelServerConfig` with a list of models.
        load: makes a `Servable` of (name, version, path), warmed up.
        poll_seconds: between two looks at the disk; 0: one look, negative: none.
        retries: how often a version that does not load is tried again.
        retry_seconds: and when.
        unavailable_labels: whether labels may name versions that are not loaded.
    """

    def __init__(
        self,
        config: Any,
        load: Callable[[str, int, Path], Servable],
        poll_seconds: float = 1.0,
        retries: int = 5,
        retry_seconds: float = 60.0,
        unavailable_labels: bool = False,
    ):
        self._load, self.poll_seconds = load, poll_seconds
        self._retries, self._retry_seconds = retries, retry_seconds
        self._unavailable_labels = unavailable_labels
        self._lock = threading.RLock()
        self._work = threading.Lock()  # one change at a time
        self._stop = threading.Event()
        self._models: dict[str, Model] = {}
        self._configure(config)

    # What requests ask.

    @contextmanager
    def use(self, name: str, version: int | None = None, label: str = "") -> Iterator[Servable]:
        """The servable of a request, which stays in memory until the end of the block."""
        with self._lock:
            found = self._find(name, version, label)
            found.users += 1
            servable = found.servable
        assert servable is not None
        try:
            yield servable
        finally:
            with self._lock:
                found.users -= 1
            self._close_if_unused(found)

    def _find(self, name: str, version: int | None, label: str) -> Version:
        if not name:
            raise invalid("ModelSpec has no name specified.")
        model = self._models.get(name)
        if label:
            labels = {} if model is None or model.config is None else model.config.version_labels
            if label not in labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            version = labels[label]
        if model is not None:
            for found in model.available:
                if version is None or found.number == version:
                    return found
        request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise not_found(f"Servable not found for request: {request}")

    def status(self, name: str, version: int | None = None) -> list[Version]:
        """The versions of a model as a request wants to see them, the newest first."""
        with self._lock:
            model = self._models.get(name)
            versions = [] if model is None else list(model.versions.values())
            if version is not None:
                versions = [v for v in versions if v.number == version]
            if not versions:
                what = f"any versions of model {name}"
                if version is not None:
                    what = f"version {version} of model {name}"
                raise not_found(f"Could not find {what}")
            return sorted(versions, key=lambda v: -v.number)

    def versions_of(self, name: str) -> list[Version]:
        with self._lock:
            return list(self._models[name].versions.values())

    def servables(self) -> list[Servable]:
        """The newest of each model."""
        with self._lock:
            newest = [m.available[0].servable for m in self._models.values() if m.available]
            return [servable for servable in newest if servable is not None]

    @property
    def names(self) -> list[str]:
        with self._lock:
            return list(self._models)

    @property
    def ready(self) -> bool:
        """Whether every model has a version that answers."""
        with self._lock:
            wanted = [model for model in self._models.values() if model.config is not None]
            return all(model.available for model in wanted)

    # What changes.

    def start(self) -> None:
        """Load what there is, and keep looking in the background."""
        if self.poll_seconds >= 0:
            self.refresh()
        if self.poll_seconds > 0:
            threading.Thread(target=self._watch, name="versions", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def reload(self, config: Any) -> None:
        """Serve what `config` says; `RequestError` if a model that is new has no version."""
        with self._work:
            before = {name for name, model in self._models.items() if model.config is not None}
            self._configure(config)
            self._refresh()
            with self._lock:
                new = {name: m for name, m in self._models.items() if name not in before}
                lacking = [name for name, model in new.items() if not model.available]
        if lacking:
            raise RequestError(
                "UNKNOWN", f"{len(lacking)} model(s) did not become available: {', '.join(lacking)}"
            )

    def refresh(self) -> None:
        """Load versions that have come and let go of those that are not wanted any more."""
        with self._work:
            self._refresh()

    def _refresh(self) -> None:
        for name, model in list(self._models.items()):
            wanted = self._wanted(name, model.config)
            for number, path in sorted(wanted.items(), reverse=True):
                self._load_version(name, model, number, path)
            for version in list(model.versions.values()):
                if version.error and version.number not in wanted:
                    version.attempts, version.retry_at = 0, 0.0  # it may come back mended
            if model.config is None or any(v.number in wanted for v in model.available):
                for version in [v for v in model.available if v.number not in wanted]:
                    self._unload(version)
            with self._lock:
                ended = [n for n, v in sorted(model.versions.items()) if v.state == END]
                for number in ended[:-ENDED_KEPT]:
                    del model.versions[number]
                if model.config is None:
                    del self._models[name]

    def _watch(self) -> None:
        while not self._stop.wait(self.poll_seconds):
            try:
                self.refresh()
            except Exception:  # a disk that fails today may work tomorrow
                log.exception("looking for versions failed")

    def _configure(self, config: Any) -> None:
        models = checked(config)
        with self._lock:
            for name, model in models.items():
                self._check_labels(name, model)
            for name in self._models:
                if name not in models:
                    self._models[name].config = None  # to be let go of
            for name, model in models.items():
                self._models.setdefault(name, Model(model)).config = model

    def _check_labels(self, name: str, config: Any) -> None:
        known = self._models.get(name)
        if known is None or self._unavailable_labels:
            return
        numbers = {version.number for version in known.available}
        for label, number in config.version_labels.items():
            kept = known.config is not None and known.config.version_labels.get(label) == number
            if number not in numbers and not kept:
                raise RequestError(
                    "FAILED_PRECONDITION",
                    f"Request to assign label to version {number} of model {name}, which is not "
                    "currently available for inference",
                )

    def _wanted(self, name: str, config: Any) -> dict[int, Path]:
        """The versions that the policy of the model asks for, of those on disk."""
        if config is None:
            return {}
        found = versions_below(Path(config.base_path))
        policy = config.model_version_policy
        kind = policy.WhichOneof("policy_choice") or "latest"
        if kind == "specific":
            return {n: path for n, path in found.items() if n in policy.specific.versions}
        if kind == "all":
            return found
        count = policy.latest.num_versions or 1
        return {number: found[number] for number in sorted(found)[-count:]}

    def _load_version(self, name: str, model: Model, number: int, path: Path) -> None:
        version = model.versions.get(number)
        if version is not None and version.state in (LOADING, AVAILABLE, UNLOADING):
            return
        if version is not None and version.error:
            if version.attempts > self._retries or time.monotonic() < version.retry_at:
                return
        elif version is not None:
            version = None  # it was let go of, and is wanted again
        version = version or Version(number, path)
        with self._lock:
            model.versions[number] = version
            version.state = LOADING
        begin = time.monotonic()
        try:
            servable = self._load(name, number, path)
        except Exception as error:  # whatever is wrong with it, the others go on
            with self._lock:
                version.state, version.code = END, getattr(error, "code", None) or "UNKNOWN"
                version.code = version.code if isinstance(version.code, str) else "UNKNOWN"
                version.error = str(error)[:2000] or repr(error)
                version.attempts += 1
                version.retry_at = time.monotonic() + self._retry_seconds
            log.error("%s version %d does not load: %s", name, number, version.error)
            return
        with self._lock:
            version.servable, version.state = servable, AVAILABLE
            version.code, version.error = "OK", ""
        log.info("%s version %d is available after %.1f s", name, number, time.monotonic() - begin)

    def _unload(self, version: Version) -> None:
        """Give it no more requests; it goes with its last one."""
        with self._lock:
            version.state = UNLOADING
        self._close_if_unused(version)

    def _close_if_unused(self, version: Version) -> None:
        with self._lock:
            if version.state != UNLOADING or version.users > 0:
                return
            servable, version.servable, version.state = version.servable, None, END
        if servable is not None:
            servable.close()
            log.info("%s version %d was let go of", servable.name, version.number)


def versions_below(base: Path) -> dict[int, Path]:
    """Directories whose names are numbers, by them."""
    try:
        paths = [p for p in base.iterdir() if p.name.isascii() and p.name.isdigit() and p.is_dir()]
    except OSError as error:
        log.warning("%s cannot be read: %s", base, error)
        return {}
    return {int(path.name): path for path in paths if int(path.name) < 2**63}


def checked(config: Any) -> dict[str, Any]:
    """The models of a `ModelServerConfig` by their names; `RequestError` if it is wrong."""
    if config.WhichOneof("config") != "model_config_list":
        raise invalid("ModelServerConfig must hold a model_config_list")
    models: dict[str, Any] = {}
    for model in config.model_config_list.config:
        if not model.name or not model.base_path:
            raise invalid(f"Every model needs a name and a base_path. Received: {model}")
        if model.name in models:
            raise invalid(f"Illegal to list model {model.name} multiple times in config list")
        if model.model_platform not in ("tensorflow", ""):
            raise invalid(
                f"Model {model.name} requests unsupported platform {model.model_platform}"
            )
        models[model.name] = model
    return models


def one_model(name: str, base_path: str) -> Any:
    """The configuration for one model, as `--model-name` and `--model-base-path` make it."""
    config = ModelServerConfig()
    config.model_config_list.config.add(name=name, base_path=base_path, model_platform="tensorflow")
    return config

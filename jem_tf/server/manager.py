"""The manager of served models: finds versions on disk, loads and unloads them.

Not here: what a version does (`servable.py`), its states (`versions.py`), version policies and
checks of the configuration (`model_config.py`). Messages are TF Serving's.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jem_tf.server import model_files
from jem_tf.server.errors import RequestError, invalid, not_found
from jem_tf.server.model_config import check_labels, models_by_name, select_versions
from jem_tf.server.servable import Servable
from jem_tf.server.versions import AVAILABLE, END, LOADING, UNLOADING, Model, Version

MAX_ENDED_VERSIONS = 20  # unloaded versions of a model that its status still lists
MAX_ERROR_CHARACTERS = 2000
MIN_RETRY_SECONDS = 0.1

log = logging.getLogger("jem_tf.server")


class Manager:
    """Keeps the loaded versions in step with the configuration and the disk.

    A new version is loaded before the old one is unloaded, and a version is unloaded only after
    its last request.

    ```python
    manager = Manager(config, load=Servable)
    manager.start()
    with manager.use("digits") as servable: ...
    ```

    Args:
        config: a `ModelServerConfig` with a list of models.
        load: returns a warmed-up `Servable` for (name, version, path).
        poll_seconds: interval between two scans of the disk; 0: one scan, negative: none. Failed
            loads are retried in any case.
        retries: how often a version that fails to load is tried again.
        retry_seconds: interval between these attempts.
        unavailable_labels: whether new labels may refer to versions that are not loaded.
    """

    def __init__(
        self,
        config: Any,
        load: Callable[[str, int, str], Servable],
        poll_seconds: float = 1.0,
        retries: int = 5,
        retry_seconds: float = 60.0,
        unavailable_labels: bool = False,
    ):
        self._load, self.poll_seconds = load, poll_seconds
        self._retries, self._retry_seconds = retries, retry_seconds
        self._unavailable_labels = unavailable_labels
        self._lock = threading.RLock()  # guards the models and the states of their versions
        self._change_lock = threading.Lock()  # one refresh or reload at a time
        self._stop = threading.Event()
        self._models: dict[str, Model] = {}
        try:
            self._configure(config)
        except RequestError as error:
            option = "--allow-version-labels-for-unavailable-models"
            raise ValueError(f"{error.message}. {option} allows labels at the start.") from error

    @contextmanager
    def use(self, name: str, version: int | None = None, label: str = "") -> Iterator[Servable]:
        """Yield the servable for a request; it stays loaded until the end of the `with` block."""
        with self._lock:
            selected = self._select(name, version, label)
            selected.users += 1
            servable = selected.servable
        assert servable is not None
        try:
            yield servable
        finally:
            with self._lock:
                selected.users -= 1
            self._close_if_unused(selected)

    def _select(self, name: str, number: int | None, label: str) -> Version:
        if not name:
            raise invalid("ModelSpec has no name specified.")
        model = self._models.get(name)
        if label:
            labels = {} if model is None or model.config is None else model.config.version_labels
            if label not in labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            number = labels[label]
        for version in [] if model is None else model.available:
            if number is None or version.number == number:
                return version
        request = f"Latest({name})" if number is None else f"Specific({name}, {number})"
        raise not_found(f"Servable not found for request: {request}")

    def status(self, name: str, version: int | None = None) -> list[Version]:
        """Return the versions of a model, or one of them, the newest first.

        Raise `RequestError` if there are none.
        """
        with self._lock:
            model = self._models.get(name)
            versions = [] if model is None else list(model.versions.values())
            if version is not None:
                versions = [v for v in versions if v.number == version]
            if not versions:
                missing = "any versions" if version is None else f"version {version}"
                raise not_found(f"Could not find {missing} of model {name}")
            return sorted(versions, key=lambda v: -v.number)

    def has_available_version(self, name: str) -> bool:
        """Return whether a version of the model `name` takes requests."""
        with self._lock:
            return bool(self._models[name].available)

    def servables(self) -> list[Servable]:
        """Return the newest available servable of each model."""
        with self._lock:
            newest = [m.available[0].servable for m in self._models.values() if m.available]
            return [servable for servable in newest if servable is not None]

    @property
    def names(self) -> list[str]:
        """The names of the configured models."""
        with self._lock:
            return [name for name, model in self._models.items() if model.config is not None]

    @property
    def ready(self) -> bool:
        """Whether there are models, and every configured one has a version that takes requests."""
        with self._lock:
            configured = [model for model in self._models.values() if model.config is not None]
            return bool(configured) and all(model.available for model in configured)

    def start(self) -> None:
        """Load the versions on disk, then keep looking for changes in the background."""
        if self.poll_seconds >= 0:
            self.refresh()
        threading.Thread(target=self._poll, name="versions", daemon=True).start()

    def stop(self) -> None:
        """Stop looking for changes; loaded versions stay loaded."""
        self._stop.set()

    def _poll(self) -> None:
        polling = self.poll_seconds > 0
        seconds = self.poll_seconds if polling else max(self._retry_seconds, MIN_RETRY_SECONDS)
        while not self._stop.wait(seconds):
            try:
                self.refresh() if polling else self._retry()
            except Exception:  # e.g. a file system that fails temporarily: try again
                log.exception("looking for versions failed")

    def reload(self, config: Any) -> None:
        """Apply a new configuration.

        Raise `RequestError` if it is invalid, or if a new model has no available version.
        """
        with self._change_lock:
            before = self.names
            self._configure(config)
            self._refresh()
            added = [name for name in self.names if name not in before]
            unavailable = [name for name in added if not self.has_available_version(name)]
        if unavailable:
            raise RequestError(
                "UNKNOWN",
                f"{len(unavailable)} model(s) did not become available: {', '.join(unavailable)}",
            )

    def _configure(self, config: Any) -> None:
        configs = models_by_name(config)
        with self._lock:
            for name, model_config in configs.items():
                current = self._models.get(name)
                check_labels(name, model_config, current, self._unavailable_labels)
            for name, model in self._models.items():
                if name not in configs:
                    model.config = None  # the next refresh unloads it
            for name, model_config in configs.items():
                self._models.setdefault(name, Model(model_config)).config = model_config

    def refresh(self) -> None:
        """Load the versions that the policies select, and unload the others."""
        with self._change_lock:
            self._refresh()

    def _refresh(self) -> None:
        for name, model in list(self._models.items()):
            paths = {} if model.config is None else _selected_paths(model.config)
            if paths is None:
                continue  # the directory cannot be read now: its models stay as they are
            for number, path in sorted(paths.items(), reverse=True):
                self._load_version(name, model, number, path)
            for version in list(model.versions.values()):
                if version.error and version.number not in paths:
                    version.attempts, version.retry_at = 0, 0.0  # it may return repaired
            if not paths or any(v.number in paths for v in model.available):
                for version in [v for v in model.available if v.number not in paths]:
                    self._unload(version)
            with self._lock:
                ended = [n for n, v in sorted(model.versions.items()) if v.state == END]
                for number in ended[:-MAX_ENDED_VERSIONS]:
                    del model.versions[number]

    def _retry(self) -> None:
        """Try again to load the versions that failed."""
        with self._change_lock:
            for name, model in list(self._models.items()):
                failed = [v for v in model.versions.values() if v.error]
                for version in failed if model.config is not None else ():
                    self._load_version(name, model, version.number, version.path)

    def _load_version(self, name: str, model: Model, number: int, path: str) -> None:
        version = model.versions.get(number)
        if version is not None and version.state in (LOADING, AVAILABLE, UNLOADING):
            return
        if version is None or not version.error:  # new, or unloaded before
            version = Version(number, path)
        elif version.attempts > self._retries or time.monotonic() < version.retry_at:
            return
        with self._lock:
            model.versions[number] = version
            version.state = LOADING
        start = time.monotonic()
        try:
            servable = self._load(name, number, path)
        except Exception as error:  # any failure of one version: the others stay available
            with self._lock:
                code = getattr(error, "code", None) or "UNKNOWN"
                version.state, version.code = END, code if isinstance(code, str) else "UNKNOWN"
                version.error = str(error)[:MAX_ERROR_CHARACTERS] or repr(error)
                version.attempts += 1
                version.retry_at = time.monotonic() + self._retry_seconds
            log.error("%s version %d failed to load: %s", name, number, version.error)
            return
        with self._lock:
            version.servable, version.state = servable, AVAILABLE
            version.code, version.error = "OK", ""
        log.info("%s version %d is available after %.1f s", name, number, time.monotonic() - start)

    def _unload(self, version: Version) -> None:
        """Stop giving requests to a version; it is closed after its last request."""
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
            log.info("%s version %d was unloaded", servable.name, version.number)


def _selected_paths(config: Any) -> dict[int, str] | None:
    """Return the versions on disk that a model should serve; None if they cannot be listed."""
    try:
        paths = model_files.versions(config.base_path)
    except OSError as error:
        log.warning("%s cannot be read: %s", config.base_path, error)
        return None
    return select_versions(config, paths)

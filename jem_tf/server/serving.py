"""A server from its options: loads, listens, drains.

Not here: the flags (`cli.py`).
"""

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

from jem_tf.server import configuration, grpc_api, protos, rest_api
from jem_tf.server.flags import Options
from jem_tf.server.manager import Manager
from jem_tf.server.metrics import Metrics
from jem_tf.server.servable import Servable
from jem_tf.server.service import Service

log = logging.getLogger("jem_tf.server")


class ModelServer:
    """Serves SavedModels as TF Serving does.

    ```python
    with ModelServer(Options(model_name="digits", model_base_path="saved_models/digits")):
        ...
    ```
    """

    def __init__(self, options: Options):
        import tensorflow as tf

        for kind in ("intra", "inter"):
            threads = getattr(options, f"tensorflow_{kind}_op_parallelism")
            if threads:
                getattr(tf.config.threading, f"set_{kind}_op_parallelism_threads")(threads)
        self.options = options
        batching, tags = configuration.batching(options), options.saved_model_tags.split(",")

        def load(name: str, version: int, path: Path) -> Servable:
            servable = Servable(name, version, path, batching, tags)
            if options.enable_model_warmup:
                self.service.warm_up(servable)
            return servable

        self.manager = Manager(
            configuration.models(options),
            load,
            options.file_system_poll_wait_seconds,
            options.max_num_load_retries,
            options.load_retry_interval_micros / 1e6,
            options.allow_version_labels_for_unavailable_models,
        )
        self.service = Service(self.manager, Metrics(), options.max_message_bytes)
        self._stop = threading.Event()
        for port in filter(None, (options.port, options.rest_api_port)):
            bound(options.host, port).close()  # a mistake is told before models are loaded
        self._grpc = grpc_api.Server(self.service, options) if options.port else None
        self._rest: uvicorn.Server | None = None
        if options.rest_api_port:
            tls = configuration.tls(options)
            context = None if tls is None else tls.context()
            config = uvicorn.Config(
                rest_api.App(self.service, options),
                log_config=None,
                access_log=False,
                timeout_keep_alive=configuration.KEEP_ALIVE,
                timeout_graceful_shutdown=int(options.drain_seconds),
                ssl_context_factory=None if context is None else lambda *_: context,
            )
            self._rest = uvicorn.Server(config)

    def __enter__(self) -> "ModelServer":
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Load the models, then listen: who can connect, is answered."""
        self.manager.start()
        for name in self.manager.names:
            if not any(v.state == "AVAILABLE" for v in self.manager.versions_of(name)):
                log.warning("%s has no version that answers yet", name)
        if self._grpc is not None:
            self._grpc.start()
        if self._rest is not None:
            self._socket = bound(self.options.host, self.options.rest_api_port)
            self._socket.listen(1024)
            self._thread = threading.Thread(target=self._serve_rest, name="rest", daemon=True)
            self._thread.start()
            while not self._rest.started:
                if not self._thread.is_alive():
                    raise OSError("The REST API did not start.")
                time.sleep(0.01)
        seconds = self.options.model_config_file_poll_wait_seconds
        if self.options.model_config_file and seconds > 0:
            threading.Thread(target=self._follow_file, args=(seconds,), daemon=True).start()

    def _serve_rest(self) -> None:
        assert self._rest is not None
        with asyncio.Runner(loop_factory=self._rest.config.get_loop_factory()) as runner:
            runner.run(self._rest.serve(sockets=[self._socket]))

    def _follow_file(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                file = self.options.model_config_file
                self.manager.reload(protos.read(file, protos.ModelServerConfig))
            except Exception as error:  # the models that are served stay as they are
                log.error("the configuration was not taken: %s", error)

    def stop(self) -> None:
        """Take no more requests, and answer those that came."""
        self._stop.set()
        self.manager.stop()
        if self._rest is not None:
            self._rest.should_exit = True
        if self._grpc is not None:
            self._grpc.stop(self.options.drain_seconds)
        if self._rest is not None:
            self._thread.join(self.options.drain_seconds)

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C."""
        over = threading.Event()
        self.start()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            signal.signal(number, lambda *_: over.set())
        gc.collect()
        gc.freeze()  # or collections would look through all of TensorFlow, and requests wait
        print(self.address(), flush=True)
        over.wait()
        for number in signals:
            signal.signal(number, signal.SIG_DFL)  # the next one ends it at once
        print("Draining", flush=True)
        self.stop()
        sys.stdout.flush()
        os._exit(0)  # whatever still runs has had its time

    def address(self) -> str:
        """Where it listens, in words."""
        options = self.options
        places = [f"gRPC at {options.host}:{options.port}"] if options.port else []
        if options.rest_api_port:
            scheme = "https" if options.ssl_config_file else "http"
            here = f"{scheme}://{options.host}:{options.rest_api_port}/"
            places.append(f"REST at {here}v1/models")
            if options.inspector:
                places.append(f"a page to try it at {here}")
        return f"Serving {', '.join(self.manager.names)}: {', '.join(places)}"


class JsonLines(logging.Formatter):
    """A line of JSON for each record."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def bound(host: str, port: int) -> socket.socket:
    """A socket that says it is TCP, or asyncio would let answers wait for acknowledgements."""
    try:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        raise OSError(f"Cannot listen at {host}:{port}: {error}") from error
    return made

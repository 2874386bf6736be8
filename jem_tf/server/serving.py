"""A server built from its options: loads models, listens, drains.

Not here: the command line (`jem_tf.cli`), the options (`flags.py`).
"""

import asyncio
import gc
import json
import logging
import os
import signal
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
from jem_tf.server.sockets import bind_socket

log = logging.getLogger("jem_tf.server")


class ModelServer:
    """Serves SavedModels as TF Serving does.

    ```python
    with ModelServer(Options(model_name="digits", model_base_path="saved_models/digits")):
        ...
    ```
    """

    def __init__(self, options: Options):
        _set_tensorflow_threads(options)
        self.options = options
        batching = configuration.read_batching(options)
        tags = options.saved_model_tags.split(",")

        def load(name: str, version: int, path: Path) -> Servable:
            servable = Servable(name, version, path, batching, tags)
            if options.enable_model_warmup:
                self.service.warm_up(servable)
            return servable

        self.manager = Manager(
            configuration.read_model_config(options),
            load,
            options.file_system_poll_wait_seconds,
            options.max_num_load_retries,
            options.load_retry_interval_micros / 1e6,
            options.allow_version_labels_for_unavailable_models,
        )
        self.service = Service(self.manager, Metrics(), options.max_message_bytes)
        self._stop = threading.Event()
        for port in filter(None, (options.port, options.rest_api_port)):
            bind_socket(options.host, port).close()  # fails before models are loaded
        self._grpc = grpc_api.GrpcServer(self.service, options) if options.port else None
        self._rest = self._make_rest_server() if options.rest_api_port else None

    def _make_rest_server(self) -> uvicorn.Server:
        tls = configuration.read_tls(self.options)
        context = None if tls is None else tls.ssl_context()
        config = uvicorn.Config(
            rest_api.RestApp(self.service, self.options),
            log_config=None,
            access_log=False,
            timeout_keep_alive=configuration.KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(self.options.drain_seconds),
            ssl_context_factory=None if context is None else lambda *_: context,
        )
        return uvicorn.Server(config)

    def __enter__(self) -> "ModelServer":
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Load the models, then listen: a client that can connect gets answers."""
        self.manager.start()
        for name in self.manager.names:
            if not self.manager.has_available_version(name):
                log.warning("%s has no available version yet", name)
        if self._grpc is not None:
            self._grpc.start()
        if self._rest is not None:
            self._socket = bind_socket(self.options.host, self.options.rest_api_port)
            self._socket.listen(1024)
            self._thread = threading.Thread(target=self._serve_rest, name="rest", daemon=True)
            self._thread.start()
            while not self._rest.started:
                if not self._thread.is_alive():
                    raise OSError("The REST API did not start.")
                time.sleep(0.01)
        seconds = self.options.model_config_file_poll_wait_seconds
        if self.options.model_config_file and seconds > 0:
            threading.Thread(target=self._poll_config_file, args=(seconds,), daemon=True).start()

    def _serve_rest(self) -> None:
        assert self._rest is not None
        with asyncio.Runner(loop_factory=self._rest.config.get_loop_factory()) as runner:
            runner.run(self._rest.serve(sockets=[self._socket]))

    def _poll_config_file(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                file = self.options.model_config_file
                self.manager.reload(protos.read_text_proto(file, protos.ModelServerConfig))
            except Exception as error:  # the models that are served stay as they are
                log.error("the configuration file was not applied: %s", error)

    def stop(self) -> None:
        """Refuse new requests, and wait up to `drain_seconds` for those in progress."""
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
        stop_requested = threading.Event()
        self.start()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            signal.signal(number, lambda *_: stop_requested.set())
        gc.collect()
        gc.freeze()  # otherwise collections scan all of TensorFlow's objects and delay requests
        print(self.address(), flush=True)
        stop_requested.wait()
        for number in signals:
            signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
        print("Draining", flush=True)
        self.stop()
        sys.stdout.flush()
        os._exit(0)  # requests that exceed the drain time must not keep the process alive

    def address(self) -> str:
        """Return a sentence that says where the server listens."""
        options = self.options
        places = [f"gRPC at {options.host}:{options.port}"] if options.port else []
        if options.rest_api_port:
            scheme = "https" if options.ssl_config_file else "http"
            url = f"{scheme}://{options.host}:{options.rest_api_port}/"
            places.append(f"REST at {url}v1/models")
            if options.inspector:
                places.append(f"inspector at {url}")
        return f"Serving {', '.join(self.manager.names)}: {', '.join(places)}"


class JsonLines(logging.Formatter):
    """Formats each log record as one line of JSON.

    ```python
    handler.setFormatter(JsonLines())
    ```
    """

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


def _set_tensorflow_threads(options: Options) -> None:
    import tensorflow as tf

    if options.tensorflow_intra_op_parallelism:
        tf.config.threading.set_intra_op_parallelism_threads(
            options.tensorflow_intra_op_parallelism
        )
    if options.tensorflow_inter_op_parallelism:
        tf.config.threading.set_inter_op_parallelism_threads(
            options.tensorflow_inter_op_parallelism
        )

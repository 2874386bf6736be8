"""A server built from its options: loads models, listens, drains.

Not here: the command line (`jem_tf.cli`), the options (`flags.py`), listening (`transports.py`).
"""

import gc
import json
import logging
import os
import signal
import sys
import threading
from typing import Any

from jem_tf.server import configuration, protos
from jem_tf.server.flags import Options
from jem_tf.server.manager import Manager
from jem_tf.server.metrics import Metrics
from jem_tf.server.servable import Servable
from jem_tf.server.service import Service
from jem_tf.server.sockets import format_address
from jem_tf.server.transports import Transports

log = logging.getLogger("jem_tf.server")
SWITCH_SECONDS = 0.02  # threads of requests are many: each change of thread has its price
BATCHES = 64  # a request may have as many rows as so many of the largest batches


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

        def load(name: str, version: int, path: str) -> Servable:
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
        largest_batch = (batching or configuration.Batching()).max_batch_size
        self.service = Service(
            self.manager,
            Metrics(),
            options.max_message_bytes,
            options.max_rows or BATCHES * largest_batch,
            options.max_sample_rows,
        )
        self._stop = threading.Event()
        self._transports = Transports(self.service, options)

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
        self._transports.start()
        seconds = self.options.model_config_file_poll_wait_seconds
        if self.options.model_config_file and seconds > 0:
            threading.Thread(target=self._poll_config_file, args=(seconds,), daemon=True).start()

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
        self._transports.stop()

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C."""
        stop_requested = threading.Event()
        self.start()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            signal.signal(number, lambda *_: stop_requested.set())
        sys.setswitchinterval(SWITCH_SECONDS)
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
        grpc_address = format_address(options.host, options.port)
        places = [f"gRPC at {grpc_address}"] if options.port else []
        if options.rest_api_port:
            scheme = "https" if options.ssl_config_file else "http"
            url = f"{scheme}://{format_address(options.host, options.rest_api_port)}/"
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

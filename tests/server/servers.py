"""Servers in this process and connections to servers."""

import contextlib
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from jem_tf.server import Options
from jem_tf.server.serving import ModelServer


@dataclass
class Connections:
    """Connections to a server over both transports; `server` is None if it is a real TF Serving."""

    channel: Any
    predictions: Any
    models: Any
    rest: httpx.Client
    server: ModelServer | None = None

    @property
    def addresses(self):
        """The addresses for a `JEMClient` by transport."""
        options = self.server.options
        return {
            "grpc": f"127.0.0.1:{options.port}",
            "rest": f"http://127.0.0.1:{options.rest_api_port}",
        }


def connect(grpc_address, rest_address, server=None):
    channel = grpc.insecure_channel(grpc_address)
    return Connections(
        channel,
        prediction_service_pb2_grpc.PredictionServiceStub(channel),
        model_service_pb2_grpc.ModelServiceStub(channel),
        httpx.Client(base_url=f"http://{rest_address}", timeout=60.0),
        server,
    )


def start_server(**options):
    """Start a server at free ports; return connections to it."""
    for _ in range(3):  # another process may take a port that was free
        port, rest = free_ports(2)
        with contextlib.suppress(OSError):
            server = ModelServer(
                Options(port=port, rest_api_port=rest, drain_seconds=5.0, **options)
            )
            server.start()
            return connect(f"127.0.0.1:{port}", f"127.0.0.1:{rest}", server)
    raise OSError("No free ports in three attempts.")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def model_config(directory, **base_paths):
    """Write a ModelServerConfig for models by name; return the path of the file."""
    models = [
        f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}'
        for name, path in base_paths.items()
    ]
    file = Path(directory) / "models.config"
    file.write_text("model_config_list { " + "\n".join(models) + " }")
    return str(file)


def command(*words):
    """Return the command line of `jem-tf` with `words`."""
    return [sys.executable, "-m", "jem_tf_cli", *map(str, words)]


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.02)

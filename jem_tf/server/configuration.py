"""What the files of a server's settings say, checked before it listens.

Not here: the settings themselves (`flags.py`).
"""

import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from jem_tf.server import protos
from jem_tf.server.errors import RequestError
from jem_tf.server.flags import Options
from jem_tf.server.manager import checked, one_model

METRICS_PATH = "/monitoring/prometheus/metrics"
# Seconds that idle connections stay open: longer than clients keep them (httpx: 5), or a request
# may be sent while its connection is being closed.
KEEP_ALIVE = 75


@dataclass(frozen=True)
class Batching:
    """How requests are put together; the defaults are TF Serving's but for the batch size."""

    max_batch_size: int = 64
    timeout_micros: int = 0
    max_enqueued: int = 10
    threads: int = os.cpu_count() or 1
    allowed_sizes: Sequence[int] = ()

    @classmethod
    def read(cls, path: str | Path) -> "Batching":
        """From a text proto `BatchingParameters`."""
        found = protos.read(path, protos.BatchingParameters)

        def value(name: str, default: int, least: int = 1) -> int:
            number = getattr(found, name).value if found.HasField(name) else default
            if number < least:
                raise ValueError(f"{name} in {str(path)!r} must be at least {least}: {number}")
            return number

        if found.pad_variable_length_inputs:
            raise ValueError(f"pad_variable_length_inputs in {str(path)!r} is not supported here")
        largest = value("max_batch_size", 1000)
        sizes = tuple(found.allowed_batch_sizes)
        if sizes and (sizes[-1] != largest or list(sizes) != sorted(set(sizes)) or sizes[0] < 1):
            raise ValueError(
                f"allowed_batch_sizes in {str(path)!r} must rise, and end with max_batch_size "
                f"{largest}. Received: {list(sizes)}"
            )
        return cls(
            largest,
            value("batch_timeout_micros", 0, 0),
            value("max_enqueued_batches", 10),
            value("num_batch_threads", os.cpu_count() or 1),
            sizes,
        )


@dataclass(frozen=True)
class Tls:
    """Keys and certificates, as PEM; `authority` signs those of clients."""

    key: str
    certificate: str
    authority: str = ""
    verify_client: bool = False

    @classmethod
    def read(cls, path: str | Path) -> "Tls":
        """From a text proto `SSLConfig`."""
        found = protos.read(path, protos.SSLConfig)
        if not found.server_key or not found.server_cert:
            raise ValueError(f"{str(path)!r} must hold server_key and server_cert, as PEM")
        if found.client_verify and not found.custom_ca:
            raise ValueError(f"client_verify in {str(path)!r} needs custom_ca, as PEM")
        return cls(found.server_key, found.server_cert, found.custom_ca, found.client_verify)

    def grpc(self) -> Any:
        roots = self.authority.encode() if self.verify_client else None
        pair = (self.key.encode(), self.certificate.encode())
        return grpc.ssl_server_credentials([pair], roots, self.verify_client)

    def context(self) -> ssl.SSLContext:
        """The same for REST."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as directory:  # ssl reads keys from files only
            chain, key = Path(directory, "cert.pem"), Path(directory, "key.pem")
            chain.write_text(self.certificate)
            key.touch(0o600)
            key.write_text(self.key)
            context.load_cert_chain(chain, key)
        if self.verify_client:
            context.load_verify_locations(cadata=self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def models(options: Options) -> Any:
    """The `ModelServerConfig` to begin with, checked."""
    if options.model_config_file:
        config = protos.read(options.model_config_file, protos.ModelServerConfig)
    elif options.model_base_path:
        config = one_model(options.model_name, str(Path(options.model_base_path).resolve()))
    else:
        raise ValueError("Say what to serve: a directory, or --model-config-file FILE.")
    try:
        checked(config)
    except RequestError as error:
        raise ValueError(error.message) from error
    return config


def batching(options: Options) -> Batching | None:
    """How to batch, if at all."""
    file = options.batching_parameters_file
    if not options.enable_batching:
        if file:
            raise ValueError("--batching-parameters-file needs --enable-batching.")
        return None
    return Batching.read(file) if file else Batching()


def metrics_path(options: Options) -> str | None:
    """Where Prometheus asks; None if the monitoring file switches that off."""
    if not options.monitoring_config_file:
        return METRICS_PATH
    found = protos.read(options.monitoring_config_file, protos.MonitoringConfig).prometheus_config
    return (found.path or METRICS_PATH) if found.enable else None


def tls(options: Options) -> Tls | None:
    """Keys and certificates, if there are any."""
    return Tls.read(options.ssl_config_file) if options.ssl_config_file else None

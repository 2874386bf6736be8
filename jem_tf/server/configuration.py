"""Settings in files (batching, TLS, monitoring, models), checked before the server listens.

Not here: the options that name the files (`flags.py`).
"""

import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from jem_tf.server import model_files, protos
from jem_tf.server.errors import RequestError
from jem_tf.server.flags import Options
from jem_tf.server.model_config import models_by_name, single_model_config

METRICS_PATH = "/monitoring/prometheus/metrics"
# Idle connections must stay open longer than clients keep them (httpx: 5 s). Otherwise a request
# may be sent while the server closes its connection.
KEEP_ALIVE_SECONDS = 75


@dataclass(frozen=True)
class Batching:
    """How requests are combined into batches; the defaults are TF Serving's except the batch size.

    ```python
    Batching(max_batch_size=32, timeout_micros=1000)
    Batching.from_file("batching.config")
    ```
    """

    max_batch_size: int = 64
    timeout_micros: int = 0
    max_enqueued: int = 10
    threads: int = os.cpu_count() or 1
    allowed_sizes: Sequence[int] = ()

    @classmethod
    def from_file(cls, path: str | Path) -> "Batching":
        """Read a text proto `BatchingParameters`; raise `ValueError` if a value is invalid."""
        parameters = protos.read_text_proto(path, protos.BatchingParameters)

        def value(name: str, default: int, minimum: int = 1) -> int:
            number = getattr(parameters, name).value if parameters.HasField(name) else default
            if number < minimum:
                raise ValueError(f"{name} in {str(path)!r} must be at least {minimum}: {number}")
            return number

        if parameters.pad_variable_length_inputs:
            raise ValueError(f"pad_variable_length_inputs in {str(path)!r} is not supported")
        max_size = value("max_batch_size", 1000)
        sizes = list(parameters.allowed_batch_sizes)
        if sizes and (sizes[-1] != max_size or sizes != sorted(set(sizes)) or sizes[0] < 1):
            raise ValueError(
                f"allowed_batch_sizes in {str(path)!r} must increase, and end with max_batch_size "
                f"{max_size}. Received: {sizes}"
            )
        return cls(
            max_size,
            value("batch_timeout_micros", 0, 0),
            value("max_enqueued_batches", 10),
            value("num_batch_threads", os.cpu_count() or 1),
            tuple(sizes),
        )


@dataclass(frozen=True)
class Tls:
    """Key and certificate of the server as PEM; `authority` signs the certificates of clients.

    ```python
    Tls.from_file("ssl.config").ssl_context()
    ```
    """

    key: str
    certificate: str
    authority: str = ""
    verify_client: bool = False

    @classmethod
    def from_file(cls, path: str | Path) -> "Tls":
        """Read a text proto `SSLConfig`; raise `ValueError` if it is incomplete."""
        config = protos.read_text_proto(path, protos.SSLConfig)
        if not config.server_key or not config.server_cert:
            raise ValueError(f"{str(path)!r} must hold server_key and server_cert, as PEM")
        if config.client_verify and not config.custom_ca:
            raise ValueError(f"client_verify in {str(path)!r} needs custom_ca, as PEM")
        tls = cls(config.server_key, config.server_cert, config.custom_ca, config.client_verify)
        try:
            tls.ssl_context()
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(
                f"{str(path)!r} must hold PEM: a server_key, the server_cert that belongs to it, "
                f"and, if client_verify is set, a custom_ca. Received: {error}"
            ) from error
        return tls

    def grpc_credentials(self) -> Any:
        """Return the credentials for a gRPC port."""
        roots = self.authority.encode() if self.verify_client else None
        pair = (self.key.encode(), self.certificate.encode())
        return grpc.ssl_server_credentials([pair], roots, self.verify_client)

    def ssl_context(self) -> ssl.SSLContext:
        """Return the context for the REST API."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as directory:  # `ssl` reads keys from files only
            chain, key = Path(directory, "cert.pem"), Path(directory, "key.pem")
            chain.write_text(self.certificate)
            key.touch(0o600)
            key.write_text(self.key)
            context.load_cert_chain(chain, key)
        if self.verify_client:
            context.load_verify_locations(cadata=self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def read_model_config(options: Options) -> Any:
    """Return the `ModelServerConfig` to start with; raise `ValueError` if it is invalid."""
    if options.model_config_file:
        config = protos.read_text_proto(options.model_config_file, protos.ModelServerConfig)
    elif options.model_base_path:
        base_path = model_files.absolute(options.model_base_path)
        config = single_model_config(options.model_name, base_path)
    else:
        raise ValueError("There is nothing to serve: give a directory or --model-config-file FILE.")
    try:
        models_by_name(config)
    except RequestError as error:
        raise ValueError(error.message) from error
    return config


def read_batching(options: Options) -> Batching | None:
    """Return how to batch requests; None if batching is off."""
    file = options.batching_parameters_file
    if not options.enable_batching:
        if file:
            raise ValueError("--batching-parameters-file needs --enable-batching.")
        return None
    return Batching.from_file(file) if file else Batching()


def read_metrics_path(options: Options) -> str | None:
    """Return the HTTP path of the metrics; None if the monitoring file turns them off."""
    if not options.monitoring_config_file:
        return METRICS_PATH
    file = options.monitoring_config_file
    config = protos.read_text_proto(file, protos.MonitoringConfig).prometheus_config
    return (config.path or METRICS_PATH) if config.enable else None


def read_tls(options: Options) -> Tls | None:
    """Return keys and certificates; None if the server runs without TLS."""
    return Tls.from_file(options.ssl_config_file) if options.ssl_config_file else None

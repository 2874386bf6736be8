"""The settings of a server, by the names of TF Serving's flags.

Not here: how the command line gives them (`cli.py`).
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
from jem_tf.server.manager import checked, one_model

METRICS_PATH = "/monitoring/prometheus/metrics"


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


@dataclass(frozen=True)
class Options:
    """Everything `serve` can be told; a `_file` is a text proto of TF Serving's."""

    model_name: str = "default"
    model_base_path: str = ""
    model_config_file: str = ""
    model_config_file_poll_wait_seconds: float = 0.0
    host: str = "127.0.0.1"
    port: int = 8500
    rest_api_port: int = 8501
    rest_api_timeout_in_ms: int = 30_000
    rest_api_enable_cors_support: bool = False
    enable_batching: bool = False
    batching_parameters_file: str = ""
    file_system_poll_wait_seconds: float = 1.0
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000
    allow_version_labels_for_unavailable_models: bool = False
    enable_model_warmup: bool = True
    saved_model_tags: str = "serve"
    monitoring_config_file: str = ""
    ssl_config_file: str = ""
    tensorflow_intra_op_parallelism: int = 0
    tensorflow_inter_op_parallelism: int = 0
    grpc_max_threads: int = 64
    max_message_bytes: int = 2**26
    max_concurrent_requests: int = 256
    drain_seconds: float = 30.0

    def models(self) -> Any:
        """The `ModelServerConfig` to begin with, checked."""
        if self.model_config_file:
            config = protos.read(self.model_config_file, protos.ModelServerConfig)
        elif self.model_base_path:
            config = one_model(self.model_name, str(Path(self.model_base_path).resolve()))
        else:
            raise ValueError("Say what to serve: --model-base-path DIR, or --model-config-file.")
        checked(config)
        return config

    def batching(self) -> Batching | None:
        if self.batching_parameters_file and not self.enable_batching:
            raise ValueError("--batching-parameters-file needs --enable-batching.")
        if not self.enable_batching:
            return None
        file = self.batching_parameters_file
        return Batching.read(file) if file else Batching()

    def metrics_path(self) -> str | None:
        """Where Prometheus asks; None if the monitoring file switches that off."""
        if not self.monitoring_config_file:
            return METRICS_PATH
        found = protos.read(self.monitoring_config_file, protos.MonitoringConfig).prometheus_config
        return (found.path or METRICS_PATH) if found.enable else None

    def tls(self) -> Tls | None:
        return Tls.read(self.ssl_config_file) if self.ssl_config_file else None

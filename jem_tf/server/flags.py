"""The settings of a server, by the names of TF Serving's flags: plain data.

Not here: what the files among them hold (`configuration.py`).
"""

from dataclasses import dataclass, field
from typing import Any

IGNORED = (  # flags of TF Serving that change nothing here
    "rest_api_num_threads",
    "num_load_threads",
    "num_unload_threads",
    "flush_filesystem_caches",
    "per_process_gpu_memory_fraction",
    "num_request_iterations_for_warmup",
    "remove_unused_fields_from_bundle_metagraph",
    "enable_signature_method_name_check",
    "enable_profiler",
    "enable_grpc_healthcheck_service",
    "enable_serialization_as_tensor_content",
    "grpc_channel_arguments",
    "grpc_socket_path",
    "enable_per_model_batching_parameters",
    "tensorflow_session_parallelism",
    "tensorflow_session_config_file",
    "platform_config_file",
    "prefer_tflite_model",
    "num_tflite_pools",
    "num_tflite_interpreters_per_pool",
    "xla_cpu_compilation_enabled",
    "xla_gpu_compilation_enabled",
    "thread_pool_factory_config_file",
    "mixed_precision",
    "skip_initialize_tpu",
)


def _flag(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True)
class Options:
    """Everything a server can be told, by the names of TF Serving's flags where it has them."""

    model_name: str = _flag("default", "name in requests (default: that of the directory)")
    model_base_path: str = _flag("", "directory with a directory for each version")
    model_config_file: str = _flag(
        "", "text proto ModelServerConfig: several models, policies, labels"
    )
    model_config_file_poll_wait_seconds: float = _flag(
        0.0, "read that file again so often; 0: never"
    )
    host: str = _flag("127.0.0.1", "address to listen at; 0.0.0.0 for everyone")
    port: int = _flag(8500, "of gRPC; 0: none")
    rest_api_port: int = _flag(8501, "of REST; 0: none")
    rest_api_timeout_in_ms: int = _flag(30_000, "for one request")
    rest_api_enable_cors_support: bool = _flag(False, "let pages of other sites ask")
    inspector: bool = _flag(True, "a page at / to try the models with; off: --no-inspector")
    enable_batching: bool = _flag(False, "run requests that come together as one batch")
    batching_parameters_file: str = _flag("", "text proto BatchingParameters")
    file_system_poll_wait_seconds: float = _flag(1.0, "look for versions so often; 0: once")
    max_num_load_retries: int = _flag(5, "for a version that does not load")
    load_retry_interval_micros: int = _flag(60_000_000, "between them")
    allow_version_labels_for_unavailable_models: bool = _flag(False, "labels before versions")
    enable_model_warmup: bool = _flag(True, "replay the requests that came with a model")
    saved_model_tags: str = _flag("serve", "of the graph to load")
    monitoring_config_file: str = _flag("", "text proto MonitoringConfig")
    ssl_config_file: str = _flag("", "text proto SSLConfig: TLS for gRPC and REST")
    tensorflow_intra_op_parallelism: int = _flag(0, "threads of an operation; 0: all cores")
    tensorflow_inter_op_parallelism: int = _flag(0, "operations at a time; 0: all cores")
    grpc_max_threads: int = _flag(64, "requests answered at a time, of each transport")
    max_message_bytes: int = _flag(2**26, "of a request")
    max_concurrent_requests: int = _flag(256, "more are refused")
    drain_seconds: float = _flag(30.0, "for requests to end after SIGTERM")

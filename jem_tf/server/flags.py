"""The settings of a server as plain data, with the names of TF Serving's flags.

Not here: the content of the configuration files (`configuration.py`).
"""

from dataclasses import dataclass, field
from typing import Any

IGNORED = (  # flags of TF Serving that are accepted and have no effect
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


def _flag(default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True)
class Options:
    """The settings of a server, with the names of TF Serving's flags where TF Serving has them.

    ```python
    Options(model_name="digits", model_base_path="saved_models/digits", enable_batching=True)
    ```
    """

    model_name: str = _flag("default", "name of the model in requests (default: the directory's)")
    model_base_path: str = _flag("", "directory with one subdirectory per version")
    model_config_file: str = _flag(
        "", "text proto ModelServerConfig: several models, version policies, labels"
    )
    model_config_file_poll_wait_seconds: float = _flag(
        0.0, "interval at which --model-config-file is read again; 0: never"
    )
    host: str = _flag("127.0.0.1", "address to listen at; 0.0.0.0 for all interfaces")
    port: int = _flag(8500, "port of gRPC; 0: no gRPC")
    rest_api_port: int = _flag(8501, "port of the REST API; 0: no REST API")
    rest_api_timeout_in_ms: int = _flag(30_000, "timeout of a REST request; 0: none")
    rest_api_enable_cors_support: bool = _flag(False, "allow requests from pages of other sites")
    allowed_hosts: str = _flag(
        "", "names of this server, by commas, besides localhost and addresses; *: any"
    )
    auth_token_file: str = _flag("", "file with a bearer token that every request must have")
    inspector: bool = _flag(True, "serve a page at / to try the models; off: --no-inspector")
    enable_batching: bool = _flag(False, "run concurrent requests as one batch")
    batching_parameters_file: str = _flag("", "text proto BatchingParameters")
    file_system_poll_wait_seconds: float = _flag(
        1.0, "interval at which new versions are looked for; 0: only at the start"
    )
    max_num_load_retries: int = _flag(5, "retries for a version that fails to load")
    load_retry_interval_micros: int = _flag(60_000_000, "interval between these retries")
    allow_version_labels_for_unavailable_models: bool = _flag(
        False, "allow labels for versions that are not loaded"
    )
    enable_model_warmup: bool = _flag(True, "replay the warm-up requests of a model at loading")
    saved_model_tags: str = _flag("serve", "tags of the graph to load")
    monitoring_config_file: str = _flag("", "text proto MonitoringConfig")
    ssl_config_file: str = _flag("", "text proto SSLConfig: TLS for gRPC and REST")
    tensorflow_intra_op_parallelism: int = _flag(0, "threads per operation; 0: all cores")
    tensorflow_inter_op_parallelism: int = _flag(0, "operations run in parallel; 0: all cores")
    enable_reload_config: bool = _flag(True, "accept HandleReloadConfigRequest")
    enable_grpc_reflection: bool = _flag(False, "let clients list the gRPC services")
    grpc_max_threads: int = _flag(64, "threads that answer requests")
    grpc_compression: bool = _flag(
        False, "accept compressed messages over gRPC, each up to --max-message-bytes in memory"
    )
    max_message_bytes: int = _flag(2**26, "largest accepted request")
    max_memory_bytes: int = _flag(2**28, "memory for the contents of all requests in progress")
    max_rows: int = _flag(0, "rows of a request; 0: 64 times the largest batch")
    max_sample_rows: int = _flag(256, "rows of a request to `sample`, which takes many steps a row")
    max_concurrent_requests: int = _flag(256, "requests in progress; further ones are refused")
    max_connections: int = _flag(1024, "open connections, per transport")
    max_connections_per_client: int = _flag(256, "open connections of the REST API, per address")
    header_timeout_seconds: float = _flag(
        10.0, "time for a client to send the headers of a request"
    )
    body_timeout_seconds: float = _flag(30.0, "time for a client to send a request after them")
    idle_timeout_seconds: float = _flag(75.0, "time after which connections without requests close")
    drain_seconds: float = _flag(30.0, "time for requests to finish after SIGTERM")

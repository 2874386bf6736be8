"""TF Serving's configuration files: text protos, read with their own messages.

Not here: what they mean (`options.py`, `manager.py`). The Python package of TF Serving's protos
lacks three of them; they are described here, with the same fields.
"""

from pathlib import Path
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

ModelServerConfig = model_server_config_pb2.ModelServerConfig
_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
}


def _messages(messages: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Message classes from `{message: {field: type}}`; `*type` is repeated."""
    package = "jem_tf.server"
    file = descriptor_pb2.FileDescriptorProto(
        name="jem_tf/server/config.proto",
        package=package,
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            label = _Field.LABEL_REPEATED if kind[0] == "*" else _Field.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            added = message.field.add(name=field, number=number, label=label)
            if kind in _KINDS:
                added.type = _KINDS[kind]
            else:
                added.type = _Field.TYPE_MESSAGE
                local = kind in messages
                added.type_name = f".{package}.{kind}" if local else f".google.protobuf.{kind}"
    pool = descriptor_pool.Default()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {n: message_factory.GetMessageClass(find(f"{package}.{n}")) for n in messages}


_made = _messages(
    {
        "BatchingParameters": {
            "max_batch_size": "Int64Value",
            "batch_timeout_micros": "Int64Value",
            "max_enqueued_batches": "Int64Value",
            "num_batch_threads": "Int64Value",
            "thread_pool_name": "StringValue",
            "allowed_batch_sizes": "*int64",
            "pad_variable_length_inputs": "bool",
            "enable_large_batch_splitting": "BoolValue",
            "max_execution_batch_size": "Int64Value",
        },
        "PrometheusConfig": {"enable": "bool", "path": "string"},
        "MonitoringConfig": {"prometheus_config": "PrometheusConfig"},
        "SSLConfig": {
            "server_key": "string",
            "server_cert": "string",
            "custom_ca": "string",
            "client_verify": "bool",
        },
    }
)
BatchingParameters, MonitoringConfig, SSLConfig = (
    _made[name] for name in ("BatchingParameters", "MonitoringConfig", "SSLConfig")
)


def read(path: str | Path, kind: Any) -> Any:
    """The text proto of a `kind` in the file at `path`; `ValueError` naming the line if not one."""
    try:
        return text_format.Parse(Path(path).read_text(), kind())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise ValueError(f"{str(path)!r} is no {kind.DESCRIPTOR.name}: {error}") from error


__all__ = ["BatchingParameters", "ModelServerConfig", "MonitoringConfig", "SSLConfig", "read"]

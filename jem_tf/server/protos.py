"""TF Serving's configuration files: text protos, and the messages to parse them with.

Not here: how the settings are used (`configuration.py`, `manager.py`). The package
tensorflow-serving-api lacks three of the messages; they are defined here with the same fields.
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
_SCALAR_TYPES = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")
}


def define_file(name: str, package: str, messages: dict[str, dict[str, str]]) -> Any:
    """Return a `FileDescriptorProto` for `{message: {field: type}}`; `*int64` is repeated.

    Fields are numbered from 1. A type that is neither a scalar nor in `messages` is a wrapper of
    protobuf, such as `Int64Value`.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=name,
        package=package,
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for number, (field_name, field_type) in enumerate(fields.items(), 1):
            repeated = field_type.startswith("*")
            field_type = field_type.lstrip("*")
            label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if field_type in _SCALAR_TYPES:
                field.type = _SCALAR_TYPES[field_type]
            else:
                field.type = _Field.TYPE_MESSAGE
                scope = package if field_type in messages else "google.protobuf"
                field.type_name = f".{scope}.{field_type}"
    return file


def _message_classes(file: Any) -> dict[str, Any]:
    descriptor_pool.Default().Add(file)
    descriptors = descriptor_pool.Default().FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(d) for name, d in descriptors.items()}


_messages = _message_classes(
    define_file(
        "jem_tf/server/config.proto",
        "jem_tf.server",
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
        },
    )
)
BatchingParameters = _messages["BatchingParameters"]
MonitoringConfig = _messages["MonitoringConfig"]
SSLConfig = _messages["SSLConfig"]


def read_text_proto(path: str | Path, message_class: Any) -> Any:
    """Return the message in the file at `path`; raise `ValueError` if it cannot be parsed."""
    try:
        return text_format.Parse(Path(path).read_text(), message_class())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        name = message_class.DESCRIPTOR.name
        raise ValueError(f"{str(path)!r} is not a valid {name}: {error}") from error


__all__ = [
    "BatchingParameters",
    "ModelServerConfig",
    "MonitoringConfig",
    "SSLConfig",
    "define_file",
    "read_text_proto",
]

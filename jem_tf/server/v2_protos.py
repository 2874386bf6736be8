"""The messages of the Open Inference Protocol (V2) over gRPC.

No package that we depend on has them. They have the protocol's field numbers, hence its wire
format. They are in a pool of their own, so that a process can load a V2 client as well.
"""

from typing import Any

from google.protobuf import descriptor_pool, message_factory, wrappers_pb2

from jem_tf.server.protos import define_file

_MODEL = {"name": "string", "version": "string"}
_TENSOR = {"name": "string", "datatype": "string", "shape": "*int64"}
_FILLED_TENSOR = _TENSOR | {"parameters": "*ParameterEntry", "contents": "InferTensorContents"}
_INFERENCE = {
    "model_name": "string",
    "model_version": "string",
    "id": "string",
    "parameters": "*ParameterEntry",
}
_MESSAGES = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": "bool"},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": "bool"},
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": {"ready": "bool"},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": _MODEL | {"extensions": "*string"},
    "ModelMetadataRequest": _MODEL,
    "TensorMetadata": _TENSOR,
    "ModelMetadataResponse": {
        "name": "string",
        "versions": "*string",
        "platform": "string",
        "inputs": "*TensorMetadata",
        "outputs": "*TensorMetadata",
    },
    "InferParameter": {
        "bool_param": "bool",
        "int64_param": "int64",
        "string_param": "string",
        "double_param": "double",
        "uint64_param": "uint64",
    },
    "ParameterEntry": {"key": "string", "value": "InferParameter"},  # of a map
    "InferTensorContents": {
        "bool_contents": "*bool",
        "int_contents": "*int32",
        "int64_contents": "*int64",
        "uint_contents": "*uint32",
        "uint64_contents": "*uint64",
        "fp32_contents": "*float",
        "fp64_contents": "*double",
        "bytes_contents": "*bytes",
    },
    "InferTensor": _FILLED_TENSOR,
    "InferRequestedOutputTensor": {"name": "string", "parameters": "*ParameterEntry"},
    "ModelInferRequest": _INFERENCE
    | {
        "inputs": "*InferTensor",
        "outputs": "*InferRequestedOutputTensor",
        "raw_input_contents": "*bytes",
    },
    "ModelInferResponse": _INFERENCE | {"outputs": "*InferTensor", "raw_output_contents": "*bytes"},
}
METHODS = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
)
SERVICE = "GRPCInferenceService"


def _load() -> Any:
    """Return the descriptor of the file with the messages and the service."""
    file = define_file("jem_tf/server/open_inference.proto", "inference", _MESSAGES)
    service = file.service.add(name=SERVICE)
    for name in METHODS:
        service.method.add(
            name=name,
            input_type=f".inference.{name}Request",
            output_type=f".inference.{name}Response",
        )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool.FindFileByName(file.name)


DESCRIPTOR = _load()


def new(name: str, /, **fields: Any) -> Any:
    """Return a new message of the type `name`."""
    return message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])(**fields)

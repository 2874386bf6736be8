"""The Open Inference Protocol (V2) over gRPC: messages as arrays, and arrays as messages.

Not here: what the requests mean (`v2.py`), the messages (`v2_protos.py`), the server
(`grpc_api.py`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.server import limits, v2, v2_tensors
from jem_tf.server.errors import invalid
from jem_tf.server.servable import Arrays
from jem_tf.server.service import Service
from jem_tf.server.v2_protos import new

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def methods(service: Service) -> dict[str, Callable[[Any], Any]]:
    """Return the methods of `GRPCInferenceService` by name, as functions of their messages."""
    models = v2.V2(service)
    return {
        "ServerLive": lambda request: new("ServerLiveResponse", live=True),
        "ServerReady": lambda request: new("ServerReadyResponse", ready=models.is_ready()),
        "ModelReady": lambda request: new(
            "ModelReadyResponse", ready=models.is_ready(request.name, request.version)
        ),
        "ServerMetadata": lambda request: new("ServerMetadataResponse", **v2.SERVER),
        "ModelMetadata": lambda request: new(
            "ModelMetadataResponse", **models.metadata(request.name, request.version)
        ),
        "ModelInfer": lambda request: _infer(models, request),
    }


def _infer(models: v2.V2, request: Any) -> Any:
    """Answer a `ModelInferRequest`; tensors are bytes in the response if they are in the request.

    FP16 and BF16 exist as bytes only.
    """
    signature = ""
    for entry in request.parameters:
        if entry.key == "signature_name":
            signature = entry.value.string_param
    names = [output.name for output in request.outputs]
    inputs = _parse_inputs(request)
    version, results = models.infer(
        request.model_name, request.model_version, signature, inputs, names
    )
    response = new("ModelInferResponse", model_name=request.model_name, id=request.id)
    response.model_version = version
    types = {name: v2_tensors.datatype(array.dtype) for name, array in results.items()}
    as_bytes = bool(request.raw_input_contents) or not set(types.values()) <= _CONTENTS.keys()
    for name, array in results.items():
        output = response.outputs.add(name=name, datatype=types[name], shape=array.shape)
        if as_bytes:
            response.raw_output_contents.append(v2_tensors.to_bytes(array))
        else:
            getattr(output.contents, _CONTENTS[types[name]]).extend(array.ravel().tolist())
    return response


def _parse_inputs(request: Any) -> Arrays:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise invalid(
            f"raw_input_contents must hold {len(request.inputs)} tensors, as inputs does. "
            f"Received: {len(raw)}"
        )
    arrays: Arrays = {}
    for i, tensor in enumerate(request.inputs):
        name = tensor.name
        if name in arrays:
            raise invalid(f"Input {name} is there twice.")
        dtype = v2_tensors.parse_dtype(name, tensor.datatype)
        shape = v2_tensors.check_shape(name, list(tensor.shape))
        if raw:
            arrays[name] = v2_tensors.from_bytes(name, dtype, shape, raw[i])
        else:
            arrays[name] = v2_tensors.reshape(name, _parse_contents(tensor, dtype), shape)
    return arrays


def _parse_contents(tensor: Any, dtype: tf.DType) -> np.ndarray:
    """Return the values in the field of the type of a tensor."""
    if tensor.datatype not in _CONTENTS:
        raise invalid(f"Input {tensor.name} is {tensor.datatype}. Send it in raw_input_contents.")
    values = getattr(tensor.contents, _CONTENTS[tensor.datatype])
    if dtype == tf.string:
        array = np.empty(len(values), object)
        array[:] = list(values)
        return array
    limits.reserve(2 * len(values) * dtype.size, f"The tensor {tensor.name}")
    wide = np.asarray(values)  # the field may have more bits than the type
    array = wide.astype(dtype.as_numpy_dtype)
    if dtype.is_integer and (array != wide).any():
        raise invalid(f"A value of input {tensor.name} is not {tensor.datatype}.")
    return array

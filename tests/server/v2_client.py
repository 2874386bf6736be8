"""What `tritonclient` gets from a server: run by its own interpreter, see `make test-v2`.

    python tests/server/v2_client.py HOST:GRPC_PORT HOST:REST_PORT

The server must have the model `rules`. Imports nothing of jem_tf.
"""

import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException


def check(module, address):
    """Ask everything that V2 has, and compare."""
    client = module.InferenceServerClient(address)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("rules")
    assert client.is_model_ready("rules", "1") and not client.is_model_ready("no")
    is_grpc = module is tritonclient.grpc
    metadata = client.get_model_metadata("rules", **({"as_json": True} if is_grpc else {}))
    assert metadata["platform"] == "tensorflow_savedmodel" and metadata["versions"] == ["1"]
    (x,) = metadata["inputs"]
    assert x["datatype"] == "FP32" and [int(size) for size in x["shape"]] == [-1, 2]
    check_numbers(module, client)
    check_strings(module, client)
    for name, inputs in (("no", numbers(module)), ("rules", [])):
        try:
            client.infer(name, inputs)
        except InferenceServerException as error:
            assert error.message()
        else:
            raise AssertionError("the request should have failed")
    client.close()


def numbers(module, **options):
    tensor = module.InferInput("x", [3, 2], "FP32")
    tensor.set_data_from_numpy(np.float32([[1, 1], [2, 2], [3, 3]]), **options)
    return [tensor]


def check_numbers(module, client):
    expected = [[3.0], [6.0], [9.0]]
    result = client.infer("rules", numbers(module), request_id="7")
    np.testing.assert_array_equal(result.as_numpy("y"), expected)
    np.testing.assert_array_equal(result.as_numpy("version"), [1, 1, 1])
    outputs = [module.InferRequestedOutput("y")]
    result = client.infer("rules", numbers(module), model_version="1", outputs=outputs)
    np.testing.assert_array_equal(result.as_numpy("y"), expected)
    assert result.as_numpy("version") is None
    if module is tritonclient.http:
        outputs = [module.InferRequestedOutput("y", binary_data=False)]
        inputs = numbers(module, binary_data=False)
        result = client.infer(
            "rules", inputs, outputs=outputs, request_compression_algorithm="gzip"
        )
        np.testing.assert_array_equal(result.as_numpy("y"), expected)


def check_strings(module, client):
    values = {
        "s": ("BYTES", np.array([b"\xff\x00", b"text"], object)),
        "f": ("BOOL", np.array([True, False])),
        "i": ("INT32", np.int32([-1, 2])),
    }
    inputs = []
    for name, (datatype, array) in values.items():
        inputs.append(module.InferInput(name, [2], datatype))
        inputs[-1].set_data_from_numpy(array)
    result = client.infer("rules", inputs, parameters={"signature_name": "echo"})
    for name, (_, array) in values.items():
        np.testing.assert_array_equal(result.as_numpy(name), array)


if __name__ == "__main__":
    check(tritonclient.grpc, sys.argv[1])
    check(tritonclient.http, sys.argv[2])
    print("ok")

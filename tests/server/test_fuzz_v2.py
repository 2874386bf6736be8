"""About 500 random V2 requests: each gets a client error or an answer."""

import json

import grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from jem_tf.server.v2_tensors import DATATYPES

from .test_fuzz import FUZZ, SCALE, SIGNATURES, Fuzzer, send_rest, tensor_names, values
from .test_v2 import X, infer_request, method, post

PATH = b"/v2/models/rules/infer"
datatypes = st.sampled_from([*DATATYPES, "no"])
shapes = st.lists(st.integers(-2, 2**62), max_size=4) | st.just([1, 2]) | st.just([1])
parameters = st.fixed_dictionaries(
    {}, optional={"signature_name": st.sampled_from(SIGNATURES), "binary_data_output": values}
)
inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": tensor_names | values,
        "datatype": datatypes | values,
        "shape": shapes | values,
        "data": values,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": values}) | values,
    },
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "id": values,
        "inputs": st.lists(inputs, max_size=3) | values,
        "outputs": st.lists(inputs, max_size=2) | values,
        "parameters": parameters | values,
    },
)
messages = st.fixed_dictionaries(
    {"name": tensor_names, "datatype": datatypes, "shape": shapes},
    optional={
        "contents": st.fixed_dictionaries(
            {},
            optional={
                "fp32_contents": st.lists(st.floats(width=32), max_size=4),
                "int_contents": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=2),
                "bytes_contents": st.lists(st.binary(max_size=4), max_size=2),
            },
        )
    },
)


@settings(FUZZ, max_examples=150 * SCALE)
@given(
    document=documents, binary=st.binary(max_size=16), header=st.sampled_from(["exact", 0, 10**6])
)
def fuzz_documents(fuzzer, document, binary, header):
    content = json.dumps(document).encode()
    length = str(len(content) if header == "exact" else header)
    headers = {"inference-header-content-length": length} if binary else {}
    fuzzer.send(send_rest, "POST", PATH, content + binary, headers)


@settings(FUZZ, max_examples=120 * SCALE)
@given(
    signature=st.sampled_from(SIGNATURES),
    tensors=st.lists(messages, max_size=3),
    raw=st.lists(st.binary(max_size=16), max_size=3),
)
def fuzz_messages(fuzzer, signature, tensors, raw):
    entry = {"key": "signature_name", "value": {"string_param": signature}}
    request = infer_request(parameters=[entry], inputs=tensors, raw_input_contents=raw)
    fuzzer.send(send_message, request)


def send_message(client, request):
    try:
        method(client, "ModelInfer")(request)
    except grpc.RpcError as error:
        accepted = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED")
        assert error.code().name in accepted, (error.code(), error.details())


def test_random_requests_do_not_break_the_server(plain, batching, caplog):
    fuzzer = Fuzzer(plain, batching)
    fuzz_documents(fuzzer)
    fuzz_messages(fuzzer)
    fuzzer.send_again()
    for client in fuzzer.clients:
        assert post(client, {"inputs": [X]}).status_code == 200
    assert not [record for record in caplog.records if record.exc_info]

"""JSON documents: memory is counted before objects exist."""

import gc
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from jem_tf.server import json_documents
from jem_tf.server.errors import RequestError
from jem_tf.server.json_arrays import format_value
from jem_tf.server.limits import Budget, Call

PREDICT = "/v1/models/rules:predict"


@pytest.mark.parametrize(
    "item", [b"{}", b"[]", b"[0.5]", b"0.1234567", b"1", b'""', b'"abc"', b'{"a": 1}', b"[[[1]]]"]
)
def test_the_estimate_is_not_below_what_objects_take(item):
    body = b"[" + b",".join([item] * 20_000) + b"]"
    tracemalloc.start()
    document = json_documents.loads(body)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(document) == 20_000
    assert taken < json_documents.parsed_bytes(body) < 10 * max(taken, 20_000 * sys.getsizeof(1.5))


def test_text_beyond_ascii_takes_more():
    text = "x" * 100_000
    plain, wide = (f'["{text}{c}"]'.encode() for c in ("y", "\U0001f600"))
    assert json_documents.parsed_bytes(wide) > 4 * 100_000 > json_documents.parsed_bytes(plain)
    assert json_documents.parsed_bytes(rb'["\ud83d\ude00' + plain[2:]) > 4 * 100_000


def test_documents_beyond_the_budget_are_refused_before_they_are_parsed():
    call = Call(Budget(10**6))
    with pytest.raises(RequestError, match="The parsed JSON needs") as caught:
        call.run(json_documents.loads, b"{}," * 10**5)  # not even valid
    assert caught.value.code == "RESOURCE_EXHAUSTED"


def test_the_garbage_collector_is_on_after_parsing():
    json_documents.loads(b"[NaN]")
    with pytest.raises(ValueError):
        json_documents.loads(b"[")
    assert gc.isenabled()


def test_the_garbage_collector_is_on_after_parsing_in_many_threads():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(json_documents.loads, [b"[1, 2]"] * 20_000))
    finally:
        sys.setswitchinterval(interval)
    assert gc.isenabled()


def test_values_in_messages_are_formatted_up_to_their_limit():
    class Endless(list):
        def __iter__(self):
            return iter(int, 1)

    assert format_value(Endless([1])).startswith("[0, 0, 0") and len(format_value([0] * 999)) == 203


@pytest.fixture(scope="module")
def small(rules, shared_servers):
    """A server with 4 MB for the contents of requests."""
    base = {"model_name": "rules", "model_base_path": str(rules)}
    return shared_servers(**base, max_memory_bytes=4 * 2**20, max_rows=10**6)


def test_a_document_of_many_objects_is_refused_and_others_are_answered(small):
    for body in (
        b'{"instances": [%s{}]}' % (b"{}," * 30_000),
        b'{"a": [%s[]]}' % (b"[]," * 60_000),
    ):
        response = small.rest.post(PREDICT, content=body)
        assert response.status_code == 429 and "The parsed JSON" in response.json()["error"]
    rows = [[1.0, 2.0]] * 10_000
    for _ in range(20):  # what a request has used is given back
        response = small.rest.post(PREDICT, json={"instances": rows})
        assert response.status_code == 200 and len(response.json()["predictions"]) == len(rows)


def test_nested_values_are_refused(served):
    for item in (b"[", b'{"a": '):
        response = served.rest.post(PREDICT, content=b'{"instances": ' + item * 100_000)
        assert response.status_code == 400

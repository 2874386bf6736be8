"""What a gateway does not forward, and clients that it does not wait for."""

import gzip
import socket
import threading
import time

import pytest
from tensorflow_serving.apis import model_management_pb2

from jem_tf.server.configuration import METRICS_PATH

from .grpc_requests import ones, predict_request, rpc_error
from .test_gateway import JUDGE, RunningGateway, counts


@pytest.fixture(scope="module")
def strict(plain):
    """A gateway with low limits."""
    options = plain.server.options
    running = RunningGateway(
        options.port,
        options.rest_api_port,
        max_message_bytes=10_000,
        max_concurrent_requests=4,
        body_timeout_seconds=1.0,
    )
    yield running
    running.stop()


def test_models_are_not_replaced_through_a_gateway(strict, plain):
    request = model_management_pb2.ReloadConfigRequest()
    code, text = rpc_error(strict.models.HandleReloadConfigRequest, request)
    assert code == "PERMISSION_DENIED" and "--enable-reload-config" in text
    options = plain.server.options
    open_gateway = RunningGateway(options.port, options.rest_api_port, forward_reload=True)
    try:  # the server itself refuses the empty request
        code, _ = rpc_error(open_gateway.models.HandleReloadConfigRequest, request)
        assert code == "INVALID_ARGUMENT"
    finally:
        open_gateway.stop()


def test_a_server_can_refuse_to_replace_its_models(rules, serve):
    client = serve(model_name="rules", model_base_path=str(rules), enable_reload_config=False)
    request = model_management_pb2.ReloadConfigRequest()
    assert rpc_error(client.models.HandleReloadConfigRequest, request)[0] == "UNIMPLEMENTED"


def test_what_a_gateway_decompresses_is_bounded(strict):
    before = counts(strict).get(("scored_rows", "again"), 0)
    body = b'{"signature_name": "again", "instances": [[1, 1]]}'
    headers = {"content-encoding": "gzip"}
    bomb = gzip.compress(body + b" " * 20_000)
    for content, counted in ((bomb, 0), (gzip.compress(body), 1)):
        assert strict.rest.post(JUDGE, content=content, headers=headers).status_code == 200
        assert counts(strict).get(("scored_rows", "again"), 0) == before + counted
    truncated = strict.rest.post(JUDGE, content=bomb[:-1], headers=headers)
    assert truncated.status_code == 400 and "truncated" in truncated.json()["error"]


def test_counting_does_not_stop_the_event_loop(strict, monkeypatch):
    monkeypatch.setattr(strict.gateway._counter, "count_rest", lambda *_: time.sleep(1.5))
    body = {"instances": [[1, 1]]}
    slow = threading.Thread(target=lambda: strict.rest.post(JUDGE, json=body))
    slow.start()
    time.sleep(0.3)
    start = time.monotonic()
    assert strict.rest.get(METRICS_PATH).status_code == 200
    assert time.monotonic() - start < 1.0 and slow.is_alive()
    slow.join()


def test_silent_calls_and_slow_bodies_take_no_slots(strict):
    end = threading.Event()
    silence = iter(lambda: end.wait(60.0) and None, None)
    method = strict.channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
    calls = [method.future(silence) for _ in range(8)]
    head = f"POST {JUDGE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{{".encode()
    port = strict.rest.base_url.port
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
    for connection in slow:
        connection.sendall(head)
    request = predict_request(name="judge", inputs=ones(1, 2))
    assert strict.predictions.Predict(request, timeout=5).outputs["sum"].float_val == [2.0]
    assert strict.rest.post(JUDGE, json={"instances": [[1, 1]]}).status_code == 200
    for connection in slow:
        with connection:
            assert b" 408 " in connection.recv(1000)
    assert {call.code().name for call in calls} == {"DEADLINE_EXCEEDED"}
    end.set()


def test_pages_of_other_sites_are_refused(strict):
    for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
        response = strict.rest.post(JUDGE, json={"instances": [[1, 1]]}, headers=headers)
        assert response.status_code == 403

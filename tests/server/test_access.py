"""Web pages of other sites, names of other hosts, and requests without the token."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from jem_tf.server.access import is_authorized, read_token

from .grpc_requests import ones, predict_request, rpc_error

STATUS, PREDICT = "/v1/models/rules", "/v1/models/rules:predict"
ROWS = b'{"instances": [[1.0, 2.0]]}'
EVIL = "http://evil.example"


@pytest.fixture(scope="module")
def shared(rules, shared_servers):
    """A server for the pages of all sites, and with two names of its own."""
    return shared_servers(
        model_name="rules",
        model_base_path=str(rules),
        rest_api_enable_cors_support=True,
        allowed_hosts="models.example.com,*.internal",
    )


@pytest.fixture(scope="module")
def guarded(rules, shared_servers, tmp_path_factory):
    """A server that asks for the token "secret"."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text("secret\n")
    base = {"model_name": "rules", "model_base_path": str(rules)}
    return shared_servers(**base, auth_token_file=str(file), enable_grpc_reflection=True)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8501", "127.0.0.1:99", "[::1]:8501", "10.1.2.3", "LOCALHOST"]
)
def test_this_machine_and_addresses_are_allowed_hosts(plain, host):
    assert plain.rest.get(STATUS, headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "[::1", "", "a@b:c"])
@pytest.mark.parametrize("path", [STATUS, "/", "/inspector/models.json", "/health"])
def test_other_hosts_are_refused_which_prevents_dns_rebinding(plain, host, path):
    response = plain.rest.get(path, headers={"host": host})
    assert response.status_code == 403 and "--allowed-hosts" in response.json()["error"]


def test_the_operator_names_hosts(shared):
    for host, status in (
        ("models.example.com", 200),
        ("a.b.internal:80", 200),
        ("internal", 403),
        ("example.com", 403),
        ("sub.models.example.com", 403),
    ):
        assert shared.rest.get(STATUS, headers={"host": host}).status_code == status, host


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},  # another server of this machine
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_pages_of_other_sites_are_refused(plain, headers):
    response = plain.rest.post(PREDICT, content=ROWS, headers=headers)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_the_own_page_and_programs_are_answered(plain):
    host = f"127.0.0.1:{plain.server.options.rest_api_port}"
    own = {"origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    for headers in ({}, own, {"content-type": "application/x-www-form-urlencoded"}):
        assert plain.rest.post(PREDICT, content=ROWS, headers=headers).status_code == 200
    navigation = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert plain.rest.get("/", headers=navigation).status_code == 200  # a link to the page


def test_cors_allows_pages_of_other_sites_that_send_json(shared):
    ask = {"origin": EVIL, "access-control-request-method": "POST"}
    ask["access-control-request-headers"] = "content-type"
    response = shared.rest.options(PREDICT, headers=ask)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "*"
    for content_type, status in (
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("text/plain", 415),  # browsers send it without asking
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
    ):
        headers = {"origin": EVIL, "content-type": content_type}
        response = shared.rest.post(PREDICT, content=ROWS, headers=headers)
        assert response.status_code == status, content_type
        assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    "path", [STATUS, "/", "/health", "/monitoring/prometheus/metrics", "/inspector/models.json"]
)
def test_every_path_needs_the_token(guarded, path):
    for header in ("", "Bearer wrong", "Bearer", "Basic secret", "secret"):
        response = guarded.rest.get(path, headers={"authorization": header})
        assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
    headers = {"authorization": "Bearer secret"}
    assert guarded.rest.get(path, headers=headers).status_code == 200


def test_every_call_needs_the_token(guarded):
    request, metadata = predict_request(x=ones(1, 2)), [("authorization", "Bearer secret")]
    method, health = guarded.predictions.Predict, health_pb2_grpc.HealthStub(guarded.channel)
    assert rpc_error(method, request)[0] == "UNAUTHENTICATED"
    for call in (health.Check, lambda r: next(health.Watch(r))):
        assert rpc_error(call, health_pb2.HealthCheckRequest())[0] == "UNAUTHENTICATED"
    info = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    stream = guarded.channel.stream_stream(info)(iter([b""]))
    assert stream.code() is grpc.StatusCode.UNAUTHENTICATED
    assert method(request, metadata=metadata).outputs["y"].float_val == [3.0]
    wrong = [("authorization", "Bearer wrong")]
    assert rpc_error(lambda r: method(r, metadata=wrong), request)[0] == "UNAUTHENTICATED"


def test_a_token_is_one_word_in_a_file(tmp_path):
    file = tmp_path / "token"
    for content in ("", " \n", "two words", "ключ"):
        file.write_text(content)
        with pytest.raises(ValueError, match="must hold a token"):
            read_token(str(file))
    with pytest.raises(ValueError, match="cannot be read"):
        read_token(str(tmp_path / "no"))
    file.write_text("secret\n")
    assert read_token(str(file)) == "secret" and read_token("") == ""
    assert is_authorized("bearer secret", "secret") and not is_authorized("Bearer sécret", "secret")

"""What a server does not take, what it counts, and whom it trusts."""

import datetime
import gzip
import ipaddress
import json
import threading
import time

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tensorflow_serving.apis import prediction_service_pb2_grpc

from jem_tf.client import JEMClient, ServingError
from jem_tf.server import Options, configuration

from .asking import ones, predict_request, refused


def test_large_requests_are_refused_on_both_transports(rules, serve):
    client = serve(model_name="rules", model_base_path=str(rules), max_message_bytes=10_000)
    code, _ = refused(client.predictions.Predict, predict_request(x=ones(5_000, 2)))
    assert code == "RESOURCE_EXHAUSTED"
    answer = client.rest.post("/v1/models/rules:predict", content=b" " * 10_001)
    assert answer.status_code == 429 and "10000 bytes" in answer.json()["error"]
    bomb = gzip.compress(b" " * 100_000)
    headers = {"content-encoding": "gzip"}
    answer = client.rest.post("/v1/models/rules:predict", content=bomb, headers=headers)
    assert answer.status_code == 429
    request = predict_request(x=ones(1, 2))  # a few bytes that claim to be many
    request.inputs["x"].tensor_shape.dim[0].size = 10**9
    request.inputs["x"].tensor_content = b""
    request.inputs["x"].float_val.append(1.0)
    code, text = refused(client.predictions.Predict, request)
    assert code == "INVALID_ARGUMENT" and "too large" in text


def test_more_requests_than_allowed_are_refused_not_queued(rules, serve):
    client = serve(model_name="rules", model_base_path=str(rules), max_concurrent_requests=2)
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [500]}}
    codes = []

    def ask():
        codes.append(httpx.post(url, json=body, timeout=60.0).status_code)

    url = f"{client.rest.base_url}/v1/models/rules:predict"
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(codes) == {200, 429}
    slow = predict_request("slow", x=ones(1), loops=np.array([500]))
    calls = [client.predictions.Predict.future(slow) for _ in range(8)]
    found = {call.code().name for call in calls}
    assert found == {"OK", "RESOURCE_EXHAUSTED"}


def test_a_slow_request_over_rest_ends_with_a_time_out(rules, serve):
    client = serve(model_name="rules", model_base_path=str(rules), rest_api_timeout_in_ms=100)
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [1000]}}
    assert client.rest.post("/v1/models/rules:predict", json=body).status_code == 504
    page = client.rest.get("/monitoring/prometheus/metrics").text
    assert 'request_count{model_name="rules",status="DEADLINE_EXCEEDED"} 1.0' in page
    endless = serve(model_name="rules", model_base_path=str(rules), rest_api_timeout_in_ms=0)
    body["inputs"]["loops"] = [1]
    assert endless.rest.post("/v1/models/rules:predict", json=body).status_code == 200


@pytest.mark.parametrize(
    "path, body",
    [
        (":predict", b'{"instances": ' + b"[" * 100 + b"]" * 100 + b"}"),
        (":predict", b'{"instances": ' + b"[" * 1000 + b"1" + b"]" * 1000 + b"}"),
        (":predict", rb'{"signature_name": "\ud800", "instances": [1]}'),
        (":predict", rb'{"instances": [{"\ud800": 1}]}'),
        (":classify", rb'{"signature_name": "classify", "examples": [{"\ud800": 1.0}]}'),
        ("/versions/" + "9" * 5000 + ":predict", b"{}"),
    ],
)
def test_strange_requests_are_the_clients_fault(path, body, served):
    assert served.rest.post("/v1/models/rules" + path, content=body).status_code == 400


def test_inputs_are_named_before_they_are_unpacked(served):
    request = predict_request(x=ones(1, 2))
    for i in range(200):
        proto = request.inputs[f"made up {i}"]
        proto.dtype = 1
        proto.float_val.append(1.0)
        proto.tensor_shape.dim.add(size=10**7)
    begin = time.monotonic()
    code, text = refused(served.predictions.Predict, request)
    assert code == "INVALID_ARGUMENT" and "Sent extra" in text
    assert time.monotonic() - begin < 5


def test_one_bad_row_does_not_harm_the_others_of_its_batch(rules, serve, tmp_path):
    file = tmp_path / "batching"
    file.write_text("max_batch_size { value: 64 } batch_timeout_micros { value: 200000 }")
    options = {"enable_batching": True, "batching_parameters_file": str(file)}
    client = serve(model_name="rules", model_base_path=str(rules), **options)
    good, bad = predict_request("picky", x=4 * ones(1)), predict_request("picky", x=-ones(1))
    calls = [client.predictions.Predict.future(r) for r in [good, bad] * 4]
    codes = [call.code().name for call in calls]
    assert codes == ["OK", "INVALID_ARGUMENT"] * 4
    assert all(list(call.result().outputs["root"].float_val) == [2.0] for call in calls[::2])
    wide = [predict_request("ragged", x=ones(1, width)) for width in (2, 3)]
    calls = [client.predictions.Predict.future(r) for r in wide]
    assert [list(call.result().outputs["y"].float_val) for call in calls] == [[2.0], [3.0]]


def test_requests_that_come_together_run_together(rules, serve, tmp_path):
    file = tmp_path / "batching"
    file.write_text(
        "max_batch_size { value: 16 } batch_timeout_micros { value: 100000 } "
        "allowed_batch_sizes: 8 allowed_batch_sizes: 16 num_batch_threads { value: 2 }"
    )
    options = {"enable_batching": True, "batching_parameters_file": str(file)}
    client = serve(model_name="rules", model_base_path=str(rules), **options)
    calls = [client.predictions.Predict.future(predict_request(x=ones(1, 2))) for _ in range(32)]
    assert all(list(call.result().outputs["y"].float_val) == [3.0] for call in calls)
    executed = client.server.manager.servables()[0].executed()["serving_default"]
    assert executed[0] < 16 and executed[1] % 8 == 0
    large = client.predictions.Predict(predict_request(x=ones(100, 2)))  # is split
    assert list(large.outputs["y"].float_val) == [3.0] * 100
    more = client.server.manager.servables()[0].executed()["serving_default"]
    assert more[0] - executed[0] == 7 and more[1] - executed[1] == 104  # the last is padded


def test_signatures_and_models_are_not_mixed_up(rules, serve, tmp_path):
    """Many requests for different functions at a time, each of which shows in its answer."""
    configs = [
        f'config {{ name: "{name}" base_path: "{rules}" model_platform: "tensorflow" }}'
        for name in ("rules", "twin")
    ]
    file = tmp_path / "models.config"
    file.write_text("model_config_list { " + " ".join(configs) + " }")
    client = serve(model_config_file=str(file), enable_batching=True)
    ask = client.predictions.Predict.future
    expected = {"log": np.log, "picky": np.sqrt, "sum": None, "verdict": lambda x: x > 0}
    rng = np.random.default_rng(0)
    for _ in range(20):
        calls = []
        for name in ("rules", "twin"):
            for signature in expected:
                x = rng.uniform(0.5, 2.0, rng.integers(1, 5)).astype(np.float32)
                calls.append((signature, x, ask(predict_request(signature, name=name, x=x))))
        for signature, x, call in calls:
            outputs = {k: tf.make_ndarray(v) for k, v in call.result().outputs.items()}
            if signature == "sum":
                assert outputs["y"] == pytest.approx(x.sum(), rel=1e-5)
            else:
                (found,) = outputs.values()
                np.testing.assert_allclose(found, expected[signature](x), rtol=1e-5)


def test_metrics_count_requests_and_verdicts(rules, serve):
    client = serve(model_name="rules", model_base_path=str(rules), enable_batching=True)
    client.predictions.Predict(predict_request("verdict", x=np.float32([1, 1, 1, -1])))
    for path, body in ((":predict", {"instances": [[1.0, 1.0]]}), (":predict", {})):
        client.rest.post("/v1/models/rules" + path, json=body)
    client.rest.post("/v1/models/made-up:predict", json={})
    client.rest.post("/v1/models/made-up/labels/x:predict", json={})
    page = client.rest.get("/monitoring/prometheus/metrics").text
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
    labels = 'model_name="rules",signature_name="verdict"'
    assert values[f"jem_tf:ood_rate{{{labels}}}"] == "0.75"
    assert values[f"jem_tf:scored_rows{{{labels}}}"] == "4.0"
    count = ":tensorflow:serving:request_count"
    assert values[f'{count}{{model_name="rules",status="OK"}}'] == "2.0"
    assert values[f'{count}{{model_name="rules",status="INVALID_ARGUMENT"}}'] == "1.0"
    assert "made-up" not in page  # or clients could fill the memory
    bucket = ':tensorflow:serving:request_latency_count{API="predict",entrypoint="REST"'
    assert values[bucket + ',model_name="rules"}'] == "1.0"
    assert values['jem_tf:executed_batches{model_name="rules",signature_name="verdict"}'] == "1.0"


def test_other_sites_may_ask_only_if_told_so(rules, serve):
    for allowed in (False, True):
        client = serve(
            model_name="m", model_base_path=str(rules), rest_api_enable_cors_support=allowed
        )
        headers = client.rest.get("/v1/models/m").headers
        assert (headers.get("access-control-allow-origin") == "*") == allowed


def certificate(name, issuer=None):
    """A key and a certificate as PEM, signed by `issuer` or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer_name, signer_key = (subject, key) if issuer is None else issuer
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signer_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    return private.decode(), made.public_bytes(pem).decode(), (subject, key)


@pytest.mark.parametrize("mutual", [False, True], ids=["tls", "mutual"])
def test_tls_on_both_transports(mutual, rules, serve, tmp_path):
    _, authority, signer = certificate("authority")
    key, chain, _ = certificate("server", signer)
    mine, my_chain, _ = certificate("client", signer)
    config = tmp_path / "ssl.config"
    fields = {"server_key": key, "server_cert": chain, "custom_ca": authority}
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    config.write_text("\n".join([*lines, f"client_verify: {str(mutual).lower()}"]))
    client = serve(model_name="rules", model_base_path=str(rules), ssl_config_file=str(config))
    options = client.server.options
    files = {"ca": authority, "key": mine, "chain": my_chain}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    import ssl

    def context(with_client):
        made = ssl.create_default_context(cafile=tmp_path / "ca")
        if with_client:
            made.load_cert_chain(tmp_path / "chain", tmp_path / "key")
        return made

    url = f"https://localhost:{options.rest_api_port}/v1/models/rules"
    assert httpx.get(url, verify=context(True)).status_code == 200
    pair = (mine.encode(), my_chain.encode())
    for known in (True, False):
        credentials = grpc.ssl_channel_credentials(authority.encode(), *(pair if known else ()))
        channel = grpc.secure_channel(f"localhost:{options.port}", credentials)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        if known or not mutual:
            assert stub.Predict(predict_request(x=ones(1, 2)), timeout=20).outputs
        else:
            with pytest.raises(grpc.RpcError):
                stub.Predict(predict_request(x=ones(1, 2)), timeout=5)
            with pytest.raises(httpx.TransportError):
                httpx.get(url, verify=context(False))
    with pytest.raises(httpx.TransportError):
        httpx.get(url.replace("https", "http"))
    trusted = {"ca": tmp_path / "ca", "certificate": tmp_path / "chain", "key": tmp_path / "key"}
    for scheme, port in (("grpcs", options.port), ("https", options.rest_api_port)):
        with JEMClient(f"{scheme}://localhost:{port}", "rules", timeout=20, **trusted) as asking:
            assert asking.call("log", x=ones(2))["y"].tolist() == [0.0, 0.0]
        stranger = JEMClient(f"{scheme}://localhost:{port}", "rules", retries=0)
        with pytest.raises(ServingError, match="UNAVAILABLE"):
            stranger.status()  # nobody it trusts has signed


FILES = {
    "batching_parameters_file": {
        "max_batch_size: 3": "no BatchingParameters",
        "max_batch_size { value: 0 }": "max_batch_size in .* must be at least 1: 0",
        "max_batch_size { value: 8 } allowed_batch_sizes: 4": "end with max_batch_size 8",
        "pad_variable_length_inputs: true": "is not supported here",
    },
    "monitoring_config_file": {"prometheus_config { enabled: true }": "no MonitoringConfig"},
    "ssl_config_file": {"server_key: 'a'": "server_key and server_cert"},
    "model_config_file": {
        "model_config_list {": "no ModelServerConfig",
        "": "must hold a model_config_list",
        "model_config_list { config { name: 'a' } }": "name and a base_path",
        "model_config_list { config { name: 'a' base_path: '/a' model_platform: 'other' } }": (
            "unsupported platform other"
        ),
    },
}
READERS = {
    "batching_parameters_file": configuration.batching,
    "monitoring_config_file": configuration.metrics_path,
    "ssl_config_file": configuration.tls,
    "model_config_file": configuration.models,
}


@pytest.mark.parametrize(
    "flag, text, message", [(f, t, m) for f, cases in FILES.items() for t, m in cases.items()]
)
def test_a_wrong_file_is_named(flag, text, message, tmp_path):
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        READERS[flag](Options(**{flag: str(file)}, enable_batching=True))


def test_settings_of_files(tmp_path):
    file = tmp_path / "config"
    file.write_text('prometheus_config { enable: true path: "/metrics" }')
    assert configuration.metrics_path(Options(monitoring_config_file=str(file))) == "/metrics"
    file.write_text("")
    assert configuration.metrics_path(Options(monitoring_config_file=str(file))) is None
    with pytest.raises(ValueError, match="needs --enable-batching"):
        configuration.batching(Options(batching_parameters_file=str(file)))
    assert configuration.batching(Options()) is None

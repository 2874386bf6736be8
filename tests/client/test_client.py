"""The client over both transports, with the embedded server and an exported JEM."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from server.servers import free_ports
from tensorflow_serving.apis import get_model_status_pb2

from jem_tf.client import AsyncJEMClient, JEMClient, ServingError
from jem_tf.client.grpc_wire import channel_options
from jem_tf.energy import OOD_SCORES
from jem_tf.model.loading import load as load_model
from jem_tf.server import Options
from jem_tf.server.serving import ModelServer
from jem_tf_cli import main


@pytest.fixture(scope="module")
def model(trained):
    return load_model(trained)


@pytest.fixture(scope="module")
def addresses(trained, shared_servers, tmp_path_factory):
    """The addresses of a server of the run `trained`, exported as the model `small`."""
    base = tmp_path_factory.mktemp("exports") / "small"
    flags = ["--out", str(base), "--sample-steps", "5", "--refine-steps", "2"]
    assert main(["export", str(trained), *flags]) == 0
    options = {"model_name": "small", "model_base_path": str(base), "enable_batching": True}
    return shared_servers(**options).addresses


@pytest.fixture(params=["grpc", "rest"])
def client(request, addresses):
    with JEMClient(addresses[request.param], "small") as client:
        yield client


@pytest.mark.parametrize("rows", [1, 7, 64, 200])
def test_answers_are_those_of_the_model(rows, client, model):
    """Within 1e-5; more than 32 rows are sent in parts."""
    x = np.random.default_rng(0).uniform(-1, 1, (rows, 4, 4, 1)).astype(np.float32)
    predictions = client.predict(x)
    logits = model.predict(x, verbose=0)
    np.testing.assert_allclose(client.logits(x), logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(predictions.energy, model.energy(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(client.energy(x), predictions.energy, rtol=1e-6)
    np.testing.assert_array_equal(predictions.class_id, logits.argmax(1))
    assert predictions.class_name.tolist() == [str(i) for i in logits.argmax(1)]
    np.testing.assert_allclose(predictions.probabilities.sum(1), 1.0, rtol=1e-5)
    scores = client.ood_score(x)
    for kind in OOD_SCORES:
        np.testing.assert_allclose(scores[kind], model.ood_score(x, kind), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(predictions.ood_score, scores["fused"], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(scores["is_ood"], predictions.is_ood)
    np.testing.assert_allclose(scores["percentile"], predictions.percentile, rtol=1e-5)
    assert predictions.is_ood.dtype == bool


def test_images_are_decoded_by_the_server(client, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 1), dtype=np.uint8)
    files = [tf.io.encode_png(p).numpy() for p in pixels]
    (tmp_path / "a.png").write_bytes(files[0])
    by_file = client.predict_images([tmp_path / "a.png", *files[1:]])
    by_value = client.predict(pixels / 127.5 - 1.0)
    np.testing.assert_allclose(by_file.probabilities, by_value.probabilities, rtol=1e-4)
    with pytest.raises(ServingError, match="INVALID_ARGUMENT"):
        client.predict_images([b"no image"])


def test_samples_repeat_with_their_seed(client):
    samples, others = client.sample([0, 1], seed=3), client.sample([0, 1], seed=4)
    assert samples.shape == (2, 4, 4, 1) and (samples != others).any()
    np.testing.assert_allclose(client.sample([0, 1], seed=3), samples, rtol=1e-5)
    np.testing.assert_allclose(client.sample([1], seed=4), samples[1:], rtol=1e-5)


def test_signatures_and_status(client):
    signatures = client.signatures()
    assert signatures["logits"].inputs == {"inputs": ("float32", (None, 4, 4, 1))}
    assert signatures["serving_default"].outputs["class_name"][0] == "string"
    assert client.status() == {1: "AVAILABLE"}


def test_errors_name_the_code_and_the_address(client, addresses):
    with pytest.raises(ServingError, match=r"127\.0\.0\.1:\d+/small answers") as caught:
        client.call("no", inputs=np.zeros((1, 4, 4, 1), np.float32))
    assert caught.value.code in ("FAILED_PRECONDITION", "INVALID_ARGUMENT")
    with pytest.raises(ServingError, match="INVALID_ARGUMENT"):
        client.predict(np.zeros((1, 3)))
    for address in addresses.values():
        with pytest.raises(ServingError, match="NOT_FOUND"):
            JEMClient(address, "other").predict(np.zeros((1, 4, 4, 1)))
        with pytest.raises(ServingError, match="NOT_FOUND"):
            JEMClient(address, "small", version=7).predict(np.zeros((1, 4, 4, 1)))


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_requests_are_retried_until_the_server_starts(scheme, rules):
    port, rest = free_ports(2)
    address = f"{scheme}://127.0.0.1:{port if scheme == 'grpc' else rest}"
    with pytest.raises(ServingError, match="UNAVAILABLE"):
        JEMClient(address, "rules", retries=0).status()
    server = ModelServer(Options("rules", str(rules), port=port, rest_api_port=rest))
    server.manager.start()  # so that the rest of the start takes little time
    results = []
    client = JEMClient(address, "rules")
    thread = threading.Thread(target=lambda: results.append(client.status()))
    thread.start()
    time.sleep(0.3)  # the first attempts fail
    assert not results
    with server:
        thread.join()
    assert results == [{1: "AVAILABLE"}]


@pytest.mark.parametrize("retries, answered", [(0, False), (2, True)])
def test_grpc_itself_sends_calls_again(retries, answered):
    codes = [grpc.StatusCode.UNAVAILABLE] * 2

    def respond(_, context):
        if codes:
            context.abort(codes.pop(), "not now")
        return get_model_status_pb2.GetModelStatusResponse().SerializeToString()

    handlers = {"GetModelStatus": grpc.unary_unary_rpc_method_handler(respond)}
    name = "tensorflow.serving.ModelService"
    handler = grpc.method_handlers_generic_handler(name, handlers)
    server = grpc.server(ThreadPoolExecutor(1), [handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with JEMClient(f"127.0.0.1:{port}", "m", retries=retries) as client:
        if answered:
            assert client.status() == {}
        else:
            with pytest.raises(ServingError, match="not now"):
                client.status()
    server.stop(None)


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_a_token_is_sent(transport, rules, shared_servers, tmp_path):
    (tmp_path / "token").write_text("secret")
    base = {"model_name": "rules", "model_base_path": str(rules)}
    server = shared_servers(**base, auth_token_file=str(tmp_path / "token"))
    address = server.addresses[transport]
    assert JEMClient(address, "rules", token="secret").status() == {1: "AVAILABLE"}
    with pytest.raises(ServingError, match="UNAUTHENTICATED"):
        JEMClient(address, "rules").status()


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_server_that_never_answers_is_given_up_after_the_timeout(scheme):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(ServingError, match=r"DEADLINE_EXCEEDED|UNAVAILABLE"):
            JEMClient(address, "m", timeout=0.5, retries=100).status()
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_coroutines(transport, addresses):
    """All methods answer as those of `JEMClient`, and no thread is started for them."""
    x = np.random.default_rng(0).uniform(-1, 1, (70, 4, 4, 1)).astype(np.float32)

    async def ask():
        async with AsyncJEMClient(addresses[transport], "small", concurrency=2) as client:
            results = [await client.predict(x), await client.ood_score(x)]
            results += [await client.logits(x), await client.energy(x)]
            results.append(await client.sample([0, 1], seed=3))
            threads = threading.active_count()
            many = await asyncio.gather(*(client.predict(x[:1]) for _ in range(20)))
            assert len({float(p.energy[0]) for p in many}) == 1
            assert threading.active_count() == threads
            return [*results, await client.status()]

    predictions, scores, logits, energy, samples, status = asyncio.run(ask())
    with JEMClient(addresses[transport], "small") as client:
        np.testing.assert_allclose(predictions.probabilities, client.predict(x).probabilities)
        np.testing.assert_allclose(scores["fused"], client.ood_score(x)["fused"])
        np.testing.assert_allclose(logits, client.logits(x))
        np.testing.assert_allclose(energy, client.energy(x))
        np.testing.assert_allclose(samples, client.sample([0, 1], seed=3))
        assert status == client.status() == {1: "AVAILABLE"}


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_coroutines_report_servers_that_are_not_there(scheme):
    async def ask():
        async with AsyncJEMClient(f"{scheme}://127.0.0.1:{free_ports(1)[0]}", "m", retries=1) as c:
            await c.status()

    with pytest.raises(ServingError, match="UNAVAILABLE"):
        asyncio.run(ask())


INVALID_ARGUMENTS = [
    (("ftp://a:1", "m"), {}, "Received: 'ftp://a:1'"),
    (("a:1/m", "m"), {}, "Received: 'a:1/m'"),
    (("a:1", ""), {}, "model=''"),
    (("a:1", "m"), {"version": 1, "label": "x"}, "version or a label"),
    (("a:1", "m"), {"batch": 0}, "batch=0"),
]


@pytest.mark.parametrize("arguments, options, message", INVALID_ARGUMENTS)
def test_invalid_arguments_are_reported(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        JEMClient(*arguments, **options)


def test_the_predict_command(addresses, tmp_path, capsys):
    file = tmp_path / "dark.png"
    file.write_bytes(tf.io.encode_png(np.full((4, 4, 1), 60, np.uint8)).numpy())
    for address in addresses.values():
        flags = ["--model", "small", "--address", address]
        assert main(["predict", str(file), *flags]) == 0
        assert "like the training data (score" in capsys.readouterr().out
        assert main(["predict", str(file), *flags, "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert row["class"] in "01" and 0.5 <= row["probability"] <= 1
    assert main(["predict", str(file), "--model", "no", "--address", address]) == 2
    assert "NOT_FOUND" in capsys.readouterr().err


def test_a_bad_file_is_named_and_the_others_are_answered(addresses, tmp_path, capsys):
    good, bad, missing = (tmp_path / name for name in ("good.png", "bad.png", "missing.png"))
    good.write_bytes(tf.io.encode_png(np.full((4, 4, 1), 60, np.uint8)).numpy())
    bad.write_bytes(b"\x89PNG no image")
    for address in addresses.values():
        flags = ["--model", "small", "--address", address]
        files = [str(path) for path in (bad, good, missing)]
        assert main(["predict", *files, *flags]) == 2
        out, error = capsys.readouterr()
        assert out.startswith(f"{good}: ") and out.count("\n") == 1
        assert f"{bad}: " in error and f"{missing}: " in error
        assert "2 of 3 images have no answer" in error
    assert main(["predict", *files, *flags, "--json"]) == 2
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["error" in row for row in rows] == [True, False, True]


@pytest.mark.slow
def test_evaluate_measures_an_endpoint_over_rest(addresses, small, tmp_path, capsys):
    flags = ["--dataset", small, "--attacks", "none", "--ood", "noise", "--out", str(tmp_path)]
    assert main(["evaluate", f"{addresses['rest']}/small", *flags]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_the_inspector_gets_the_measurements_of_the_export_command(addresses):
    """It shows test metrics and, for each OOD set, the AUROC of each score."""
    models = httpx.get(f"{addresses['rest']}/inspector/models.json").json()["models"]
    facts = models[0]["facts"]
    assert 0 <= facts["test"]["accuracy"] <= 1
    assert facts["auroc"]
    for scores in facts["auroc"].values():
        assert all(0 <= auroc <= 1 for auroc in scores.values())


def test_calls_go_to_all_addresses_in_turn():
    """As over a headless Service, whose name has the addresses of all pods."""
    calls = []
    servers, ports = [], []
    for number in range(2):
        handler = grpc.method_handlers_generic_handler(
            "test",
            {
                "call": grpc.unary_unary_rpc_method_handler(
                    lambda message, context, number=number: calls.append(number) or b""
                )
            },
        )
        server = grpc.server(ThreadPoolExecutor(1), [handler])
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        server.start()
        servers.append(server)
    target = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
    with grpc.insecure_channel(target, channel_options()) as channel:
        call = channel.unary_unary("/test/call")
        for _ in range(20):
            call(b"", timeout=5)
            time.sleep(0.01)  # until both are connected
    for server in servers:
        server.stop(None)
    assert set(calls) == {0, 1}

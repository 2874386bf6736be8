"""Work ends when nobody waits for it any more."""

import json
import time

import numpy as np
import pytest
import tensorflow as tf

from jem_tf.saved_model import layout
from jem_tf.server.errors import RequestError
from jem_tf.server.limits import Budget, Call
from jem_tf.server.servable import Servable

from .grpc_requests import ones, predict_request, rpc_error
from .servers import wait_until

PREDICT = "/v1/models/rules:predict"
METRICS = "/monitoring/prometheus/metrics"


@pytest.fixture(scope="module")
def pairs(rules, shared_servers, tmp_path_factory):
    """A server that runs two rows at a time."""
    file = tmp_path_factory.mktemp("batching") / "batching.config"
    file.write_text("max_batch_size { value: 2 } batch_timeout_micros { value: 0 }")
    base = {"model_name": "rules", "model_base_path": str(rules)}
    options = {"enable_batching": True, "batching_parameters_file": str(file)}
    return shared_servers(**base, **options, rest_api_timeout_in_ms=300)


def executed(client):
    page = client.rest.get(METRICS).text
    lines = [line for line in page.splitlines() if "jem_tf:executed_batches{" in line]
    return sum(float(line.split()[-1]) for line in lines if '"slow"' in line)


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_parts_after_the_deadline_are_not_run(pairs, transport):
    x, loops = ones(100), np.full(100, 300)
    before = executed(pairs)
    if transport == "grpc":
        request = predict_request("slow", x=x, loops=loops)
        call = pairs.predictions.Predict.future(request, timeout=0.3)
        assert call.code().name == "DEADLINE_EXCEEDED"
    else:
        body = {"signature_name": "slow", "inputs": {"x": x.tolist(), "loops": loops.tolist()}}
        assert pairs.rest.post(PREDICT, json=body).status_code == 504
    time.sleep(0.3)  # a part that had begun may end
    counts = [executed(pairs)]
    for _ in range(3):
        time.sleep(0.15)
        counts.append(executed(pairs))
    assert before < counts[0] == counts[-1] < before + 50


def test_work_that_waits_for_a_thread_is_not_run_after_its_deadline(rules, serve):
    client = serve(model_name="rules", model_base_path=str(rules), grpc_max_threads=1)
    method, request = client.predictions.Predict, predict_request("two", a=ones(1), b=np.array([1]))
    slow = method.future(predict_request("slow", x=ones(1), loops=np.array([1000])))
    time.sleep(0.1)
    calls = [method.future(request, timeout=0.1) for _ in range(20)]
    assert {call.code().name for call in calls} == {"DEADLINE_EXCEEDED"}
    assert slow.result()
    method(request)
    counted = 'request_rows_count{model_name="rules",signature_name="two"} 1.0'
    wait_until(lambda: counted in client.rest.get(METRICS).text, 5.0)


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """A SavedModel with the signatures `sample` and `serving_default`, as if jem_tf exported it."""
    path = tmp_path_factory.mktemp("export")
    specs = [tf.TensorSpec([None], tf.int32, name=name) for name in ("labels", "seeds")]
    sample = tf.function(lambda labels, seeds: {"samples": labels + seeds}, input_signature=specs)
    module = tf.Module()
    module.sample = sample
    tf.saved_model.save(module, f"{path}/1", {"sample": sample, "serving_default": sample})
    metadata = path / "1" / layout.METADATA
    metadata.parent.mkdir()
    metadata.write_text(json.dumps({"name": "made up"}))
    return path


def test_exports_of_jem_tf_run_in_parts_without_batching_too(export):
    servable, sizes = Servable("export", 1, export / "1"), []

    def watch(name):
        function = servable._functions[name]

        def run(**tensors):
            sizes.append(len(tensors["labels"]))
            return function(**tensors)

        servable._functions[name] = run

    watch("sample"), watch("serving_default")
    inputs = {name: np.arange(150, dtype=np.int32) for name in ("labels", "seeds")}
    for name, expected in (("serving_default", [64, 64, 22]), ("sample", [16] * 9 + [6])):
        results = servable.run(name, inputs)["samples"]
        np.testing.assert_array_equal(results, 2 * np.arange(150))
        assert sizes == expected
        sizes.clear()
    late = Call(Budget(0), seconds=60.0)
    servable._functions["sample"] = lambda **_: late.cancel() or {"samples": tf.zeros(16)}
    with pytest.raises(RequestError, match="Deadline Exceeded"):
        late.run(servable.run, "sample", inputs)


def test_sample_has_a_row_limit_of_its_own(export, serve):
    client = serve(model_name="export", model_base_path=str(export))
    for rows, signature in ((256, "sample"), (257, "serving_default")):
        values = np.zeros(rows, np.int32)
        request = predict_request(signature, "export", labels=values, seeds=values)
        assert len(client.predictions.Predict(request).outputs["samples"].int_val) == rows
    values = np.zeros(257, np.int32)
    request = predict_request("sample", "export", labels=values, seeds=values)
    code, text = rpc_error(client.predictions.Predict, request)
    assert code == "INVALID_ARGUMENT" and "up to 256 rows. Received: 257 in" in text

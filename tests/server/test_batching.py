"""Batching: concurrent requests share runs of the graph, and never each other's results."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from jem_tf.server.batching import BatchedFunction
from jem_tf.server.configuration import Batching
from jem_tf.server.errors import RequestError
from jem_tf.server.limits import Budget, Call

from .grpc_requests import ones, predict_request
from .servers import model_config


@pytest.fixture
def serve_batched(rules, serve, tmp_path):
    """A function that starts a server of `rules` with the given batching parameters."""

    def start(parameters):
        file = tmp_path / "batching"
        file.write_text(parameters)
        return serve(
            model_name="rules",
            model_base_path=str(rules),
            enable_batching=True,
            batching_parameters_file=str(file),
        )

    return start


def test_an_invalid_row_does_not_affect_the_others_in_its_batch(serve_batched):
    client = serve_batched("max_batch_size { value: 64 } batch_timeout_micros { value: 200000 }")
    good, bad = predict_request("picky", x=4 * ones(1)), predict_request("picky", x=-ones(1))
    calls = [client.predictions.Predict.future(r) for r in [good, bad] * 4]
    codes = [call.code().name for call in calls]
    assert codes == ["OK", "INVALID_ARGUMENT"] * 4
    assert all(list(call.result().outputs["root"].float_val) == [2.0] for call in calls[::2])
    (servable,) = client.server.manager.servables()
    run_graph, runs = servable._functions["picky"], []
    servable._functions["picky"] = lambda **x: runs.append(len(x["x"])) or run_graph(**x)
    calls = [client.predictions.Predict.future(r) for r in [good, bad] * 4]
    assert [call.code().name for call in calls] == codes
    assert runs[0] > 1 and runs.count(1) == 8 == sum(runs) // 2  # once together, then one by one
    wide = [predict_request("ragged", x=ones(1, width)) for width in (2, 3)]
    calls = [client.predictions.Predict.future(r) for r in wide]
    assert [list(call.result().outputs["y"].float_val) for call in calls] == [[2.0], [3.0]]


def test_concurrent_requests_run_as_one_batch(serve_batched):
    client = serve_batched(
        "max_batch_size { value: 16 } batch_timeout_micros { value: 100000 } "
        "allowed_batch_sizes: 8 allowed_batch_sizes: 16 num_batch_threads { value: 2 }"
    )
    (servable,) = client.server.manager.servables()
    calls = [client.predictions.Predict.future(predict_request(x=ones(1, 2))) for _ in range(32)]
    assert all(list(call.result().outputs["y"].float_val) == [3.0] for call in calls)
    runs, rows = servable.executed()["serving_default"]
    assert runs < 16 and rows % 8 == 0
    large = client.predictions.Predict(predict_request(x=ones(100, 2)))  # is split
    assert list(large.outputs["y"].float_val) == [3.0] * 100
    more_runs, more_rows = servable.executed()["serving_default"]
    assert more_runs - runs == 7 and more_rows - rows == 104  # the last batch is padded


def test_signatures_and_models_are_not_mixed_up(rules, serve, tmp_path):
    """Concurrent requests for different functions; each answer shows which function ran."""
    config = model_config(tmp_path, rules=rules, twin=rules)
    client = serve(model_config_file=config, enable_batching=True)
    expected = {"log": np.log, "picky": np.sqrt, "sum": None, "verdict": lambda x: x > 0}
    rng = np.random.default_rng(0)
    for _ in range(20):
        calls = []
        for name in ("rules", "twin"):
            for signature in expected:
                x = rng.uniform(0.5, 2.0, rng.integers(1, 5)).astype(np.float32)
                request = predict_request(signature, name=name, x=x)
                calls.append((signature, x, client.predictions.Predict.future(request)))
        for signature, x, call in calls:
            outputs = {k: tf.make_ndarray(v) for k, v in call.result().outputs.items()}
            if signature == "sum":
                assert outputs["y"] == pytest.approx(x.sum(), rel=1e-5)
            else:
                (output,) = outputs.values()
                np.testing.assert_allclose(output, expected[signature](x), rtol=1e-5)


class Gate:
    """A function that waits until it is opened, and remembers the sizes of its batches."""

    def __init__(self):
        self.opened, self.begun, self.sizes = threading.Event(), threading.Semaphore(0), []

    def __call__(self, inputs):
        self.sizes.append(len(inputs["x"]))
        self.begun.release()
        assert self.opened.wait(10.0)
        return {"y": 2 * inputs["x"]}


def rows(*values):
    return {"x": np.array(values, np.float32)}


def test_requests_that_arrive_while_a_batch_runs_are_the_next_batch():
    gate = Gate()
    batched = BatchedFunction(gate, Batching(max_batch_size=8, threads=2))
    futures = [batched.submit(rows(0))]
    assert gate.begun.acquire(timeout=10.0)
    futures += [batched.submit(rows(i, -i)) for i in (1, 2, 3)]
    assert gate.sizes == [1]  # one thread is enough for batches that are not full
    gate.opened.set()
    answers = [future.result(10.0)["y"].tolist() for future in futures]
    assert answers == [[0], [2, -2], [4, -4], [6, -6]]
    assert gate.sizes == [1, 6] and (batched.runs, batched.rows) == (2, 7)


def test_a_second_thread_runs_a_full_batch():
    gate = Gate()
    batched = BatchedFunction(gate, Batching(max_batch_size=2, threads=2))
    futures = [batched.submit(rows(0))]
    assert gate.begun.acquire(timeout=10.0)
    futures += [batched.submit(rows(i)) for i in (1, 2)]
    assert gate.begun.acquire(timeout=10.0)  # while the first is not done
    assert gate.sizes == [1, 2] and not futures[0].done()
    gate.opened.set()
    assert [float(f.result(10.0)["y"][0]) for f in futures] == [0.0, 2.0, 4.0]


def test_rows_beyond_the_queue_are_refused():
    gate = Gate()
    batched = BatchedFunction(gate, Batching(max_batch_size=2, max_enqueued=2, threads=1))
    futures = [batched.submit(rows(0))]
    assert gate.begun.acquire(timeout=10.0)
    futures += [batched.submit(rows(1, 2)), batched.submit(rows(3, 4))]
    with pytest.raises(RequestError, match="The batch queue is full: 4 of at most 4 rows wait"):
        batched.submit(rows(5))
    gate.opened.set()
    assert [len(f.result(10.0)["y"]) for f in futures] == [1, 2, 2]
    assert batched.submit(rows(5)).result(10.0)["y"] == [10.0]


def test_inputs_of_other_shapes_are_another_batch():
    gate = Gate()
    batched = BatchedFunction(gate, Batching(max_batch_size=8, threads=1))
    first = batched.submit(rows(0))
    assert gate.begun.acquire(timeout=10.0)
    narrow, wide = batched.submit(rows([1])), batched.submit(rows([1, 2]))
    gate.opened.set()
    assert len(first.result(10.0)["y"]) == 1
    assert (narrow.result(10.0)["y"].shape, wide.result(10.0)["y"].shape) == ((1, 1), (1, 2))
    assert gate.sizes == [1, 1, 1]


def test_requests_whose_deadline_passes_in_the_queue_are_not_computed():
    gate, budget = Gate(), Budget(1000)
    batched = BatchedFunction(gate, Batching(max_batch_size=8, threads=1))
    first = batched.submit(rows(0))
    assert gate.begun.acquire(timeout=10.0)
    call = Call(budget, 10.0)
    late, last = call.run(batched.submit, rows(1)), batched.submit(rows(2))
    call.cancel()
    gate.opened.set()
    with pytest.raises(RequestError, match="Deadline Exceeded"):
        late.result(10.0)
    assert (first.result(10.0)["y"], last.result(10.0)["y"]) == ([0.0], [4.0])
    assert gate.sizes == [1, 1]


def test_the_timeout_counts_from_the_arrival_of_a_request():
    gate = Gate()
    batched = BatchedFunction(gate, Batching(max_batch_size=2, timeout_micros=1_000_000, threads=1))
    batched.submit(rows(0, 0))
    assert gate.begun.acquire(timeout=10.0)
    waiting = batched.submit(rows(1))
    time.sleep(1.0)
    gate.opened.set()
    assert waiting.result(0.8)["y"] == [2.0]  # it has waited long enough


def test_an_error_of_a_batch_is_that_of_each_request_in_it():
    def sums(inputs):
        return {"y": inputs["x"].sum(keepdims=True)}

    batched = BatchedFunction(sums, Batching(threads=1))
    assert batched.submit(rows(3)).result(10.0)["y"] == [3.0]
    with pytest.raises(ValueError, match=r"Output 'y' must have 2 rows.*Received: 1"):
        batched.submit(rows(1, 2)).result(10.0)
    assert batched.submit(rows(4)).result(10.0)["y"] == [4.0]  # its thread goes on

"""Metrics: the page for Prometheus, and what a server counts."""

import re

import numpy as np
import pytest

from jem_tf.server.errors import RequestError
from jem_tf.server.metrics import Metrics

from .grpc_requests import predict_request

# All but the histograms; counters have no suffix `_total`, as in TF Serving.
VALUE_LINES = """\
# HELP :tensorflow:serving:request_count Requests.
# TYPE :tensorflow:serving:request_count counter
:tensorflow:serving:request_count{model_name="a",status="OK"} 2.0
:tensorflow:serving:request_count{model_name="a",status="NOT_FOUND"} 1.0
:tensorflow:serving:request_count{model_name="",status="INTERNAL"} 1.0
# HELP jem_tf:executed_batches Runs of the graph.
# TYPE jem_tf:executed_batches counter
jem_tf:executed_batches{model_name="a",signature_name="x"} 4.0
# HELP jem_tf:executed_rows Rows in them.
# TYPE jem_tf:executed_rows counter
jem_tf:executed_rows{model_name="a",signature_name="x"} 9.0
# HELP jem_tf:scored_rows Rows with an OOD verdict.
# TYPE jem_tf:scored_rows counter
jem_tf:scored_rows{model_name="a",signature_name="x"} 5.0
jem_tf:scored_rows{model_name="b",signature_name="quote \\" line \\n"} 0.0
# HELP jem_tf:ood_rows Rows out of distribution.
# TYPE jem_tf:ood_rows counter
jem_tf:ood_rows{model_name="a",signature_name="x"} 4.0
jem_tf:ood_rows{model_name="b",signature_name="quote \\" line \\n"} 0.0
# HELP jem_tf:ood_rate Share of rows out of distribution.
# TYPE jem_tf:ood_rate gauge
jem_tf:ood_rate{model_name="a",signature_name="x"} 0.8
jem_tf:ood_rate{model_name="b",signature_name="quote \\" line \\n"} 0.0
# HELP jem_tf:drift_alarms Alarms that the inputs have drifted.
# TYPE jem_tf:drift_alarms counter
# HELP jem_tf:drift_evidence Evidence of drift: an alarm is raised at 6.
# TYPE jem_tf:drift_evidence gauge
# HELP jem_tf:available_version Newest version that answers.
# TYPE jem_tf:available_version gauge
jem_tf:available_version{model_name="b"} 2.0
"""
HISTOGRAMS = (":tensorflow:serving:request_latency", "jem_tf:request_rows")


def test_drift_of_the_inputs_is_an_alarm():
    """P-values of data raise none in 3 000 inputs; 60 inputs out of distribution raise one."""
    metrics, rng = Metrics(), np.random.default_rng(1)  # 0 is the seed of the monitor
    counted = lambda: re.findall(r"^jem_tf:drift_alarms.* (\S+)$", page(), re.M)  # noqa: E731
    page = lambda: metrics.render([]).decode()  # noqa: E731

    def record(percentiles):
        results = {"is_ood": percentiles <= 5.0, "percentile": percentiles}
        metrics.record_response("a", "x", len(percentiles), results)

    record(np.full(3, np.nan))  # of an export without a detector
    assert counted() == []
    for _ in range(100):
        record(rng.uniform(0, 100, 30))
    assert counted() == ["0.0"]
    record(np.full(60, 0.1))
    assert float(counted()[0]) >= 1


class FakeServable:
    def __init__(self, name, version, counts):
        self.name, self.version, self.counts = name, version, counts

    def executed(self):
        return self.counts


def test_the_page_has_names_labels_types_and_values():
    metrics = Metrics()
    for model, error in (
        ("a", None),
        ("a", RequestError("NOT_FOUND", "")),
        ("", ZeroDivisionError()),
        ("a", None),
    ):
        try:
            with metrics.request(model, "Predict", "GRPC"):
                if error:
                    raise error
        except type(error):
            pass
    metrics.record_response("a", "x", 4, {"is_ood": np.array([True, False, True, True])})
    metrics.record_response("a", "y", 2, {"is_ood": np.array([1, 0])})  # not a verdict
    metrics.record_response("b", 'quote " line \n', 0, {"is_ood": np.zeros(0, bool)})
    metrics.render([FakeServable("a", 3, {"x": (4, 9)})])
    metrics.record_response("a", "x", 1, {"is_ood": np.array([True])})
    page = metrics.render([FakeServable("b", 2, {})]).decode()
    lines = [line for line in page.splitlines() if not any(name in line for name in HISTOGRAMS)]
    assert "\n".join(lines) + "\n" == VALUE_LINES
    for name in HISTOGRAMS:
        assert f"# TYPE {name} histogram" in page
    rows = re.findall(r'request_rows_sum\{model_name="a",signature_name="(\w)"\} (\S+)', page)
    assert rows == [("x", "5.0"), ("y", "2.0")]


@pytest.fixture
def client(rules, serve):
    """A server with batching that has not answered any request."""
    return serve(model_name="rules", model_base_path=str(rules), enable_batching=True)


def test_requests_and_verdicts_are_counted(client):
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
    assert "made-up" not in page  # otherwise clients could fill the memory
    bucket = ':tensorflow:serving:request_latency_count{API="predict",entrypoint="REST"'
    assert values[bucket + ',model_name="rules"}'] == "1.0"
    assert values['jem_tf:executed_batches{model_name="rules",signature_name="verdict"}'] == "1.0"

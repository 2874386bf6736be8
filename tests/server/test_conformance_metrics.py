"""Metrics as in TF Serving 2.20, on the embedded server or on a real TF Serving.

A real server must have a monitoring configuration that enables Prometheus. Each test names the file
below tensorflow_serving/ that it follows.
"""

import re

import pytest
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from .grpc_requests import ones, predict_request, rpc_error

PATH = "/monitoring/prometheus/metrics"
COUNT, LATENCY = ":tensorflow:serving:request_count", ":tensorflow:serving:request_latency"


def read(served):
    """Return the values of the page by name and set of labels."""
    values = {}
    for line in served.rest.get(PATH).text.splitlines():
        if match := re.fullmatch(r"([^#{ ]+)(?:{(.*)})? (\S+)", line):
            name, labels, value = match.groups()
            labels = frozenset(re.findall(r'(\w+)="([^"]*)"', labels or ""))
            values[name, labels] = float(value)
    return values


def growth(served, *requests):
    """Return which values grow when the requests are sent."""
    before = read(served)
    for request in requests:
        request()
    after = read(served)
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def labels(**named):
    return frozenset(named.items())


def test_types(served):
    """util/prometheus_exporter.cc: cumulative values are counters, without a suffix."""
    served.predictions.Predict(predict_request(x=ones(1, 2)))
    page = served.rest.get(PATH).text
    assert f"# TYPE {COUNT} counter" in page and f"# TYPE {LATENCY} histogram" in page
    assert f"{COUNT}_total" not in page


@pytest.mark.parametrize("entrypoint, api", [("GRPC", "Predict"), ("REST", "predict")])
def test_answered_requests_are_counted_and_timed(entrypoint, api, served):
    """model_servers/prediction_service_impl.cc and http_server.cc."""
    send = {
        "GRPC": lambda: served.predictions.Predict(predict_request(x=ones(1, 2))),
        "REST": lambda: served.rest.post("/v1/models/rules:predict", json={"inputs": [[1.0, 1.0]]}),
    }
    grown = growth(served, send[entrypoint])
    assert grown[COUNT, labels(model_name="rules", status="OK")] == 1
    timed = labels(model_name="rules", API=api, entrypoint=entrypoint)
    assert grown[f"{LATENCY}_count", timed] == 1 and grown[f"{LATENCY}_sum", timed] > 0


def test_failed_requests_are_counted_by_their_status_and_not_timed(served):
    """model_servers/prediction_service_impl.cc: latency is that of requests with status OK."""
    request = predict_request("no", x=ones(1, 2))
    grown = growth(served, lambda: rpc_error(served.predictions.Predict, request))
    assert grown[COUNT, labels(model_name="rules", status="FAILED_PRECONDITION")] == 1
    assert not any(v for (name, _), v in grown.items() if name.startswith(LATENCY))


def test_metadata_and_status_are_not_counted(served):
    """model_servers/prediction_service_impl.cc, GetModelMetadata, and model_service_impl.cc."""
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    status = get_model_status_pb2.GetModelStatusRequest()
    metadata.model_spec.name = status.model_spec.name = "rules"
    grown = growth(
        served,
        lambda: served.predictions.GetModelMetadata(metadata),
        lambda: served.models.GetModelStatus(status),
    )
    assert not any(value for (name, _), value in grown.items() if name == COUNT)

"""gRPC calls that send headers and no message, and streams that stay open."""

import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from .grpc_requests import ones, predict_request

PREDICT = "/tensorflow.serving.PredictionService/Predict"
CHECK = "/grpc.health.v1.Health/Check"


@pytest.fixture(scope="module")
def impatient(rules, shared_servers):
    """A server with four threads that waits two seconds for messages."""
    return shared_servers(
        model_name="rules",
        model_base_path=str(rules),
        grpc_max_threads=4,
        max_concurrent_requests=4,
        body_timeout_seconds=2.0,
        enable_grpc_reflection=True,
    )


@pytest.fixture
def silence():
    """An iterator without items, which ends with the test."""
    end = threading.Event()
    yield iter(lambda: end.wait(60.0) and None, None)
    end.set()


def open_calls(client, methods, silence):
    """Start a call without a message for each of `methods`."""
    return [client.channel.stream_unary(m).future(silence) for m in methods]


def seconds_of_answers(client):
    """Return how long a prediction and a health check take."""
    health, start = health_pb2_grpc.HealthStub(client.channel), time.monotonic()
    response = client.predictions.Predict(predict_request(x=ones(1, 2)), timeout=5)
    assert list(response.outputs["y"].float_val) == [3.0]
    assert health.Check(health_pb2.HealthCheckRequest(), timeout=5).status == 1
    return time.monotonic() - start


def test_calls_without_a_message_do_not_delay_others_and_end(impatient, silence):
    calls = open_calls(impatient, [PREDICT, CHECK] * 7, silence)
    assert seconds_of_answers(impatient) < 1.0
    assert {call.code().name for call in calls} == {"DEADLINE_EXCEEDED"}
    assert "did not arrive in time" in calls[0].details()


def test_more_calls_without_a_message_than_may_wait_refuse_the_oldest(impatient, silence):
    start = time.monotonic()
    first = open_calls(impatient, [PREDICT] * 8, silence)
    other = grpc.insecure_channel(
        impatient.addresses["grpc"], [("grpc.use_local_subchannel_pool", 1)]
    )
    further = [other.stream_unary(PREDICT).future(silence) for _ in range(12)]
    assert first[0].code().name == "DEADLINE_EXCEEDED" and time.monotonic() - start < 2.0
    assert seconds_of_answers(impatient) < 1.0
    assert not further[-1].done()
    other.close()


def test_streams_that_stay_open_do_not_delay_others(impatient, silence):
    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    streams = [impatient.channel.stream_stream(method)(silence) for _ in range(8)]
    watch = health_pb2_grpc.HealthStub(impatient.channel).Watch
    watchers = [watch(health_pb2.HealthCheckRequest()) for _ in range(4)]
    assert [next(watcher).status for watcher in watchers] == [1] * 4
    assert seconds_of_answers(impatient) < 1.0
    for stream in streams + watchers:
        stream.cancel()


def test_reflection_is_an_option(impatient, plain):
    services = ProtoReflectionDescriptorDatabase(impatient.channel).get_services()
    assert "tensorflow.serving.PredictionService" in services
    with pytest.raises(grpc.RpcError) as caught:
        ProtoReflectionDescriptorDatabase(plain.channel).get_services()
    assert caught.value.code().name == "UNIMPLEMENTED"

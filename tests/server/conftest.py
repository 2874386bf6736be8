"""A server in this process, for the tests of a file; or a real one, at TF_SERVING_ADDRESS."""

import os
import socket
from types import SimpleNamespace

import grpc
import httpx
import pytest
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from . import models


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="session")
def rules(tmp_path_factory):
    """The directory of the model `rules`, version 1."""
    base = tmp_path_factory.mktemp("models") / "rules"
    models.write(base)
    return base


@pytest.fixture(scope="session")
def serve():
    """Starts servers with the given settings; they end with the tests."""
    from jem_tf.server import Options
    from jem_tf.server.serving import ModelServer

    running = []

    def start(**options):
        port, rest = free_ports(2)
        server = ModelServer(Options(port=port, rest_api_port=rest, drain_seconds=5.0, **options))
        server.start()
        running.append(server)
        client = clients(f"127.0.0.1:{port}", f"127.0.0.1:{rest}")
        client.server = server
        return client

    yield start
    for server in running:
        server.stop()


def clients(grpc_address, rest_address):
    channel = grpc.insecure_channel(grpc_address)
    return SimpleNamespace(
        channel=channel,
        predictions=prediction_service_pb2_grpc.PredictionServiceStub(channel),
        models=model_service_pb2_grpc.ModelServiceStub(channel),
        rest=httpx.Client(base_url=f"http://{rest_address}", timeout=60.0),
    )


@pytest.fixture(scope="session", params=["plain", "batching"])
def served(request, rules, serve):
    """Clients of a server with the model `rules`: ours, or a real TF Serving."""
    real = os.environ.get("TF_SERVING_ADDRESS")  # host:gRPC port,host:REST port
    if real:
        if request.param == "batching":
            pytest.skip("the real server has its own settings")
        return clients(*real.split(","))
    options = {"model_name": "rules", "model_base_path": str(rules)}
    return serve(**options, enable_batching=request.param == "batching")

"""Models and servers that test files share; `conftest.py` of this and other packages import it."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from . import models
from .servers import connect, model_config, start_server


@pytest.fixture(scope="session")
def rules(shared_directory):
    """The directory of the model `rules`, version 1."""
    return shared_directory("rules", models.write_rules)


@pytest.fixture(scope="session")
def judge(shared_directory):
    """The directory of the model `judge`, version 1."""
    return shared_directory("judge", models.write_judge)


@contextmanager
def server_starter():
    """Yield a function that starts servers with the given options; stop them at the end."""
    running = []

    def start(**options):
        connections = start_server(**options)
        running.append(connections.server)
        return connections

    try:
        yield start
    finally:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda server: server.stop(), running))


@pytest.fixture(scope="session")
def shared_servers():
    """A function that starts servers which run until all tests end."""
    with server_starter() as start:
        yield start


@pytest.fixture
def serve():
    """A function that starts servers which run until the test ends."""
    with server_starter() as start:
        yield start


@pytest.fixture(scope="session")
def plain(rules, judge, shared_servers, tmp_path_factory):
    """A server of `rules` and `judge` with default options."""
    config = model_config(tmp_path_factory.mktemp("config"), rules=rules, judge=judge)
    return shared_servers(model_config_file=config)


@pytest.fixture(scope="session")
def batching(rules, shared_servers):
    """A server of `rules` with batching."""
    return shared_servers(model_name="rules", model_base_path=str(rules), enable_batching=True)


@pytest.fixture(scope="session", params=["plain", "batching"])
def served(request):
    """A server of `rules`: ours, with and without batching, or a real TF Serving."""
    addresses = os.environ.get("TF_SERVING_ADDRESS")  # host:gRPC port,host:REST port
    if not addresses:
        return request.getfixturevalue(request.param)
    if request.param == "batching":
        pytest.skip("the settings of the real server decide")
    return connect(*addresses.split(","))

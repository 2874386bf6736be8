"""The Dockerfile: copied files exist, versions are the tested ones, nothing is for training."""

import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
TRAINING = (
    "tensorflow_probability tf_keras tensorflow_datasets sklearn scipy PIL tqdm matplotlib pyarrow"
)


@pytest.fixture(scope="module")
def parser():
    return DockerfileParser(str(ROOT / "serving" / "Dockerfile"))


@pytest.fixture(scope="module")
def stages(parser):
    """Return the instructions of each stage, as (name, value)."""
    stages = []
    for line in parser.structure:
        if line["instruction"] == "FROM":
            stages.append([])
        if line["instruction"] != "COMMENT":
            stages[-1].append((line["instruction"], line["value"]))
    return stages


def requirements(name):
    lines = (ROOT / name).read_text().splitlines()
    words = [line.partition("#")[0].strip() for line in lines]
    return {r.name: r.specifier for r in map(Requirement, filter(None, words))}


def test_copied_files_exist_and_are_in_the_build_context(stages):
    context = (ROOT / ".dockerignore").read_text().splitlines()
    lines = [value for stage in stages for name, value in stage if name == "COPY"]
    sources = [w for line in lines if "--from" not in line for w in line.split()[:-1]]
    packages = {file.parent.name for file in ROOT.glob("jem_tf*/__init__.py")}
    assert packages and packages <= set(sources)
    assert all((ROOT / name).exists() and f"!{name}" in context for name in sources)


def test_base_images_have_a_full_version(parser):
    bases = parser.parent_images
    assert len(bases) == 3
    assert all(re.search(r":\d+\.\d+\.\d+(-[\w-]+)?$", name) for name in bases)


@contextmanager
def answering(status):
    """The port of a server that answers all requests with a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()

    with HTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_image_runs_without_root_and_reports_its_health(stages):
    last = dict(stages[-1])
    assert last["USER"] == dict(stages[0])["USER"] == "10001"
    assert json.loads(last["ENTRYPOINT"]) == ["jem-tf"]
    command = json.loads(last["HEALTHCHECK"].partition("CMD ")[2])
    for status, code in ((200, 0), (401, 0), (404, 0), (503, 1)):
        with answering(status) as port:
            environment = {**os.environ, "REST_PORT": str(port)}
            result = subprocess.run([sys.executable, *command[1:]], env=environment)
            assert result.returncode == code


def test_the_image_has_the_tested_versions_and_no_training_stack(stages):
    """The package is installed with the image's own list in the place of requirements.txt."""
    copied = [value for name, value in stages[1] if name == "COPY"]
    assert "serving/requirements.txt ./requirements.txt" in copied
    tested, image = requirements("requirements.txt"), requirements("serving/requirements.txt")
    assert image.pop("tensorflow-cpu") == tested["tensorflow"]
    assert image == {"keras": tested["keras"]}
    (install,) = (value for name, value in stages[1] if name == "RUN")
    api = Requirement(re.search(r"'(tensorflow-serving-api[^']*)'", install)[1])
    assert api.specifier == tested[api.name] and "'.[serve]'" in install


def test_server_gateway_and_client_need_no_training_stack():
    """They are imported in a process that has none of its packages."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({TRAINING!r}.split()))\n"
        "import jem_tf.cli.serving, jem_tf.server.serving, jem_tf.server.gateway, jem_tf.client\n"
        "import jem_tf.client.load_generator, jem_tf_cli\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

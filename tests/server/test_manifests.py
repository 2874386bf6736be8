"""The files of `serving/` follow their schemas, and the server accepts their flags."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jem_tf import export
from jem_tf.client import JEMClient
from jem_tf.server import Options, configuration, protos
from jem_tf_cli.parser import make_parser

SERVING = Path(__file__).parents[2] / "serving"


def compose_services():
    return yaml.safe_load((SERVING / "compose.yaml").read_text())["services"]


def configured_models():
    file = SERVING / "config" / "models.config"
    return protos.read_text_proto(file, protos.ModelServerConfig).model_config_list.config


def compose_flags():
    return compose_services()["serving"]["command"]


def kubernetes_flags():
    documents = list(yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text()))
    (deployment,) = (d for d in documents if d["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container["args"]


def parse(words):
    """Parse a command line; TF Serving's flags have underscores, those of the parser dashes."""
    pairs = (word.partition("=") for word in words)
    argv = [name.replace("_", "-") + equals + value for name, equals, value in pairs]
    return make_parser(argv).parse_args(argv)


@pytest.mark.parametrize("read_flags", [compose_flags, kubernetes_flags])
def test_the_embedded_server_accepts_the_flags_and_files(read_flags):
    """The same command line works for `jem-tf serve`, with the paths of this directory."""
    flags = [flag.replace("/config/", f"{SERVING}/config/") for flag in read_flags()]
    arguments = vars(parse(["serve", *flags]))
    options = Options(**{name: arguments[name] for name in Options.__dataclass_fields__})
    (model,) = configuration.read_model_config(options).model_config_list.config
    assert model.base_path == f"/models/{model.name}"
    batching = configuration.read_batching(options)
    assert batching.allowed_sizes == warmup_sizes()
    assert configuration.read_metrics_path(options) == configuration.METRICS_PATH
    rows = inspect.signature(JEMClient).parameters["batch"].default
    assert rows <= batching.max_batch_size  # TF Serving refuses larger requests


def warmup_sizes():
    """Return the batch sizes that an export has warm-up requests for."""
    return inspect.signature(export).parameters["warmup_batches"].default


def check(program, *flags):
    command = [Path(sys.executable).parent / program, *flags]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["kubernetes", "volume"])
def test_kubernetes_manifests_follow_their_schemas(name):
    check("kubernetes-validate", "--strict", SERVING / f"{name}.yaml")


def test_the_manifests_use_the_volume():
    claim = yaml.safe_load((SERVING / "volume.yaml").read_text())["metadata"]["name"]
    assert f"claimName: {claim}," in (SERVING / "kubernetes.yaml").read_text()
    assert f"pvc://{claim}/" in (SERVING / "kserve.yaml").read_text()


def test_compose_follows_its_schema():
    check("check-jsonschema", "--builtin-schema", "vendor.compose-spec", SERVING / "compose.yaml")


def test_kserve_follows_its_schema():
    schema = Path(__file__).parent / "kserve.schema.json"
    check("check-jsonschema", "--schemafile", schema, SERVING / "kserve.yaml")
    service = yaml.safe_load((SERVING / "kserve.yaml").read_text())
    (model,) = configured_models()
    assert service["metadata"]["name"] == model.name
    assert service["spec"]["predictor"]["model"]["storageUri"].endswith(f"/{model.name}")


def test_probes_request_a_configured_model():
    (model,) = configured_models()
    text = (SERVING / "kubernetes.yaml").read_text()
    assert text.count(f"path: /v1/models/{model.name}, port: rest") == 2


def test_compose_listens_on_this_machine_only():
    ports = [port for service in compose_services().values() for port in service.get("ports", [])]
    assert len(ports) == 4 and all(port.startswith("127.0.0.1:") for port in ports)


def test_compose_mounts_files_that_exist():
    binds = [
        volume
        for service in compose_services().values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    ]
    assert binds and all((SERVING / bind.split(":")[0]).exists() for bind in binds)


def test_the_image_of_the_gateway_has_all_packages():
    build = compose_services()["gateway"]["build"]
    context = SERVING / build["context"]
    lines = re.findall(r"^COPY (.+) \S+$", (context / build["dockerfile"]).read_text(), re.M)
    copied = {name for line in lines for name in line.split()}
    packages = {file.parent.name for file in context.glob("jem_tf*/__init__.py")}
    assert packages and packages <= copied
    assert all((context / name).exists() for name in copied)


def test_the_gateway_accepts_the_flags_of_compose():
    arguments = parse(compose_services()["gateway"]["command"])
    assert arguments.upstream == "serving:8500" and arguments.port == 8500

"""The files of `serving/`: schemas, protos, and flags that the server takes."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jem_tf import cli, export
from jem_tf.client import JEMClient
from jem_tf.server import Options, configuration, protos

SERVING = Path(__file__).parents[2] / "serving"


def services():
    return yaml.safe_load((SERVING / "compose.yaml").read_text())["services"]


def models():
    config = protos.read(SERVING / "config" / "models.config", protos.ModelServerConfig)
    return config.model_config_list.config


def flags_of_compose():
    return services()["serving"]["command"]


def flags_of_kubernetes():
    documents = list(yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text()))
    (deployment,) = (d for d in documents if d["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container["args"]


@pytest.mark.parametrize("flags", [flags_of_compose, flags_of_kubernetes])
def test_flags_and_files_are_those_of_the_server(flags):
    """The same command line works for `jem-tf serve`, once the paths are."""
    here = [flag.replace("/config/", f"{SERVING}/config/") for flag in flags()]
    arguments = vars(cli.make_parser().parse_args(["serve", *map(cli._dashed, here)]))
    names = Options.__dataclass_fields__
    options = Options(**{name: arguments[name] for name in names})
    (model,) = configuration.models(options).model_config_list.config
    assert model.base_path == f"/models/{model.name}"
    assert configuration.batching(options).allowed_sizes == warm_sizes()
    assert configuration.metrics_path(options) == configuration.METRICS_PATH
    rows = inspect.signature(JEMClient).parameters["batch"].default
    assert rows <= configuration.batching(options).max_batch_size  # TF Serving refuses more


def warm_sizes():
    """Those that an export carries warm-up requests for."""
    return inspect.signature(export).parameters["warmup_batches"].default


def check(program, *flags):
    command = [Path(sys.executable).parent / program, *flags]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", ["kubernetes", "volume"])
def test_kubernetes_manifests_follow_their_schemas(name):
    check("kubernetes-validate", "--strict", SERVING / f"{name}.yaml")


def test_the_volume_is_the_one_that_is_used():
    claim = yaml.safe_load((SERVING / "volume.yaml").read_text())["metadata"]["name"]
    assert f"claimName: {claim}," in (SERVING / "kubernetes.yaml").read_text()
    assert f"pvc://{claim}/" in (SERVING / "kserve.yaml").read_text()


def test_compose_follows_its_schema():
    check("check-jsonschema", "--builtin-schema", "vendor.compose-spec", SERVING / "compose.yaml")


def test_kserve_follows_its_schema():
    schema = Path(__file__).parent / "kserve.schema.json"
    check("check-jsonschema", "--schemafile", schema, SERVING / "kserve.yaml")
    service = yaml.safe_load((SERVING / "kserve.yaml").read_text())
    (model,) = models()
    assert service["metadata"]["name"] == model.name
    assert service["spec"]["predictor"]["model"]["storageUri"].endswith(f"/{model.name}")


def test_probes_ask_for_a_model_that_is_served():
    (model,) = models()
    text = (SERVING / "kubernetes.yaml").read_text()
    assert text.count(f"path: /v1/models/{model.name}, port: rest") == 2


def test_compose_listens_on_this_machine_only():
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert len(ports) == 4 and all(port.startswith("127.0.0.1:") for port in ports)


def test_compose_uses_files_that_exist():
    binds = [
        volume
        for service in services().values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    ]
    assert binds and all((SERVING / bind.split(":")[0]).exists() for bind in binds)
    build = services()["gateway"]["build"]
    context = SERVING / build["context"]
    copied = re.findall(r"^COPY (.+) \S+$", (context / build["dockerfile"]).read_text(), re.M)
    assert copied and all((context / name).exists() for names in copied for name in names.split())


def test_the_gateway_of_compose_takes_its_flags():
    arguments = cli.make_parser().parse_args(services()["gateway"]["command"])
    assert arguments.upstream == "serving:8500" and arguments.port == 8500

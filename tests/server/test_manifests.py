"""The files of `serving/` follow their schemas, agree with each other, and the server accepts their
flags. Not here: the image (`test_image.py`)."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from jem_tf import __version__, export
from jem_tf.client import JEMClient
from jem_tf.server import Options, configuration, gateway, protos
from jem_tf_cli.parser import make_parser

SERVING = Path(__file__).parents[2] / "serving"
OURS = ("serving.kserve.io/v1beta1", "monitoring.coreos.com/v1")  # not in Kubernetes' own schemas


def documents(name):
    return list(yaml.safe_load_all((SERVING / name).read_text()))


def resource(name, kind):
    (found,) = (d for d in documents(name) if d["kind"] == kind)
    return found


def containers():
    """Return the containers of the pods of `serving/kubernetes` by name."""
    deployment = resource("kubernetes/serving.yaml", "Deployment")
    return {c["name"]: c for c in deployment["spec"]["template"]["spec"]["containers"]}


def compose_services():
    return yaml.safe_load((SERVING / "compose.yaml").read_text())["services"]


def configured_models():
    file = SERVING / "config" / "models.config"
    return protos.read_text_proto(file, protos.ModelServerConfig).model_config_list.config


def compose_flags():
    return compose_services()["serving"]["command"]


def kubernetes_flags():
    return containers()["serving"]["args"]


def parse(words):
    """Parse a command line; TF Serving's flags have underscores, those of the parser dashes."""
    pairs = (word.partition("=") for word in words)
    argv = [
        (name.replace("_", "-") if name.startswith("--") else name) + equals + value
        for name, equals, value in pairs
    ]
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


@pytest.mark.parametrize("name", ["kubernetes/serving", "models/models"])
def test_kubernetes_manifests_follow_their_schemas(name):
    check("kubernetes-validate", "--strict", SERVING / f"{name}.yaml")


def test_compose_follows_its_schema():
    check("check-jsonschema", "--builtin-schema", "vendor.compose-spec", SERVING / "compose.yaml")


def check_custom_resource(document):
    schema = json.loads((Path(__file__).parent / "custom_resources.schema.json").read_text())
    jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    "name", ["kserve/service", "monitoring/operator", "../examples/cluster/rayjob"]
)
def test_custom_resources_follow_their_schemas(name):
    for document in documents(f"{name}.yaml"):
        check_custom_resource(document)


def test_the_job_of_ray_runs_a_command_in_pods_that_kubernetes_accepts(tmp_path):
    spec = resource("../examples/cluster/rayjob.yaml", "RayJob")["spec"]
    command, *words = spec["entrypoint"].split()
    arguments = parse(words)
    assert command == "jem-tf" and (arguments.engine, arguments.address) == ("ray", "auto")
    cluster = spec["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    assert arguments.workers == workers["replicas"] * int(workers["rayStartParams"]["num-cpus"])
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **group["template"]}
        for group in (cluster["headGroupSpec"], workers)
    ]
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    check("kubernetes-validate", "--strict", tmp_path / "pods.yaml")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize("name", ["kubernetes", "kserve", "models"])
def test_kustomize_renders_each_variant(name, tmp_path):
    """The name of the ConfigMap has a hash of its content wherever it is used."""
    command = ["kubectl", "kustomize", SERVING / name]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kinds = {document["kind"]: document for document in yaml.safe_load_all(rendered)}
    own = [d for d in yaml.safe_load_all(rendered) if d["apiVersion"] not in OURS]
    (tmp_path / "own.yaml").write_text(yaml.safe_dump_all(own))
    check("kubernetes-validate", "--strict", tmp_path / "own.yaml")
    if name != "models":
        assert {"PodMonitor", "PrometheusRule", "ConfigMap"} <= kinds.keys()
        assert rendered.count("name: jem-tf-config-") == 2
        assert f"jem-tf:{__version__}" in rendered and "tensorflow/serving\n" not in rendered


def test_kustomizations_name_files_that_exist():
    for file in SERVING.rglob("kustomization.yaml"):
        content = yaml.safe_load(file.read_text())
        names = content.get("resources", []) + content.get("configurations", [])
        for generator in content.get("configMapGenerator", []):
            names += generator["files"]
        assert names and all((file.parent / name).exists() for name in names), file


def test_kserve_names_the_model_the_volume_and_this_version():
    service = resource("kserve/service.yaml", "InferenceService")
    predictor, transformer = service["spec"]["predictor"], service["spec"]["transformer"]
    claim = resource("models/models.yaml", "PersistentVolumeClaim")["metadata"]["name"]
    (model,) = configured_models()
    assert service["metadata"]["name"] == model.name
    assert predictor["model"]["storageUri"] == f"pvc://{claim}/{model.name}"
    (container,) = transformer["containers"]
    assert container["image"] == f"jem-tf:{__version__}"
    shell, flag, line = container["command"]
    words = line.removeprefix("exec jem-tf ").split()
    assert (shell, flag) == ("sh", "-c") and parse(words).rest_api_port == 8080


def test_the_pods_use_the_volume_and_probe_a_configured_model():
    claim = resource("models/models.yaml", "PersistentVolumeClaim")["metadata"]["name"]
    text = (SERVING / "kubernetes/serving.yaml").read_text()
    (model,) = configured_models()
    assert f"claimName: {claim}," in text
    assert text.count(f"path: /v1/models/{model.name}, port: serving-rest") == 2


def test_the_loader_copies_new_versions_aside_and_renames_them(tmp_path):
    """A version that is there stays as it is, and what a killed loader left is replaced."""
    source, target = tmp_path / "saved_models", tmp_path / "models"
    for version in ("digits/1", "digits/2", "photos/7"):
        (source / version / "variables").mkdir(parents=True)
        (source / version / "saved_model.pb").write_text(f"new {version}")
    for version, name in (("1", "saved_model.pb"), (".2", "rest")):
        (target / "digits" / version).mkdir(parents=True)
        (target / "digits" / version / name).write_text("old")
    job = resource("models/models.yaml", "Job")["spec"]["template"]["spec"]["containers"][0]
    environment = {**os.environ, "SOURCE": str(source), "TARGET": str(target)}
    result = subprocess.run(
        [*job["command"], *job["args"]], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "Copied digits/2\nCopied photos/7\n"
    files = {str(f.relative_to(target)): f.read_text() for f in target.rglob("*") if f.is_file()}
    assert files == {
        "digits/1/saved_model.pb": "old",
        "digits/2/saved_model.pb": "new digits/2",
        "photos/7/saved_model.pb": "new photos/7",
    }


def test_the_autoscaler_alone_sets_the_replicas():
    deployment = resource("kubernetes/serving.yaml", "Deployment")
    scaler = resource("kubernetes/serving.yaml", "HorizontalPodAutoscaler")["spec"]
    assert "replicas" not in deployment["spec"]
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert {"scaleUp", "scaleDown"} == scaler["behavior"].keys()
    assert scaler["metrics"][0]["containerResource"]["container"] in containers()


def test_tf_serving_outlives_the_requests_of_the_gateway():
    pod = resource("kubernetes/serving.yaml", "Deployment")["spec"]["template"]["spec"]
    sleeps = {
        name: int(c["lifecycle"]["preStop"]["exec"]["command"][1])
        for name, c in containers().items()
    }
    assert sleeps["serving"] > sleeps["gateway"] + gateway.DRAIN_SECONDS
    assert pod["terminationGracePeriodSeconds"] > sleeps["serving"]


def test_the_gateway_forwards_to_tf_serving_and_the_services_to_the_gateway():
    serving = parse(["serve", *kubernetes_flags()])
    proxy = parse(containers()["gateway"]["args"])
    assert proxy.upstream == f"localhost:{serving.port}"
    assert proxy.upstream_rest == f"localhost:{serving.rest_api_port}"
    ports = {p["name"]: p["containerPort"] for c in containers().values() for p in c["ports"]}
    assert (ports["serving-grpc"], ports["serving-rest"]) == (serving.port, serving.rest_api_port)
    assert (ports["grpc"], ports["rest"]) == (proxy.port, proxy.rest_api_port)
    services = [d for d in documents("kubernetes/serving.yaml") if d["kind"] == "Service"]
    for service in services:
        for port in service["spec"]["ports"]:  # a headless Service does not translate ports
            assert port["port"] == ports[port["targetPort"]]
    assert [s["spec"].get("clusterIP") for s in services] == [None, "None"]
    monitor = resource("monitoring/operator.yaml", "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert {(e["port"], e["path"]) for e in monitor} == {
        ("serving-rest", configuration.METRICS_PATH),
        ("rest", configuration.METRICS_PATH),
    }


def test_containers_are_restricted():
    job = resource("models/models.yaml", "Job")["spec"]["template"]["spec"]
    deployment = resource("kubernetes/serving.yaml", "Deployment")["spec"]["template"]["spec"]
    for pod in (job, deployment):
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}
    policy = resource("kubernetes/serving.yaml", "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"] and "egress" not in policy


def test_both_forms_of_the_alerts_are_the_same():
    alerts = yaml.safe_load((SERVING / "monitoring/alerts.yaml").read_text())
    assert resource("monitoring/operator.yaml", "PrometheusRule")["spec"] == alerts


def test_client_errors_raise_no_alert():
    (group,) = yaml.safe_load((SERVING / "monitoring/alerts.yaml").read_text())["groups"]
    (failures,) = (r["expr"] for r in group["rules"] if r["alert"] == "RequestsFail")
    assert "INTERNAL" in failures and "UNAVAILABLE" in failures
    for status in ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "!="):
        assert status not in failures


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


def test_the_gateway_accepts_the_flags_of_compose():
    arguments = parse(compose_services()["gateway"]["command"])
    assert arguments.upstream == "serving:8500" and arguments.port == 8500

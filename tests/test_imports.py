"""What `import jem_tf` loads, and that it means the same in every process."""

import json
import subprocess
import sys

import pytest

FORBIDDEN = (
    "sklearn",
    "PIL",
    "matplotlib",
    "scipy",
    "art",
    "foolbox",
    "tensorflow_datasets",
    "tensorflow_probability",
    "pyarrow",
    "ray",
    "grpc",
    "httpx",
    "uvicorn",
    "jem_tf.server",
    "jem_tf.client",
    "jem_tf.evaluation",
    "jem_tf.cli",
    "jem_tf.likelihood",
    "tf_keras",
)


def run(code, name="script.py"):
    """The last line that `code` prints in a new process, as JSON."""
    program = f"import sys; sys.argv = [{name!r}]\n{code}"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def loaded():
    tensorflow = run("import tensorflow, keras, json; print(json.dumps(sorted(sys.modules)))")
    ours = run("import jem_tf, json; print(json.dumps(sorted(sys.modules)))")
    return set(ours) - set(tensorflow)


def test_importing_the_package_loads_no_library_of_its_extras(loaded):
    assert "jem_tf.model.jem" in loaded
    found = [m for m in loaded if any(m == f or m.startswith(f"{f}.") for f in FORBIDDEN)]
    assert found == []


@pytest.mark.parametrize("order", ["keras, jem_tf", "jem_tf, keras"])
@pytest.mark.parametrize("name", ["script.py", pytest.param("jem-tf", marks=pytest.mark.slow)])
def test_public_names_and_registrations_do_not_depend_on_the_process(order, name):
    code = (
        f"import {order}, json\n"
        "names = sorted(k for k in keras.saving.get_custom_objects() if k.startswith('jem_tf>'))\n"
        "kinds = {n: type(getattr(jem_tf, n)).__name__ for n in jem_tf.__all__}\n"
        "print(json.dumps([names, kinds]))"
    )
    names, kinds = run(code, name)
    expected = "ActNorm Cooled CrossEntropy Detector DualAdversarial EnergyDiscrepancy FCE"
    expected += " Factored Flow FusedBatchNormalization GaussianMixture HDGE IGEBM InputRange JEM"
    expected += " Joint LatentDense MALA Muon NCE RandomCrop ReplayBuffer SGLD ScoreMatching SupCon"
    expected += " Uniform Warmup silu"
    assert names == sorted(f"jem_tf>{n}" for n in expected.split())
    assert kinds["export"] == kinds["load"] == "function"
    assert kinds["objectives"] == "module"


def test_help_needs_no_tensorflow():
    code = (
        "import json, jem_tf_cli\n"
        "try: jem_tf_cli.main(['train', '--help'])\n"
        "except SystemExit: pass\n"
        "print(); print(json.dumps([m for m in ('tensorflow', 'keras') if m in sys.modules]))"
    )
    assert run(code) == []

"""The reference agrees with the code: names, commands, signatures, logs, diagrams and links."""

import importlib
import pkgutil
import re
import runpy
import shlex
import tomllib

import numpy as np
import pytest

import jem_tf
from jem_tf import backbones, objectives
from jem_tf.model import health, loading
from jem_tf.sampling import MALA, SGLD
from jem_tf.saved_model import layout
from jem_tf.saved_model.fitted import Calibration
from jem_tf.saved_model.signatures import Signatures
from jem_tf.training import recipe_files, run_directory
from jem_tf_cli.parser import make_parser

from .pages import ALL_PAGES, DOCS, ROOT, name_of, read_blocks

API = DOCS / "reference" / "api"


def public_packages():
    """Return `jem_tf` and the packages directly in it that say what they export."""
    names = [m.name for m in pkgutil.iter_modules(jem_tf.__path__) if not m.name.startswith("_")]
    modules = [importlib.import_module(f"jem_tf.{name}") for name in names]
    return [jem_tf, *(m for m in modules if hasattr(m, "__path__") and hasattr(m, "__all__"))]


@pytest.mark.parametrize("package", public_packages(), ids=lambda package: package.__name__)
def test_every_public_name_is_in_the_api_reference(package):
    pages = "\n".join(page.read_text() for page in API.glob("*.md"))
    documented = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    # `jem_tf` exports what `jem_tf.model` and `jem_tf.scoring` export.
    shared = package.__name__ in ("jem_tf.model", "jem_tf.scoring")
    prefixes = [package.__name__] + (["jem_tf"] if shared else [])
    missing = [
        name
        for name in package.__all__
        if not any(f"{prefix}.{name}" in documented for prefix in prefixes)
    ]
    assert not missing


def shell_lines(page):
    """Return the commands in the `sh` blocks of a page; a backslash joins lines."""
    text = "\n".join(block.code for block in read_blocks(page, "sh"))
    return text.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_the_commands_of_a_page_exist(page, capsys):
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in shell_lines(page):
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0], re.DOTALL):
            words = words[1:]  # an environment variable
        if words[:1] == ["jem-tf"]:
            argv = [w.replace("_", "-") if w.startswith("--") else w for w in words[1:]]
            try:
                make_parser(argv).parse_args(argv)
            except SystemExit:
                pytest.fail(f"{line!r} is not a command of jem-tf: {capsys.readouterr().err}")
        if words[:1] == ["make"]:
            named = re.match(r"make ([a-z0-9 -]+)", " ".join(words))[1].split()
            assert set(named) <= targets, line
        if words[:1] == ["python"]:
            assert (ROOT / words[1]).is_file(), line


@pytest.mark.parametrize("page", ALL_PAGES[:2], ids=name_of)
def test_links_of_pages_outside_the_site_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_log_and_vital_sign_is_explained():
    text = (DOCS / "explanations" / "logs.md").read_text()
    logged = {name for kind in objectives.OBJECTIVES.values() for name in kind.logged}
    logged |= {*SGLD.diagnostics, *MALA.diagnostics, *health.VITALS}
    assert [name for name in sorted(logged) if f"`{name}`" not in text] == []


def test_every_signature_and_output_is_listed():
    text = (DOCS / "reference" / "signatures.md").read_text()
    model = jem_tf.JEM(backbones.mlp((2, 2, 1), 2, units=2, depth=1, latent=2), seed=0)
    model.input_range.adapt(np.eye(4).reshape(4, 2, 2, 1))
    functions = Signatures(model, Calibration(), ("a", "b"), 1, 1, (-1.0, 1.0)).trace()
    names = set(functions)
    for function in functions.values():
        names |= {*function.structured_outputs, *function.structured_input_signature[1]}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
    for file in (layout.SAVED_MODEL, layout.METADATA, layout.EXAMPLES, layout.LITE, layout.WARMUP):
        assert f"`{file}`" in text


def test_every_file_of_a_run_is_listed():
    text = (DOCS / "reference" / "run-directory.md").read_text()
    files = [run_directory.CONFIG, run_directory.LOG, run_directory.EVENTS, run_directory.RESULT]
    for file in [*files, recipe_files.FILE, loading.MODEL_FILE, f"{loading.CHECKPOINTS}/"]:
        assert f"`{file}`" in text


def test_the_diagrams_are_up_to_date():
    script = runpy.run_path(str(DOCS / "diagrams" / "draw.py"))
    for file, draw in script["DIAGRAMS"].items():
        assert (DOCS / "diagrams" / file).read_text() == draw(), "python docs/diagrams/draw.py"
    places = [where for _, _, steps in script["PATHS"] for _, where in steps if "/" in where]
    assert [place for place in places if not (ROOT / "jem_tf" / place).exists()] == []


def test_the_diagram_has_the_layers_that_lint_checks():
    script = runpy.run_path(str(DOCS / "diagrams" / "draw.py"))
    drawn = {
        name.rstrip("/").removesuffix(".py"): int(number)
        for number, _, packages in script["LAYERS"]
        for names, _ in packages
        for name in names.split(", ")
    }
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in linter["contracts"] if c["type"] == "layers"]
    rows = [[m.strip().removeprefix("jem_tf.") for m in layer.split("|")] for layer in layers]
    levels = [{drawn[name] for name in row if name != "version"} for row in rows]
    assert all(len(level) == 1 for level in levels)
    flat = [level.pop() for level in levels]
    assert flat == sorted(flat, reverse=True)

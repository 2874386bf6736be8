"""The examples in the docstrings of public names run, on a few rows and for one step.

An example may use the names of its module, the public names of `jem_tf`, and those of
`PROVIDED_TO_DOCSTRINGS`. `NOT_RUN` says which examples cannot run, and why.
"""

import ast
import dataclasses
import importlib
import re
import textwrap

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf import callbacks, data, evaluation, objectives, sampling, training
from jem_tf.training import recipes

from .pages import ROOT
from .provided import PROVIDED_TO_DOCSTRINGS
from .test_examples import undefined_names

NOT_RUN = {
    "side_by_side": "would change the threads of other tests",
    "JEMClient": "needs a server",
    "AsyncJEMClient": "needs a server",
    "Budget": "would change the budgets of other tests",
    "EvaluationInterrupted": "docs/how-to/evaluate.md runs an evaluation",
    "evaluate": "docs/how-to/evaluate.md runs an evaluation",
    "of": "docs/how-to/evaluate.md runs an evaluation",
    "open_subject": "needs a run directory and a server",
    "LogZ": "takes a minute",
    "Flow": "fits for 1 000 steps",
    "load": "needs a run directory, or a published checkpoint",
    "Checkpoint": "needs a published checkpoint",
    "save": "docs/how-to/pytorch-checkpoints.md saves a WideResNet",
    "export": "docs/how-to/export-and-serve.md exports a model",
    "train": "docs/how-to/train-on-your-data.md trains",
    "RunSettings": "docs/how-to/train-on-your-data.md trains",
    "score": "docs/how-to/score-data.md scores rows",
    "Summary": "docs/how-to/score-data.md scores rows",
    "open_rows": "needs files",
    "ModelServer": "listens at fixed ports",
    "Gateway": "listens at fixed ports",
}
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def read_examples():
    """Return module, name and code of every example in a docstring of `jem_tf`."""
    for file in sorted((ROOT / "jem_tf").rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                for match in _BLOCK.finditer(ast.get_docstring(node) or ""):
                    yield module, node.name, textwrap.dedent(match[1])


def documented_names():
    """Return the last parts of all names in the API reference."""
    pages = (ROOT / "docs" / "reference" / "api").glob("*.md")
    text = "\n".join(page.read_text() for page in pages)
    return {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}


EXAMPLES = list(read_examples())
PUBLIC = [example for example in EXAMPLES if example[1] in documented_names()]


@pytest.mark.parametrize(
    ("module", "name", "code"),
    [example for example in PUBLIC if example[1] not in NOT_RUN],
    ids=lambda value: value if "\n" not in value else "",
)
def test_the_example_of_a_docstring_runs(module, name, code, short):
    packages = (sampling, objectives, callbacks, training, jem_tf)
    namespace = {
        **{key: getattr(package, key) for package in packages for key in package.__all__},
        **{"jem_tf": jem_tf, "data": data, "evaluation": evaluation, "recipes": recipes},
        **{"dataclasses": dataclasses, "keras": keras, "np": np},
        **vars(importlib.import_module(module)),
    }
    missing = [key for key in undefined_names(code) if key not in namespace]
    namespace |= {key: PROVIDED_TO_DOCSTRINGS[key]() for key in missing}
    exec(compile(code, f"{module}.{name}", "exec"), namespace)


@pytest.mark.parametrize(("module", "name", "code"), EXAMPLES, ids=lambda value: value[:40].strip())
def test_every_example_of_a_docstring_is_python(module, name, code):
    compile(code, f"{module}.{name}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_examples_that_are_not_run_exist():
    assert set(NOT_RUN) <= {name for _, name, _ in PUBLIC}

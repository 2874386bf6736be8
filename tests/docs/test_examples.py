"""The Python blocks of the documentation run, on a few rows and for one epoch.

Blocks of a page run in order in one namespace. Names that a page reads and never assigns come from
`PROVIDED`. A block under the comment `<!-- not run: REASON -->` is compiled only.
"""

import ast
import builtins
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf

import jem_tf
from jem_tf import backbones
from jem_tf.composition import Composition
from jem_tf.evaluation import BUDGETS, Budget
from tests.docs.pages import DOCS, PYTHON_PAGES, ROOT, name_of, read_blocks

SHAPE, CLASSES, ROWS = (8, 8, 1), 10, 60
TINY_BUDGET = Budget(
    rows=30,
    attack_rows=4,
    attack_steps=2,
    refine_steps=(),
    distal_steps=2,
    samples_per_class=1,
    sample_steps=2,
    animation_frames=1,
    classifier_rows=1,
)


def rows(seed):
    return np.random.default_rng(seed).uniform(-1, 1, (ROWS, *SHAPE)).astype(np.float32)


def labels():
    return np.arange(ROWS) % CLASSES


def make_backbone():
    return backbones.mlp(SHAPE, CLASSES, units=16, depth=1)


def make_trained():
    model = jem_tf.JEM(make_backbone(), sampler=jem_tf.SGLD(steps=2), seed=0)
    model.compile(keras.optimizers.Adam(1e-3), metrics=["accuracy"])
    model.fit(rows(0), labels(), verbose=0)
    return model


def make_adapted():
    model = jem_tf.JEM(backbones.mlp(SHAPE, 2, units=8, depth=1), seed=0)
    model.adapt(rows(0))
    return model


PROVIDED = {
    "backbone": make_backbone,
    "model": make_trained,
    "x": lambda: rows(0)[:5],
    "x_train": lambda: rows(0),
    "y_train": labels,
    "x_val": lambda: rows(1),
    "y_val": labels,
    "x_test": lambda: rows(2),
    "y_test": labels,
    "unusual": lambda: np.ones((20, *SHAPE), np.float32),
    "table": lambda: np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32),
    "table_labels": lambda: np.arange(ROWS) % 2,
    "parity": make_adapted,
    "size": make_adapted,
}


@pytest.fixture
def short(monkeypatch, tmp_path):
    """Training of one step, samples of two steps, 150 digits, a tiny evaluation, no tracing."""
    monkeypatch.chdir(tmp_path)
    fit = keras.Model.fit
    digits = sklearn.datasets.load_digits()
    few_digits = SimpleNamespace(images=digits.images[:150], target=digits.target[:150])

    def short_fit(self, x=None, y=None, batch_size=None, epochs=1, steps_per_epoch=None, **options):
        return fit(self, x, y, batch_size, epochs=1, steps_per_epoch=1, **options)

    def short_sample(sample):
        return lambda self, *args, **options: sample(self, *args, **{**options, "steps": 2})

    monkeypatch.setattr(keras.Model, "fit", short_fit)
    for kind in (jem_tf.JEM, Composition):
        monkeypatch.setattr(kind, "sample", short_sample(kind.sample))
    monkeypatch.setattr(jem_tf, "side_by_side", lambda: None)  # it would change other tests
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda: few_digits)
    monkeypatch.setitem(BUDGETS, "quick", TINY_BUDGET)
    tf.config.run_functions_eagerly(True)  # a few steps take less time than tracing
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
def test_the_python_blocks_of_a_page_run(page, short):
    blocks = read_blocks(page, "python")
    namespace = {name: PROVIDED[name]() for name in undefined_names(blocks)}
    for block in blocks:
        # Empty lines first, so that a traceback has the line numbers of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        if not block.reason:
            exec(code, namespace)


def undefined_names(blocks):
    """Return the names that the blocks to run read and never assign."""
    read, assigned = set(), set(dir(builtins))
    for block in blocks:
        if block.reason:
            continue
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.Name):
                (read if isinstance(node.ctx, ast.Load) else assigned).add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                assigned.add(node.name)
            elif isinstance(node, ast.arg):
                assigned.add(node.arg)
            elif isinstance(node, ast.alias):
                assigned.add((node.asname or node.name).partition(".")[0])
    return sorted(read - assigned)


def test_the_example_of_the_readme_is_that_of_the_home_page():
    pages = (ROOT / "README.md", DOCS / "index.md")
    readme, home = (read_blocks(page, "python")[0].code for page in pages)
    assert readme == home


def test_most_blocks_run():
    reasons = [block.reason for page in PYTHON_PAGES for block in read_blocks(page, "python")]
    assert len([reason for reason in reasons if not reason]) > 0.8 * len(reasons)

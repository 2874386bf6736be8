"""The Python blocks of the documentation run, on a few rows and for one step.

Blocks of a page run in order in one namespace. Names that a page reads and never assigns come from
`PROVIDED`. A block under the comment `<!-- not run: REASON -->` is compiled only.
"""

import ast
import builtins

import pytest

from .pages import DOCS, PYTHON_PAGES, ROOT, name_of, read_blocks
from .provided import PROVIDED


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
def test_the_python_blocks_of_a_page_run(page, short):
    blocks = read_blocks(page, "python")
    code = "\n".join(block.code for block in blocks if not block.reason)
    namespace = {name: PROVIDED[name]() for name in undefined_names(code)}
    for block in blocks:
        # Empty lines first, so that a traceback has the line numbers of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        if not block.reason:
            exec(code, namespace)


@pytest.mark.slow
def test_the_example_of_the_readme_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(read_blocks(ROOT / "README.md", "python")[0].code, namespace)
    predicted = namespace["model"].predict(namespace["x_test"], verbose=0).argmax(1)
    assert (predicted == namespace["y_test"]).mean() > 0.95


def undefined_names(code):
    """Return the names that `code` reads and never assigns."""
    read, assigned = set(), set(dir(builtins))
    for node in ast.walk(ast.parse(code)):
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

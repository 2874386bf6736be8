"""What MkDocs does beside its plugins: equations as MathML, and the help of `jem-tf`.

Not here: the pages. Both steps run offline, so that no page needs a script of another host.
"""

import contextlib
import html
import io
import os
import re
from typing import Any
from unittest import mock

COMMAND_LINE = "<!-- the help of every command -->"
HELP_COLUMNS = "90"
_MATH = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace `math` blocks and the placeholder of the command line."""
    markdown = _MATH.sub(lambda match: render_equations(match[1]), markdown)
    if COMMAND_LINE in markdown:
        markdown = markdown.replace(COMMAND_LINE, describe_commands())
    return markdown


def render_equations(text: str) -> str:
    """Return LaTeX as MathML, one equation for each line."""
    from latex2mathml.converter import convert

    lines = [convert(line, display="block") for line in text.splitlines() if line.strip()]
    return f'<div class="equation">{"".join(lines)}</div>\n'


def describe_commands() -> str:
    """Return a section for each command of `jem-tf`, with its help."""
    from jem_tf_cli.examples import EXAMPLES

    sections = [_section("jem-tf", read_help([]))]
    sections += [_section(f"jem-tf {name}", read_help([name])) for name in EXAMPLES if name]
    return "\n".join(sections)


def read_help(command: list[str]) -> str:
    """Return what `jem-tf COMMAND --help` prints."""
    from jem_tf_cli import main

    output = io.StringIO()
    wide = mock.patch.dict(os.environ, COLUMNS=HELP_COLUMNS)
    with wide, contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return output.getvalue()


def _section(title: str, text: str) -> str:
    return f'## {title}\n\n<pre class="help"><code>{html.escape(text)}</code></pre>\n'

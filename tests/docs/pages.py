"""The Markdown pages of the documentation, and the blocks in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PYTHON_PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((DOCS / "tutorials").glob("*.md")),
    *sorted((DOCS / "how-to").glob("*.md")),
    *sorted((DOCS / "explanations" / "family").glob("*.md")),
]
ALL_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A fenced block: its language, its text, and why it cannot run ("" if it can)."""

    language: str
    code: str
    reason: str
    line: int


def read_blocks(page: Path, language: str) -> list[Block]:
    """Return the blocks of `page` in `language`, in order."""
    text = page.read_text()
    blocks = [
        Block(m["language"], m["code"], m["reason"] or "", text.count("\n", 0, m.start("code")) + 1)
        for m in _BLOCK.finditer(text)
    ]
    return [block for block in blocks if block.language == language]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))

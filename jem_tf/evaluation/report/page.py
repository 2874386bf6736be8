"""`report.html`: one self-contained page, without scripts and without network access.

Not here: charts (`charts.py`) and figures (`figures.py`). The text is in `report.html.j2`.
"""

import base64
import importlib.util
from importlib import resources
from pathlib import Path
from typing import Any

from jem_tf.evaluation.report import charts, figures

MEDIA_TYPES = {".png": "image/png", ".gif": "image/gif"}
REQUIRED_PACKAGES = ("matplotlib", "jinja2", "foolbox", "art")


def check_installed() -> None:
    """Raise `ValueError` if a package that the report needs is missing."""
    missing = [name for name in REQUIRED_PACKAGES if not importlib.util.find_spec(name)]
    if missing:
        raise ValueError(f"The report needs {', '.join(missing)}: pip install 'jem_tf[report]'")


def write(out: Path, results: dict[str, Any]) -> Path:
    """Write `report.html` and its charts as SVG files to `out`; return the path of the page.

    ```python
    write(out, json.loads((out / "metrics.json").read_text()))
    ```
    """
    import jinja2

    svg_charts = charts.draw(results)
    for name, svg in svg_charts.items():
        (out / f"{name}.svg").write_text(svg)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(percent=figures.percent, number=figures.number)
    template = resources.files("jem_tf.evaluation.report").joinpath("report.html.j2").read_text()
    page = environment.from_string(template).render(
        results=results,
        models=results["models"],
        charts={name: _to_element(svg) for name, svg in svg_charts.items()},
        picture=lambda name: _to_data_url(out / name),
        answers=figures.answers(results),
        rows=figures.rows(results),
        summary=figures.summary,
    )
    path = out / "report.html"
    path.write_text(page)
    return path


def _to_element(svg: str) -> str:
    """Return an SVG file as an element of a page, which is not escaped."""
    import markupsafe

    return markupsafe.Markup(svg[svg.index("<svg") :])


def _to_data_url(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f"data:{MEDIA_TYPES[path.suffix]};base64,{data}"

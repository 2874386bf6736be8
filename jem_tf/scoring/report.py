"""A page about a table of scores: how much is out of distribution, what is strange, which labels.

Not here: what stands out (`findings.py`). One self-contained file, without scripts.
"""

import base64
import importlib.util
import io
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from jem_tf.data.images import ImageDecoder
from jem_tf.data.rows import Rows
from jem_tf.scoring.findings import ClassFindings, Findings

PICTURE = 96  # pixels
DRIFT = 1e-6  # p-value of a class at which it is said to drift


def check_installed() -> None:
    """Raise `ValueError` if a package that the page needs is missing."""
    if not importlib.util.find_spec("jinja2"):
        raise ValueError("The report needs jinja2: pip install 'jem_tf[report]'")


def write_report(scores: Path, findings: Findings, rows: Rows, rate: float | None) -> Path:
    """Write the page beside `scores`; return its path. `rate` is that of false alarms, if known."""
    import jinja2

    template = resources.files("jem_tf.scoring").joinpath("report.html.j2").read_text()
    shown = pictures(rows, {entry[1] for entry in (*findings.strangest, *findings.label_errors)})
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(
        name=scores.name,
        findings=findings,
        rate=rate,
        picture=shown.get,
        drifts=has_drifted,
    )
    path = scores.with_suffix(".html")
    path.write_text(page)
    return path


def has_drifted(group: ClassFindings) -> bool:
    """Whether p-values of a class are too small for rows like the training data.

    Without drift they are uniform, and the number below the median is binomial.
    """
    from scipy.stats import binom

    below = int(group.p_values[: len(group.p_values) // 2].sum())
    return bool(binom.sf(below - 1, group.p_values.sum(), 0.5) < DRIFT)


@cache
def _decoder() -> ImageDecoder:
    return ImageDecoder((PICTURE, PICTURE, 3), (0.0, 255.0))


def pictures(rows: Rows, wanted: Iterable[int]) -> dict[int, str]:
    """Return the rows `wanted` as URLs of PNG, without those that are not images."""
    urls = {}
    for row, x in rows.select(sorted(wanted)):
        if (url := picture(x)) is not None:
            urls[row] = url
        elif not rows.is_images:
            break  # a table has no pictures
    return urls


def picture(x: bytes | np.ndarray) -> str | None:
    """Return an input, the content of a file or an array, as the URL of a PNG; or None."""
    from PIL import Image

    if isinstance(x, bytes):
        decoded, errors = _decoder()([x])
        if errors:
            return None
        pixels = decoded[0].round().clip(0, 255).astype(np.uint8)
    else:
        pixels = np.asarray(x)
        if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3):
            return None
        if pixels.dtype != np.uint8:
            low, high = pixels.min(), pixels.max()
            pixels = (255 * (pixels - low) / max(high - low, 1e-9)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"

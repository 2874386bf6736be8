"""A page about a table of scores: how much is out of distribution, what is strange, which labels.

Not here: what stands out (`findings.py`). One self-contained file, without scripts.
"""

import base64
import importlib.util
import io
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from jem_tf.data.images import ImageDecoder
from jem_tf.data.rows import Rows
from jem_tf.scoring.findings import ClassFindings, Findings

PICTURE = 96  # pixels
RATE = 0.05  # of false alarms
DRIFT = 1e-6  # p-value of a class at which it is said to drift


def check_installed() -> None:
    """Raise `ValueError` if a package that the page needs is missing."""
    if not importlib.util.find_spec("jinja2"):
        raise ValueError("The report needs jinja2: pip install 'jem_tf[report]'")


def write_report(scores: Path, findings: Findings, rows: Rows) -> Path:
    """Write the page beside `scores`; return its path."""
    import jinja2

    template = resources.files("jem_tf.scoring").joinpath("report.html.j2").read_text()
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(template).render(
        name=scores.name,
        findings=findings,
        rate=RATE,
        picture=lambda row: picture(rows, row),
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


def picture(rows: Rows, row: int) -> str | None:
    """Return an input as the URL of a PNG; None if it is not an image."""
    from PIL import Image

    batch = next(iter(rows.batches(row, 1)))
    if rows.is_images:
        decoded, errors = _decoder()(list(batch.x))
        if errors:
            return None
        pixels = decoded[0].round().clip(0, 255).astype(np.uint8)
    else:
        pixels = np.asarray(batch.x[0])
        if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3):
            return None
        if pixels.dtype != np.uint8:
            low, high = pixels.min(), pixels.max()
            pixels = (255 * (pixels - low) / max(high - low, 1e-9)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"

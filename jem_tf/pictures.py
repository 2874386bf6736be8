"""Arrays of images `[n, height, width, channels]` in [-1, 1] as picture files.

Not here: charts (`evaluation/report/charts.py`). PIL is imported when the first picture is made.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

GAP = 2  # gray pixels between images
FRAME_MILLISECONDS, LAST_FRAME_MILLISECONDS = 100, 2000


def grid(images: np.ndarray, columns: int, size: int = 48) -> "Image.Image":
    """Return `images` in a grid of `columns`, each about `size` pixels wide.

    ```python
    grid(model.sample(20), columns=10).show()
    ```
    """
    from PIL import Image

    factor = max(1, size // images.shape[2])
    pixels = ((np.clip(images, -1, 1) + 1) * 127.5).round().astype(np.uint8)
    pixels = pixels.repeat(factor, axis=1).repeat(factor, axis=2)
    if pixels.shape[-1] not in (1, 3):
        pixels = pixels[..., :1]
    rows = -(-len(pixels) // columns)
    _, height, width, channels = pixels.shape
    canvas = np.full((rows * (height + GAP), columns * (width + GAP), channels), 128, np.uint8)
    for index, image in enumerate(pixels):
        top, left = index // columns * (height + GAP), index % columns * (width + GAP)
        canvas[top : top + height, left : left + width] = image
    return Image.fromarray(canvas[:-GAP, :-GAP].squeeze())


def save_grid(images: np.ndarray, columns: int, path: Path, size: int = 48) -> None:
    """Write `images` as a grid to the PNG file `path`."""
    grid(images, columns, size).save(path)


def save_animation(frames: np.ndarray, columns: int, path: Path, size: int = 48) -> None:
    """Write the grids of `frames` `[frames, n, ...]` to the GIF file `path`.

    The last frame is shown longest.
    """
    first, *others = [
        grid(frame, columns, size).convert("L" if frame.shape[-1] == 1 else "RGB")
        for frame in frames
    ]
    duration = [FRAME_MILLISECONDS] * len(others) + [LAST_FRAME_MILLISECONDS]
    first.save(path, save_all=True, append_images=others, duration=duration, loop=0)

"""Arrays of images as PNG files."""

from pathlib import Path

import numpy as np
from PIL import Image


def save_grid(images: np.ndarray, columns: int, path: Path, size: int = 48) -> None:
    """Images `[n, height, width, channels]` in [-1, 1] as a grid, each about `size` pixels wide."""
    factor = max(1, size // images.shape[2])
    pixels = ((np.clip(images, -1, 1) + 1) * 127.5).round().astype(np.uint8)
    pixels = pixels.repeat(factor, axis=1).repeat(factor, axis=2)
    if pixels.shape[-1] not in (1, 3):
        pixels = pixels[..., :1]
    rows = -(-len(pixels) // columns)
    _, height, width, channels = pixels.shape
    gap = 2
    grid = np.full((rows * (height + gap), columns * (width + gap), channels), 128, np.uint8)
    for index, image in enumerate(pixels):
        top, left = index // columns * (height + gap), index % columns * (width + gap)
        grid[top : top + height, left : left + width] = image
    Image.fromarray(grid[:-gap, :-gap].squeeze()).save(path)

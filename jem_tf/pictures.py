"""Arrays of images `[n, height, width, channels]` in [-1, 1] as pictures in files."""

from pathlib import Path

import numpy as np
from PIL import Image


def grid(images: np.ndarray, columns: int, size: int = 48) -> Image.Image:
    """Images side by side, each about `size` pixels wide."""
    factor = max(1, size // images.shape[2])
    pixels = ((np.clip(images, -1, 1) + 1) * 127.5).round().astype(np.uint8)
    pixels = pixels.repeat(factor, axis=1).repeat(factor, axis=2)
    if pixels.shape[-1] not in (1, 3):
        pixels = pixels[..., :1]
    rows = -(-len(pixels) // columns)
    _, height, width, channels = pixels.shape
    gap = 2
    canvas = np.full((rows * (height + gap), columns * (width + gap), channels), 128, np.uint8)
    for index, image in enumerate(pixels):
        top, left = index // columns * (height + gap), index % columns * (width + gap)
        canvas[top : top + height, left : left + width] = image
    return Image.fromarray(canvas[:-gap, :-gap].squeeze())


def save_grid(images: np.ndarray, columns: int, path: Path, size: int = 48) -> None:
    """A grid as a PNG file."""
    grid(images, columns, size).save(path)


def save_animation(frames: np.ndarray, columns: int, path: Path, size: int = 48) -> None:
    """Grids `[frames, n, ...]` one after the other as a GIF, the last one shown longest."""
    first, *others = [
        grid(frame, columns, size).convert("L" if frame.shape[-1] == 1 else "RGB")
        for frame in frames
    ]
    duration = [100] * len(others) + [2000]
    first.save(path, save_all=True, append_images=others, duration=duration, loop=0)

"""Outliers made from the data itself: what a detector learns to recognise.

Not here: real out-of-distribution sets, which a detector never sees (`data/ood_sets.py`).
"""

from collections.abc import Callable

import numpy as np

TILES = 4  # along each side of an image


def made_up_outliers(x: np.ndarray, y: np.ndarray | None, seed: int = 0) -> dict[str, np.ndarray]:
    """Outliers in the range of the rows `x` `[n, ...]`, by kind; each kind has as many rows.

    ```python
    made_up_outliers(x_val, y_val)["blends"]
    ```

    All data: `noise` is uniform, `shuffled` takes each feature from another row, `blends` are means
    of two rows, of different classes if `y` is known. Vectors: `far` is twice as far from the mean.
    Images: `constants`, `tiles` in random order, `phases` at random, `blur`, `smooth` noise,
    `blobs` of two colours, and the `negative`.
    """
    rng = np.random.default_rng(seed)
    axes = tuple(range(x.ndim - 1))
    low, width = x.min(axes), np.ptp(x, axes)
    made = {
        "noise": low + width * rng.uniform(size=x.shape),
        "shuffled": rng.permuted(x.reshape(len(x), -1), axis=0).reshape(x.shape),
        "blends": (x + x[_partners(len(x), y, rng)]) / 2,
    }
    if x.ndim == 4:
        made |= {name: make(x, low, width, rng) for name, make in IMAGES.items()}
    elif x.ndim == 2:
        made["far"] = 2 * x - x.mean(0)
    return {name: values.astype(np.float32) for name, values in made.items()}


def _partners(n: int, y: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """For each row, another one; of another class if there is one."""
    partners = (np.arange(n) + rng.integers(1, max(n, 2), n)) % n
    if y is not None and len(np.unique(y)) > 1:
        partners = np.array([rng.choice(np.flatnonzero(y != label)) for label in y])
    return partners


def _constants(x: np.ndarray, low: np.ndarray, width: np.ndarray, rng: np.random.Generator):
    return np.broadcast_to(low + width * rng.uniform(size=(len(x), 1, 1, x.shape[3])), x.shape)


def _tiles(x: np.ndarray, low: np.ndarray, width: np.ndarray, rng: np.random.Generator):
    n, height, across, channels = x.shape
    rows, columns = -(-height // TILES), -(-across // TILES)
    padding = [(0, 0), (0, TILES * rows - height), (0, TILES * columns - across), (0, 0)]
    grid = np.pad(x, padding, mode="edge").reshape(n, TILES, rows, TILES, columns, channels)
    tiles = grid.transpose(0, 1, 3, 2, 4, 5).reshape(n, TILES**2, rows, columns, channels)
    order = rng.permuted(np.tile(np.arange(TILES**2), (n, 1)), axis=1)
    tiles = np.take_along_axis(tiles, order[:, :, None, None, None], axis=1)
    grid = tiles.reshape(n, TILES, TILES, rows, columns, channels).transpose(0, 1, 3, 2, 4, 5)
    return grid.reshape(n, TILES * rows, TILES * columns, channels)[:, :height, :across]


def _phases(x: np.ndarray, low: np.ndarray, width: np.ndarray, rng: np.random.Generator):
    """The amplitudes of the image with the phases of noise: its texture without its shapes."""
    noise = np.fft.fft2(rng.uniform(size=(*x.shape[:3], 1)), axes=(1, 2))
    spectrum = np.abs(np.fft.fft2(x, axes=(1, 2))) * np.exp(1j * np.angle(noise))
    return np.clip(np.fft.ifft2(spectrum, axes=(1, 2)).real, low, low + width)


def _blur(x: np.ndarray, low: np.ndarray, width: np.ndarray, rng: np.random.Generator):
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(x, (0, x.shape[1] / 8, x.shape[2] / 8, 0))


def _smooth(x: np.ndarray, low: np.ndarray, width: np.ndarray, rng: np.random.Generator):
    """Noise of 4 x 4 pixels, enlarged."""
    from scipy.ndimage import zoom

    n, height, across, channels = x.shape
    noise = rng.uniform(size=(n, 4, 4, channels))
    return low + width * zoom(noise, (1, height / 4, across / 4, 1), order=1)


def _blobs(x: np.ndarray, low: np.ndarray, width: np.ndarray, rng: np.random.Generator):
    """Shapes of one colour on another, which is the lowest or the highest in half of the cases."""
    from scipy.ndimage import gaussian_filter

    n, height, across, channels = x.shape
    noise = rng.normal(size=(n, height, across))
    maps = np.stack([gaussian_filter(row, rng.uniform(0.03, 0.2) * height) for row in noise])
    levels = [np.quantile(row, rng.uniform(0.3, 0.9)) for row in maps]
    inside = maps > np.reshape(levels, (n, 1, 1))
    shape, ground = rng.uniform(size=(2, n, 1, 1, channels))
    plain = rng.uniform(size=(n, 1, 1, 1)) < 0.5
    ground = np.where(plain, rng.integers(0, 2, (n, 1, 1, 1)), ground)
    return low + width * np.where(inside[..., None], shape, ground)


def _negative(x: np.ndarray, low: np.ndarray, width: np.ndarray, rng: np.random.Generator):
    return 2 * low + width - x


IMAGES: dict[str, Callable[..., np.ndarray]] = {
    "constants": _constants,
    "tiles": _tiles,
    "phases": _phases,
    "blur": _blur,
    "smooth": _smooth,
    "blobs": _blobs,
    "negative": _negative,
}

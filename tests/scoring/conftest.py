"""An exported model of images, and folders of images to score."""

import functools

import numpy as np
import pytest
from PIL import Image
from saved_model.conftest import exported, images, version  # noqa: F401
from server.fixtures import shared_servers  # noqa: F401

from jem_tf.scoring import scorers

open_once = functools.cache(scorers.open_scorer)


@pytest.fixture(autouse=True)
def models_are_opened_once(monkeypatch):
    """Loading a model takes longer than scoring it."""

    opened = scorers.open_scorer

    def open_scorer(model, data_dir=None, pixel_range=None):
        return (open_once if "exported" in str(model) else opened)(model, data_dir, pixel_range)

    monkeypatch.setattr(scorers, "open_scorer", open_scorer)


@pytest.fixture
def photos(tmp_path, images):  # noqa: F811
    """A folder with 40 images in two folders, in three formats and two sizes."""
    x, y = images
    for i in range(40):
        folder = tmp_path / "photos" / "deep" / ("dark", "light")[y[i]]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = ((x[i, ..., 0] + 1) * 127.5).round().astype(np.uint8)
        picture = Image.fromarray(pixels).resize((6, 6) if i % 3 else (12, 12), Image.NEAREST)
        picture.save(folder / f"{i:02d}.{('png', 'bmp', 'jpg')[i % 5 // 2]}")
    return tmp_path / "photos"


@pytest.fixture
def export(exported):  # noqa: F811
    return exported / "images"


@pytest.fixture
def npz(tmp_path, images):  # noqa: F811
    x, y = images
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    return tmp_path / "rows.npz"

"""Grids and animations as files."""

import numpy as np
from PIL import Image

from jem_tf import pictures


def test_a_grid_shows_each_image_in_its_cell(tmp_path):
    """Three images of 2 x 2 pixels, black, gray and white, in two columns of 4 pixels each."""
    images = np.array([-1.0, 0.0, 1.0])[:, None, None, None] * np.ones((3, 2, 2, 1))
    pictures.save_grid(images, 2, tmp_path / "grid.png", size=4)
    with Image.open(tmp_path / "grid.png") as picture:
        pixels = np.asarray(picture)
    assert pixels.shape == (10, 10)  # two cells of 4 pixels, and a gap of 2
    assert (pixels[:4, :4] == 0).all() and (pixels[:4, 6:] == 128).all()
    assert (pixels[6:, :4] == 255).all() and (pixels[4:6] == 128).all()


def test_an_animation_has_every_frame_and_shows_the_last_one_longest(tmp_path):
    frames = np.random.default_rng(0).uniform(-1, 1, (6, 4, 8, 8, 1))
    pictures.save_animation(frames, 2, tmp_path / "animation.gif")
    durations = []
    with Image.open(tmp_path / "animation.gif") as gif:
        assert gif.n_frames == 6
        for index in range(6):
            gif.seek(index)
            durations.append(gif.info["duration"])
    assert durations == [100] * 5 + [2000]

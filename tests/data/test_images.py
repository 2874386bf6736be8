"""Decoding image files with an error for each that fails, and finding corrupt ones."""

import io
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from jem_tf import data
from jem_tf.data import images
from jem_tf.saved_model.images import decode_images

RNG = np.random.default_rng(0)
SMALL = RNG.integers(0, 256, (9, 9), dtype=np.uint8)
LARGE = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)


def encode(pixels, kind):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@pytest.fixture(scope="module")
def decoder():
    return images.ImageDecoder((9, 9, 1), (-1.0, 1.0))


def test_values_are_those_of_an_export(decoder):
    files = [encode(SMALL, "PNG"), encode(LARGE, "JPEG"), encode(LARGE, "PNG")]
    x, errors = decoder(files)
    assert errors == {}
    np.testing.assert_array_equal(x, decode_images(tf.constant(files), (9, 9, 1), (-1.0, 1.0)))
    np.testing.assert_allclose(x[0, ..., 0], SMALL / 127.5 - 1, atol=1e-6)


def test_each_broken_file_has_an_error_and_the_others_have_images(decoder):
    good, jpeg = encode(SMALL, "PNG"), encode(LARGE, "JPEG")
    header = b"IHDR" + (20_000).to_bytes(4) * 2 + good[24:29]
    bomb = good[:12] + header + zlib.crc32(header).to_bytes(4) + good[33:]
    half = jpeg[: len(jpeg) * 3 // 4]
    x, errors = decoder([b"", good, b"text", good[:-30], good, half, bomb])
    assert x.shape == (2, 9, 9, 1)
    assert sorted(errors) == [0, 2, 3, 5, 6]
    assert "empty" in errors[0] and errors[2] == "not an image file"
    assert "PNG" in errors[3] and "JPEG" in errors[5] and "pixels" in errors[6]
    np.testing.assert_array_equal(x[0], x[1])


def test_any_exception_of_a_decoder_is_the_error_of_its_file(decoder, monkeypatch):
    """A corrupt TIFF file has made Pillow raise a TypeError."""
    good, tiff = encode(SMALL, "PNG"), encode(LARGE, "TIFF")

    def fail(*_):
        raise TypeError("not an integer")

    monkeypatch.setattr(Image.Image, "convert", fail)
    x, errors = decoder([good, tiff, good])
    assert len(x) == 2 and errors == {1: "not an integer"}


@pytest.mark.parametrize("kind", ["BMP", "GIF", "WEBP", "TIFF"])
def test_other_formats_are_decoded(decoder, kind):
    x, errors = decoder([encode(LARGE, kind)])
    assert errors == {} and x.shape == (1, 9, 9, 1)


def test_no_file_is_an_empty_batch(decoder):
    x, errors = decoder([])
    assert x.shape == (0, 9, 9, 1) and errors == {}


@pytest.fixture
def folder(tmp_path):
    """20 images in two classes, two of which are corrupt."""
    for name in ("a", "b"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(10):
            (tmp_path / "set" / name / f"{i}.png").write_bytes(encode(LARGE, "PNG"))
    (tmp_path / "set" / "a" / "3.png").write_bytes(encode(LARGE, "PNG")[:500])
    (tmp_path / "set" / "b" / "4.png").write_text("not a picture")
    return tmp_path / "set"


def test_corrupt_images_are_named_counted_and_skipped(folder):
    with pytest.warns(UserWarning, match=r"2 of 20 images .* cannot be decoded: .*a/3.png \("):
        loaded = data.load(str(folder), image_size=8)
    assert sum(len(part) for part in (loaded.train, loaded.validation, loaded.test)) == 18
    assert len(loaded.arrays("train")[0]) == len(loaded.train)  # all of them can be read


def test_corrupt_images_are_refused_if_strict_or_if_all_are(folder):
    with pytest.raises(ValueError, match=r"2 of 20 images .*b/4.png .* Correct or remove them"):
        data.load(str(folder), strict=True)
    for file in folder.rglob("*.png"):
        file.write_text("broken")
    with pytest.raises(ValueError, match="20 of 20 images"):
        data.load(str(folder))

"""Image files in the graph: what is decoded, what is refused, and the memory that this takes."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from image_files import HAS_PEAK, chunk, peak, png, reset_peak
from PIL import Image

from jem_tf.saved_model.images import decode_images

SHAPE = (16, 24, 3)
MAX_GROWTH = 200  # MB; without checks the files below take from 0.4 to 3 GB


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def decode(files):
    return decode_images(files, SHAPE, (0.0, 255.0))


@pytest.fixture(scope="module")
def picture():
    """A smooth picture of 16 x 24 pixels, which JPEG keeps almost unchanged."""
    rows, columns = np.mgrid[0:1:16j, 0:1:24j]
    return (255 * np.stack([rows, columns, 1 - rows], -1)).astype(np.uint8)


def file_of(picture, kind, **options):
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, kind, **options)
    return buffer.getvalue()


def segment(marker, content):
    return bytes([0xFF, marker]) + struct.pack(">H", 2 + len(content)) + content


def with_segments(jpeg, *segments):
    """Return a JPEG with more segments after its first marker."""
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def resized_frame(jpeg, width, height):
    """Return a JPEG whose frame header claims another size."""
    place = next(i for i in range(len(jpeg)) if jpeg[i : i + 2] in (b"\xff\xc0", b"\xff\xc2"))
    return jpeg[: place + 5] + struct.pack(">HH", height, width) + jpeg[place + 9 :]


def jpeg_variants(picture):
    plain = file_of(picture, "JPEG", quality=95)
    thumbnail = file_of(picture[:8, :8], "JPEG")
    exif = segment(0xE1, b"Exif\0\0" + thumbnail)
    misleading = segment(0xE2, b"\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\xff\xda" * 20)
    return {
        "baseline": plain,
        "progressive": file_of(picture, "JPEG", quality=95, progressive=True),
        "EXIF with a thumbnail": with_segments(plain, exif),
        "a frame header inside a segment": with_segments(plain, misleading),
        "many segments": with_segments(plain, exif, *[segment(0xE2, b"\0" * 3000)] * 90),
        "a segment as long as they get": with_segments(plain, segment(0xFE, b"\xff" * 65533)),
        "fill bytes": with_segments(plain, b"\xff" * 7, segment(0xFE, b"text")),
        "restart markers": file_of(picture, "JPEG", quality=95, restart_marker_rows=1),
    }


VARIANTS = jpeg_variants(np.zeros(SHAPE, np.uint8))


@pytest.mark.parametrize("name", VARIANTS)
def test_jpegs_are_decoded_as_by_another_library(name, picture):
    file = jpeg_variants(picture)[name]
    expected = np.asarray(Image.open(io.BytesIO(file)), np.float32)
    np.testing.assert_allclose(decode([file])[0], expected, atol=6)
    assert np.abs(expected - picture).max() < 20


@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"icc_profile": bytes(3000)}])
def test_pngs_are_decoded_exactly(options, picture):
    np.testing.assert_array_equal(decode([file_of(picture, "PNG", **options)])[0], picture)


def test_pngs_of_every_mode_are_decoded(picture):
    for mode in ("L", "P", "RGBA", "1", "LA"):
        buffer = io.BytesIO()
        Image.fromarray(picture).convert(mode).save(buffer, "PNG")
        assert decode([buffer.getvalue()]).shape == (1, *SHAPE)


def test_other_sizes_are_resized_as_floats_are(picture):
    large = np.repeat(np.repeat(picture, 3, 0), 2, 1)
    expected = tf.image.resize(large.astype(np.float32), SHAPE[:2], antialias=True)
    np.testing.assert_allclose(decode([file_of(large, "PNG")])[0], expected, atol=1e-3)


PLAIN = VARIANTS["baseline"]
PROGRESSIVE = VARIANTS["progressive"]
SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
TEXT = chunk(b"zTXt", b"text\0\0" + zlib.compress(bytes(7_900_000), 9))
REFUSED = {
    "empty": (b"", "must be a PNG or JPEG"),
    "text": (b"no image at all", "must be a PNG or JPEG"),
    "GIF": (file_of(np.zeros((4, 4), np.uint8), "GIF"), "must be a PNG or JPEG"),
    "BMP": (file_of(np.zeros((4, 4), np.uint8), "BMP"), "must be a PNG or JPEG"),
    "PNG of 20000 x 20000": (png(20_000, 20_000), "has 20000 x 20000 pixels"),
    "wide PNG": (png(2**31 - 1, 1, pixels=b""), "has 2147483647 x 1 pixels"),
    "PNG whose product overflows": (png(2**32 - 1, 2**32 - 1, pixels=b""), "4294967295 x"),
    "PNG without pixels": (png(0, 0, pixels=b""), "PNG"),
    "PNG signature only": (b"\x89PNG\r\n\x1a\n", "PNG is corrupt"),
    "PNG with another first chunk": (b"\x89PNG\r\n\x1a\n" + TEXT + png(8, 8)[8:], "PNG is corrupt"),
    "truncated PNG": (png(8, 8)[:40], "PNG"),
    "PNG with 100 texts of 8 MB": (png(8, 8, *[TEXT] * 100), "more than 10 zTXt"),
    "large JPEG": (resized_frame(PLAIN, 65_500, 65_500), "has 65500 x 65500 pixels"),
    "large progressive JPEG": (resized_frame(PROGRESSIVE, 20_000, 20_000), "has 20000 x 20000"),
    "JPEG start only": (b"\xff\xd8\xff", "JPEG is corrupt"),
    "truncated JPEG header": (PLAIN[:60], "JPEG is corrupt"),
    "JPEG without a frame header": (with_segments(PLAIN, b"\xff\xd9"), "JPEG is corrupt"),
    "JPEG with bytes between segments": (PLAIN[:20] + b"xx" + PLAIN[20:], "JPEG is corrupt"),
    "JPEG of fill bytes": (b"\xff\xd8" + b"\xff" * 100_000, "JPEG is corrupt"),
    "JPEG with 500 scans": (PROGRESSIVE[:-2] + SCAN * 500 + b"\xff\xd9", "more than 100 scans"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused_with_a_reason(name):
    file, reason = REFUSED[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        decode([file])


def test_the_limit_is_an_option():
    small = tf.function(lambda files: decode_images(files, SHAPE, (0.0, 1.0), max_pixels=400))
    assert small(tf.constant([png(20, 20)])).shape == (1, *SHAPE)
    with pytest.raises(tf.errors.InvalidArgumentError, match="accepts up to 400 pixels"):
        small(tf.constant([png(20, 21)]))


def test_a_segment_that_claims_no_length_is_not_a_way_around_the_check():
    """Where the check and libjpeg read on after a length of 0 or 1 must be the same place."""
    large = PLAIN.index(b"\xff\xc0")
    for length in (0, 1):
        for pad in range(4):
            hidden = b"\xff\xfe" + struct.pack(">H", length) + bytes(pad)
            file = resized_frame(PLAIN, 65_500, 65_500)
            with pytest.raises(tf.errors.InvalidArgumentError):
                decode([file[:large] + hidden + file[large:]])


@pytest.mark.skipif(not HAS_PEAK, reason="needs Linux")
@pytest.mark.parametrize("name", ["PNG of 20000 x 20000", "PNG with 100 texts of 8 MB"])
def test_bombs_take_little_memory(name):
    file, _ = REFUSED[name]
    assert len(file) < 10**6
    before = reset_peak()
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode([file])
    assert peak() < before + MAX_GROWTH

"""Image files as arrays, with an error for each file that cannot be decoded.

Not here: decoding in exported graphs (`saved_model/images.py`), which gives the same values.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
MAX_PIXELS = 4096 * 4096  # width times height: a small file can be a very large image
PARALLEL_FILES = 16
CHECKED_FILES = 256  # that `find_corrupt` holds in memory


class ImageDecoder:
    """Decodes batches of files to the shape and range of a model's inputs.

    ```python
    x, errors = ImageDecoder((28, 28, 1), (-1.0, 1.0))([png, jpeg, b"?"])
    x.shape  # (2, 28, 28, 1)
    errors   # {2: "not an image file"}
    ```

    Args:
        shape: `(height, width, channels)`; images of other sizes are resized.
        pixel_range: the values of black and white pixels.
    """

    def __init__(self, shape: Sequence[int], pixel_range: Sequence[float]):
        height, width, channels = shape
        low, high = pixel_range

        def decode(file: tf.Tensor) -> tf.Tensor:
            image = tf.io.decode_image(file, channels, expand_animations=False)
            same = tf.reduce_all(tf.shape(image)[:2] == [height, width])
            image = tf.cond(
                same,
                lambda: tf.cast(image, tf.float32),
                lambda: tf.image.resize(image, [height, width], antialias=True),
            )
            return tf.ensure_shape(low + image * ((high - low) / 255.0), shape)

        self._decode = _batched(decode, tf.float32)

    def __call__(self, files: Sequence[bytes]) -> tuple[np.ndarray, dict[int, str]]:
        """Return the images that can be decoded, in order, and the errors of the others by index.

        Files that cannot be decoded are left out of the images.
        """
        return _decode_all(self._decode, files, _to_png_or_jpeg)


def to_png_or_jpeg(files: Sequence[bytes]) -> tuple[list[bytes], dict[int, str]]:
    """Return files of other formats as PNG, which exports decode; and errors as `ImageDecoder`."""
    readable, errors = _prepare_all(files, _to_png_or_jpeg)
    return list(readable.values()), errors


def find_corrupt(paths: Sequence[str]) -> dict[str, str]:
    """Return the files that TensorFlow cannot read or decode, with the reason for each."""

    def measure(file: tf.Tensor) -> tf.Tensor:
        return tf.size(tf.io.decode_image(file, 3, expand_animations=False))

    decode = _batched(measure, tf.int32)
    corrupt = {}
    for begin in range(0, len(paths), CHECKED_FILES):
        batch = paths[begin : begin + CHECKED_FILES]
        _, errors = _decode_all(decode, [read_file(path) for path in batch], _not_empty)
        corrupt.update({batch[index]: error for index, error in errors.items()})
    return corrupt


def read_file(path: str) -> bytes:
    """Return the content of a file; empty, which no decoder accepts, if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _batched(decode: Any, dtype: tf.DType) -> Any:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def batch(files: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(
            decode, files, fn_output_signature=dtype, parallel_iterations=PARALLEL_FILES
        )

    return batch


def _decode_all(
    decode: Any, files: Sequence[bytes], prepare: Callable[[bytes], bytes]
) -> tuple[np.ndarray, dict[int, str]]:
    """Return what `decode` gives for the files that it accepts, and the errors of the others."""
    readable, errors = _prepare_all(files, prepare)
    parts = list(_decode_parts(decode, list(readable.items()), errors))
    return np.concatenate([*parts, decode(tf.constant([], tf.string)).numpy()]), errors


def _prepare_all(
    files: Sequence[bytes], prepare: Callable[[bytes], bytes]
) -> tuple[dict[int, bytes], dict[int, str]]:
    """Return what `prepare` gives for the files that it accepts, and the errors of the others."""
    readable, errors = {}, {}
    for index, file in enumerate(files):
        try:
            readable[index] = prepare(file)
        except Exception as error:  # Pillow raises many types for corrupt files
            errors[index] = str(error) or type(error).__name__
    return readable, errors


def _decode_parts(
    decode: Any, files: list[tuple[int, bytes]], errors: dict[int, str]
) -> Iterator[np.ndarray]:
    """Decode `files` together, or in halves if that fails; add to `errors` what fails alone."""
    try:
        yield decode(tf.constant([file for _, file in files], tf.string)).numpy()
    except tf.errors.InvalidArgumentError as error:
        if len(files) == 1:
            errors[files[0][0]] = _first_line(error)
            return
        middle = len(files) // 2
        yield from _decode_parts(decode, files[:middle], errors)
        yield from _decode_parts(decode, files[middle:], errors)


def _not_empty(file: bytes) -> bytes:
    if not file:
        raise ValueError("the file is empty or cannot be read")
    return file


def _to_png_or_jpeg(file: bytes) -> bytes:
    """Return `file`, as PNG unless it is PNG or JPEG; raise an error if its header is not valid."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(_not_empty(file))) as image:  # reads the header only
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise ValueError(f"{width} x {height} pixels; the limit is {MAX_PIXELS} pixels")
            if image.format in ("PNG", "JPEG"):
                return file
            png = io.BytesIO()
            image.convert("RGB").save(png, "PNG")
            return png.getvalue()
    except UnidentifiedImageError:
        raise ValueError("not an image file") from None
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from None


def _first_line(error: tf.errors.OpError) -> str:
    """Return the message of TensorFlow without the names of its operations."""
    message = (error.message or "").removeprefix("Graph execution error:").strip()
    lines = [line for line in message.splitlines() if "[[{{node" not in line and line.strip()]
    return lines[-1].strip() if lines else type(error).__name__

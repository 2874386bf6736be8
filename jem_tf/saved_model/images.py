"""Image files as inputs: PNG and JPEG headers are checked in the graph before pixels are decoded.

Not here: the signatures that take files (`signatures.py`). A file of some kilobytes can decode to
gigabytes, so its header must be within limits first. Only operations of TensorFlow itself: the
checks travel with the SavedModel to TF Serving.
"""

import tensorflow as tf

MAX_PIXELS = 4096 * 4096
MAX_TEXTS = 10  # compressed PNG chunks; libpng inflates each to up to 8 MB
MAX_SCANS = 100  # of a progressive JPEG, each a pass over the whole image; encoders use about 10
MAX_SEGMENTS = 4096  # of a JPEG before its frame header
PARALLEL_FILES = 4  # of a batch: bounds its memory
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
NOT_FRAMES = (0xC4, 0xC8, 0xCC)  # the markers from C0 to CF that are no frame headers


def decode_images(
    files: tf.Tensor,
    shape: tuple[int, ...],
    pixel_range: tuple[float, float],
    max_pixels: int = MAX_PIXELS,
) -> tf.Tensor:
    """Decode PNG or JPEG files, resize them and scale them to the training range.

    Fails with InvalidArgument if a file is neither, is corrupt, or has more than `max_pixels`.

    Args:
        files: their bytes, `[batch]`.
        shape: `(height, width, channels)` of the model's inputs.
        pixel_range: the values of black and white pixels.
        max_pixels: width times height of the largest file that is decoded.

    Returns:
        `[batch, height, width, channels]`, float32.
    """
    height, width, channels = shape
    low, high = pixel_range

    def decode(file: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([check_header(file, max_pixels)]):
            file = tf.identity(file)
        image = tf.io.decode_image(file, channels=channels, expand_animations=False)
        same = tf.reduce_all(tf.shape(image)[:2] == [height, width])
        image = tf.cond(
            same,
            lambda: tf.cast(image, tf.float32),
            lambda: tf.image.resize(image, [height, width], antialias=True),  # takes integers
        )
        return tf.ensure_shape(low + image * ((high - low) / 255.0), shape)

    return tf.map_fn(
        decode, files, fn_output_signature=tf.float32, parallel_iterations=PARALLEL_FILES
    )


def check_header(file: tf.Tensor, max_pixels: int = MAX_PIXELS) -> tf.Operation:
    """Return an operation that fails unless `file` is a PNG or JPEG within the limits."""
    message = tf.case(
        [
            (_starts_with(file, PNG), lambda: _png_error(file, max_pixels)),
            (_starts_with(file, JPEG), lambda: _jpeg_error(file, max_pixels)),
        ],
        default=lambda: tf.constant("image_bytes must be a PNG or JPEG file."),
    )
    return tf.debugging.Assert(message == "", [message])


def _starts_with(file: tf.Tensor, prefix: bytes) -> tf.Tensor:
    enough = tf.strings.length(file) >= len(prefix)
    return enough & (tf.strings.substr(file, 0, len(prefix)) == prefix)


def _png_error(file: tf.Tensor, max_pixels: int) -> tf.Tensor:
    """Return what is wrong with the header of a PNG; empty if nothing is."""
    values = _padded_bytes(tf.strings.substr(file, 0, 24))
    # The first chunk must be IHDR with 13 bytes, which begin with width and height.
    valid = tf.reduce_all(values[8:16] == tf.constant([0, 0, 0, 13, *b"IHDR"], tf.uint8))
    without_texts = tf.strings.regex_replace(file, "zTXt|iTXt|iCCP", "")
    texts = (tf.strings.length(file) - tf.strings.length(without_texts)) // 4
    return _first_error(
        (~valid, "The PNG is corrupt: it does not start with an IHDR chunk."),
        _size_error("PNG", _integer(values, 16, 4), _integer(values, 20, 4), max_pixels),
        (texts > MAX_TEXTS, f"The PNG has more than {MAX_TEXTS} zTXt, iTXt and iCCP chunks."),
    )


def _jpeg_error(file: tf.Tensor, max_pixels: int) -> tf.Tensor:
    """Return what is wrong with the frame header of a JPEG; empty if nothing is."""
    values, size = _padded_bytes(file), tf.strings.length(file)

    def is_frame(marker: tf.Tensor) -> tf.Tensor:
        return (marker & 0xF0 == 0xC0) & tf.reduce_all(marker != tf.constant(NOT_FRAMES, tf.uint8))

    def is_other_segment(place: tf.Tensor) -> tf.Tensor:
        marker = values[place + 1]
        has_no_length = (marker <= 0x01) | ((marker >= 0xD0) & (marker <= 0xDA))
        return (values[place] == 0xFF) & ~has_no_length & ~is_frame(marker)

    def skip(place: tf.Tensor) -> tuple[tf.Tensor]:
        length = tf.cast(_integer(values, place + 2, 2), tf.int32)  # counts its own two bytes
        filler = values[place + 1] == 0xFF
        return (tf.minimum(place + tf.where(filler, 1, 2 + tf.maximum(length, 2)), size),)

    (place,) = tf.while_loop(
        is_other_segment, skip, (tf.constant(2),), maximum_iterations=MAX_SEGMENTS
    )
    found = (values[place] == 0xFF) & is_frame(values[place + 1])
    height, width = _integer(values, place + 5, 2), _integer(values, place + 7, 2)
    scans = tf.math.count_nonzero((values[:-1] == 0xFF) & (values[1:] == 0xDA))
    return _first_error(
        (~found, "The JPEG is corrupt: it has no frame header before its pixels."),
        _size_error("JPEG", width, height, max_pixels),
        (scans > MAX_SCANS, f"The JPEG has more than {MAX_SCANS} scans."),
    )


def _padded_bytes(file: tf.Tensor) -> tf.Tensor:
    """Return the bytes of `file`, and zeros that keep reads beyond its end in range."""
    return tf.pad(tf.io.decode_raw(file, tf.uint8), [[0, 32]])


def _integer(values: tf.Tensor, place: tf.Tensor | int, size: int) -> tf.Tensor:
    """Return the big-endian integer of `size` bytes at `place`."""
    digits = tf.cast(values[place : place + size], tf.int64)
    return tf.reduce_sum(digits * tf.constant([256**i for i in reversed(range(size))], tf.int64))


def _size_error(
    kind: str, width: tf.Tensor, height: tf.Tensor, max_pixels: int
) -> tuple[tf.Tensor, tf.Tensor]:
    text = tf.strings.format(
        f"The {kind} has {{}} x {{}} pixels; the model accepts up to {max_pixels} pixels.",
        (width, height),
    )
    return height > max_pixels // tf.maximum(width, 1), text


def _first_error(*errors: tuple[tf.Tensor, tf.Tensor | str]) -> tf.Tensor:
    """Return the text of the first pair whose condition holds; empty if none does."""
    message = tf.constant("")
    for condition, text in reversed(errors):
        message = tf.where(condition, text, message)
    return message

"""A trained model as a SavedModel that TF Serving loads without this package.

Not here: what the signatures compute (`signatures.py`), what they are calibrated with
(`fitted.py`).
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from jem_tf.data.inputs import as_pair
from jem_tf.model import JEM
from jem_tf.saved_model import layout
from jem_tf.saved_model.fitted import fit_calibration, measure
from jem_tf.saved_model.images import MAX_PIXELS
from jem_tf.saved_model.lite import convert
from jem_tf.saved_model.signatures import Signatures
from jem_tf.saved_model.warmup import warmup_requests
from jem_tf.version import VERSION


def export(
    model: Any,
    directory: str | Path,
    calibrate: Any = None,
    class_names: tuple[str, ...] | None = None,
    refine_steps: int = 10,
    sample_steps: int = 400,
    warmup_batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    pixel_range: tuple[float, float] | None = None,
    test: Any = None,
    extra: dict[str, Any] | None = None,
    examples: bool = True,
    reference: Any = None,
    max_image_pixels: int = MAX_PIXELS,
    with_chains: bool | None = None,
    lite: bool = False,
) -> Path:
    """Write `model` as the next version below `directory`; return the path of that version.

    ```python
    jem_tf.export(model, "saved_models/digits", calibrate=(x_val, y_val))
    ```

    A version is written aside and renamed, so that a server never sees half of one.

    Args:
        model: a trained `JEM`, or a Keras classifier. A softmax at its end is taken off. A
            classifier gets the same verdict; `calibrate` says what its inputs are.
        directory: the model directory; its name is the model name of the warm-up requests.
        calibrate: labelled data that the model was not trained on, arrays `(x, y)` or batches. It
            fits the temperature of the probabilities, and the detector unless
            `model.fit_detector` was called before. Both are part of the graph. Without
            `calibrate` the temperature is 1, and without a detector no input is flagged.
        class_names: names of the classes; by default their numbers.
        refine_steps: sampler steps of the signature `refine`.
        sample_steps: sampler steps of the signature `sample`. Samplers without a seed for each row
            (`MALA`) get neither signature: answers would depend on the rest of the batch.
        warmup_batches: batch sizes of the requests that TF Serving replays when it loads a version.
        pixel_range: the values of black and white pixels in training, such as `(-1, 1)`. With it,
            image models also get `*_bytes` signatures, which take PNG or JPEG files.
        test: other labelled data, measured with the fitted temperature.
        extra: more entries for `assets.extra/jem.json`.
        examples: write a row of each class of `calibrate` to `assets.extra/examples.json`, as the
            body of a request. Everyone who can reach the inspector can see them.
        reference: training data for the detector, see `JEM.fit_detector`.
        max_image_pixels: width times height of the largest file that `*_bytes` signatures decode;
            a small file can be a very large image. Decoding a file of this size takes 3 bytes per
            pixel, and up to 12 if it is a progressive JPEG.
        with_chains: write the signatures `sample` and `refine`; by default for every `JEM`, and not
            for a classifier, which has learned no density.
        lite: also write `assets.extra/model.tflite`, for LiteRT on phones, with the signatures
            `serving_default`, `logits` and `energy`. `ValueError` if the network has operators that
            LiteRT lacks.
    """
    plain = isinstance(model, keras.Model) and not isinstance(model, JEM)
    model = wrap_classifier(model, calibrate) if plain else model
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    names = class_names or tuple(str(i) for i in range(model.num_classes))
    _check(model, names, pixel_range, max_image_pixels)
    was_fitted = model.detector.fitted
    calibration = fit_calibration(model, calibrate, reference)
    signatures = Signatures(
        model, calibration, names, refine_steps, sample_steps, pixel_range, max_image_pixels
    )
    functions = signatures.trace(not plain if with_chains is None else with_chains)
    metadata = {
        "package_version": VERSION,
        "class_names": list(names),
        "input_shape": list(signatures.shape),
        **({} if model.encoder is None else {"feature_shape": list(model.example_shape)}),
        **({} if signatures.latent is None else {"latent": signatures.latent}),
        "pixel_range": pixel_range,
        "max_image_pixels": max_image_pixels,
        "signatures": sorted(functions),
        "refine_steps": refine_steps,
        "sample_steps": sample_steps,
        "temperature": calibration.temperature,
        "detector": calibration.detector,
        "calibration": calibration.metrics,
        "example_labels": calibration.example_labels if examples else (),
        "test": None if test is None else measure(model, test, calibration.temperature),
        **(extra or {}),
    }
    version = layout.next_version(directory)
    temporary = directory / f".writing-{version.name}-{os.getpid()}"
    root = tf.Module()
    root.state = signatures.variables  # plain variables, so that loading needs no Keras
    if model.encoder is not None:
        root.encoder = model.encoder  # it may have tables of words
    try:
        tf.saved_model.save(root, str(temporary), signatures=functions)
        (temporary / layout.ASSETS).mkdir()
        (temporary / layout.METADATA).write_text(json.dumps(metadata, indent=2) + "\n")
        if examples and calibration.examples is not None:
            (temporary / layout.EXAMPLES).write_text(json.dumps(calibration.examples) + "\n")
        if lite:
            (temporary / layout.LITE).write_bytes(convert(signatures))
        shape, dtype = signatures.shape, signatures.dtype
        requests = warmup_requests(directory.name, functions, shape, warmup_batches, dtype)
        with tf.io.TFRecordWriter(str(temporary / layout.WARMUP)) as writer:
            for request in requests:
                writer.write(request.SerializeToString())
        os.rename(temporary, version)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if not was_fitted:  # an export does not change the model
            model.detector.clear()
    return version


def wrap_classifier(classifier: keras.Model, calibrate: Any) -> JEM:
    """A plain classifier as a `JEM`: its range is that of the data to calibrate with."""
    wrapped = JEM.from_classifier(classifier, objective="cross_entropy")
    if calibrate is not None:
        wrapped.adapt(*as_pair(calibrate))
    return wrapped


def _check(model: Any, names: tuple[str, ...], pixel_range: Any, max_pixels: int) -> None:
    if len(names) != model.num_classes:
        raise ValueError(
            f"`class_names` must name {model.num_classes} classes. Received: {len(names)}"
        )
    if None in model.raw_shape:
        raise ValueError(
            f"Only inputs of one size can be exported. Received: shape {model.raw_shape}"
        )
    if pixel_range is not None and model.raw_shape[-1:] not in ((1,), (3,)):
        raise ValueError(
            "`pixel_range` is for images with 1 or 3 channels. "
            f"Received: inputs of shape {model.raw_shape}"
        )
    if max_pixels < 1:
        raise ValueError(f"`max_image_pixels` must be positive. Received: {max_pixels}")

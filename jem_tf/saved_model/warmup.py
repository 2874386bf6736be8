"""Warm-up records: requests that TF Serving replays when it loads a version."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def warmup_requests(
    name: str,
    functions: dict[str, Any],
    shape: tuple[int, ...],
    batches: tuple[int, ...],
    dtype: tf.DType = tf.float32,
) -> Iterator[Any]:
    """Yield a `PredictionLog` for each signature and batch size.

    `sample`, which takes hundreds of steps, has one for the first size only.
    """
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    picture = np.zeros((8, 8, 1 if shape[-1:] == (1,) else 3), np.uint8)
    rows: dict[str, Any] = {
        "inputs": np.zeros(shape, object if dtype == tf.string else dtype.as_numpy_dtype),
        "image_bytes": tf.io.encode_png(picture).numpy(),
        "labels": np.int32(0),
        "seeds": np.int32(0),
    }
    for signature, function in functions.items():
        for batch in batches[:1] if signature == "sample" else batches:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            for key in function.structured_input_signature[1]:
                values = np.stack([rows[key]] * batch)
                values = np.full(values.shape, b"") if values.dtype == object else values
                request.inputs[key].CopyFrom(tf.make_tensor_proto(values))
            log = prediction_log_pb2.PredictLog(request=request)
            yield prediction_log_pb2.PredictionLog(predict_log=log)

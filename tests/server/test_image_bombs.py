"""Image bombs against a server of an image model: memory stays, and others are answered."""

import base64
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from image_files import HAS_PEAK, peak, png, reset_peak

from jem_tf.saved_model.images import decode_images

from .grpc_requests import predict_request, rpc_error

MAX_GROWTH = 500  # MB; without the check, eight files take more than 6 GB


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "batching"])
def pictures(request, shared_servers, tmp_path_factory):
    """A server of a model that returns the mean of image files, or of numbers."""
    base, module = tmp_path_factory.mktemp("pictures"), tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def from_bytes(image_bytes):
        x = decode_images(image_bytes, (8, 8, 1), (0.0, 1.0))
        return {"mean": tf.reduce_mean(x, [1, 2, 3])}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def from_numbers(x):
        return {"mean": tf.reduce_mean(x, 1)}

    signatures = {"serving_default": from_bytes, "numbers": from_numbers}
    module.functions = list(signatures.values())
    tf.saved_model.save(module, f"{base}/1", signatures=signatures)
    return shared_servers(
        model_name="pictures", model_base_path=str(base), enable_batching=request.param
    )


@pytest.mark.skipif(not HAS_PEAK, reason="needs Linux")
def test_eight_bombs_at_once_are_refused_within_500_mb(pictures):
    bomb, good = png(20_000, 20_000), png(8, 8)
    assert len(bomb) < 60_000
    predict = pictures.predictions.Predict
    ask = lambda file: predict_request(name="pictures", image_bytes=np.array([file], object))  # noqa: E731
    assert predict(ask(good)).outputs["mean"].float_val == [0.0]
    body = {"instances": [{"b64": base64.b64encode(bomb).decode()}]}

    def attack(i):
        if i % 2:
            return rpc_error(predict, ask(bomb))
        response = pictures.rest.post("/v1/models/pictures:predict", json=body)
        return response.status_code, response.json()["error"]

    def answer():
        start = time.monotonic()
        request = predict_request("numbers", name="pictures", x=np.ones((1, 2), np.float32))
        assert predict(request).outputs["mean"].float_val == [1.0]
        return time.monotonic() - start

    idle = reset_peak()
    with ThreadPoolExecutor(8) as threads:
        attacks = threads.map(attack, range(8))
        seconds = [answer() for _ in range(10)]
    for code, text in attacks:
        assert code in (400, "INVALID_ARGUMENT")
        assert "The PNG has 20000 x 20000 pixels" in text
    assert peak() < idle + MAX_GROWTH
    assert statistics.median(seconds) < 1.0
    assert predict(ask(good)).outputs["mean"].float_val == [0.0]

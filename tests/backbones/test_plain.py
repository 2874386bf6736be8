"""Networks of plain layers: any shape of input, and errors for wrong ones."""

import keras
import numpy as np
import pytest

from jem_tf import backbones


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (32, 32, 3)])
def test_convnet_takes_images_of_any_size(shape):
    model = backbones.convnet(shape, 5)
    assert model(np.zeros((2, *shape), np.float32)).shape == (2, 5)


def test_spectral_norm_bounds_the_kernels():
    model = backbones.convnet((4, 4, 1), 2, width=4, spectral=True)
    for _ in range(30):  # a step of the power iteration each
        model(np.zeros((1, 4, 4, 1), np.float32), training=True)
    convolutions = [x.layer for x in model.layers if hasattr(x, "layer")]
    assert len(convolutions) == 2
    for layer in convolutions:
        kernel = keras.ops.convert_to_numpy(layer.kernel)
        largest = np.linalg.svd(kernel.reshape(-1, kernel.shape[-1]), compute_uv=False)[0]
        assert largest == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("shape", [(4,), (5, 3)])
def test_mlp_takes_inputs_of_any_shape(shape):
    assert backbones.mlp(shape, 3)(np.zeros((2, *shape), np.float32)).shape == (2, 3)


def test_errors_quote_shapes_that_are_no_images():
    with pytest.raises(ValueError, match=r"shape=\(8,\)"):
        backbones.convnet((8,), 2)

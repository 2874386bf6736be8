"""The paper's network: its size and layers, and errors for wrong arguments."""

import pytest

from jem_tf import backbones


def test_wide_resnet_28_10_is_the_network_of_the_paper():
    """36.5 million parameters, of which batch norm would be 18 thousand."""
    model = backbones.wide_resnet((32, 32, 3), 10, depth=28, width=10)
    convolutions = [x for x in model.layers if "Conv" in type(x).__name__]
    assert len(convolutions) == 25 + 3  # 1 + 12 blocks of 2, and three shortcuts
    assert model.count_params() == pytest.approx(36.5e6, rel=0.01)
    assert not [x for x in model.layers if "Norm" in type(x).__name__]
    strided = [x for x in convolutions if x.strides == (2, 2) and x.kernel_size == (3, 3)]
    assert len(strided) == 2
    assert model.output_shape == (None, 10)


def test_errors_quote_wrong_arguments():
    with pytest.raises(ValueError, match="depth=12"):
        backbones.wide_resnet((8, 8, 1), 2, depth=12)
    with pytest.raises(ValueError, match=r"Unknown norm 'bath'\. Did you mean 'batch'"):
        backbones.wide_resnet((8, 8, 1), 2, depth=10, norm="bath")
    with pytest.raises(ValueError, match=r"shape=\(8,\)"):
        backbones.wide_resnet((8,), 2)

"""The same weights give the same numbers in PyTorch and in Keras; `make test-torch` runs this."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf.pytorch
from jem_tf import backbones, energy
from jem_tf.pytorch import conversion

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
from torch_jem import Classifier, convnet, score  # noqa: E402

from pytorch import reference  # noqa: E402

SIZES = [(10, 1, None), (16, 2, None), *((10, 1, n) for n in ("batch", "instance", "layer", "act"))]
# At 28-10 the sums have ten thousand terms: the last digits differ by rounding.
PAPER = pytest.param((28, 10, None), marks=pytest.mark.slow, id="28-10-None")


@pytest.fixture(params=[*SIZES, PAPER], ids=str)
def pair(request, tmp_path):
    depth, width, norm = request.param
    theirs = reference.make(depth, width, norm)
    chains = torch.rand(20, 3, 32, 32) * 2 - 1
    reference.save(theirs, tmp_path / "theirs.pt", chains)
    ours = jem_tf.pytorch.load(tmp_path / "theirs.pt", f"wrn-{depth}-{width}", norm)
    return theirs, ours, chains, (depth, width, norm)


def images(n=4, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (n, 32, 32, 3)).astype(np.float32)


def to_torch(x):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(np.asarray(x), -1, 1)))


def to_numpy(x):
    return np.moveaxis(x.detach().numpy(), 1, -1)


def assert_close(actual, expected, relative):
    """Compare within `relative` of the largest expected value: single values may cancel."""
    assert np.abs(actual - expected).max() < relative * np.abs(expected).max()


def test_logits(pair):
    theirs, ours, *_ = pair
    x = images()
    assert_close(ours.predict(x, verbose=0), theirs(to_torch(x)).detach().numpy(), 1e-4)


@pytest.mark.parametrize("size", [8, 28])  # 28: the padding of an odd size is not symmetric
def test_logits_of_the_small_network(size):
    ours = backbones.convnet((size, size, 1), 10, width=4)
    theirs = convnet(10, 4, size)
    for layer, mine in zip(
        (m for m in theirs if hasattr(m, "weight")), zip(*[iter(ours.weights)] * 2)
    ):
        kernel, bias = (to_torch(w.numpy()) for w in mine)
        if kernel.ndim == 4:
            kernel = kernel.permute(3, 0, 1, 2)
        layer.load_state_dict({"weight": kernel, "bias": bias})
    x = np.random.default_rng(0).normal(size=(4, size, size, 1)).astype(np.float32)
    assert_close(ours.predict(x, verbose=0), theirs(to_torch(x)).detach().numpy(), 1e-5)


def test_input_gradients(pair):
    """In double precision: a leaky ReLU has two slopes at 0, and rounding decides which one."""
    theirs, ours, _, kind = pair
    keras.config.set_dtype_policy("float64")
    try:
        double = backbones.wide_resnet((32, 32, 3), 10, *kind)
    finally:
        keras.config.set_dtype_policy("float32")
    double.set_weights(ours.backbone.get_weights())
    x = images().astype(np.float64)
    scores = energy.input_score(lambda v: double(v, training=False), tf.constant(x))
    assert_close(scores.numpy(), to_numpy(score(theirs.double(), to_torch(x))), 1e-4)


def test_chains_with_the_same_noise_end_at_the_same_points(pair):
    """20 steps of the paper's SGLD in PyTorch, with the noise that our sampler draws."""
    from jem_tf._tf.randomness import fold_in, normal

    theirs, ours, *_ = pair
    start, seed = images(2), tf.constant([3, 4])
    ends, _ = ours.run_chains(tf.constant(start), seed, steps=20)  # in single precision
    x = to_torch(start)
    for step in range(20):
        noise = to_torch(normal(start.shape, fold_in(seed, tf.constant(step))).numpy())
        x = x + score(theirs, x) + 0.01 * noise
    assert_close(ends.numpy(), to_numpy(x), 1e-4)
    assert np.abs(ends.numpy() - start).max() > 0.02  # the chains have moved


def test_the_buffer_is_loaded(pair):
    _, ours, chains, _ = pair
    np.testing.assert_array_equal(ours.stored_chains(), to_numpy(chains))


def test_pytorch_loads_the_saved_checkpoint(pair, tmp_path):
    """PyTorch loads it strictly and without code in the file, and finds what it had written."""
    theirs, ours, chains, kind = pair
    jem_tf.pytorch.save(ours, tmp_path / "ours.pt")
    content = torch.load(tmp_path / "ours.pt", weights_only=True)
    expected = theirs.state_dict()
    fresh = reference.make(*kind)
    fresh.load_state_dict(content["model_state_dict"], strict=True)
    for name, value in fresh.state_dict().items():
        if not name.startswith(("f.linear", "energy_output")) and "num_batches" not in name:
            assert torch.equal(value, expected[name]), name
    assert torch.equal(content["replay_buffer"], chains)


@pytest.mark.parametrize("older", [False, True], ids=["zip", "before 1.6"])
def test_both_file_formats(tmp_path, older):
    theirs, x = reference.make(), images()
    options = {"_use_new_zipfile_serialization": not older}
    reference.save(theirs, tmp_path / "a.pt", torch.rand(4, 3, 32, 32), **options)
    ours = jem_tf.pytorch.load(tmp_path / "a.pt", "wrn-10-1")
    assert_close(ours.predict(x, verbose=0), theirs(to_torch(x)).detach().numpy(), 1e-4)


def test_the_variant_of_jem_plus_plus(tmp_path):
    """No `f.linear`, batch norm, and second names for the layers that YOPO separates."""
    theirs, x = reference.make(norm="batch", linear=False, classes=7), images()
    state = theirs.state_dict()
    second_names = {
        k.replace("f.conv1", "f.layer_one"): v for k, v in state.items() if "f.conv1" in k
    }
    second_names |= {
        k.replace("f.layer1", "f.other_layers.0"): v for k, v in state.items() if "f.layer1" in k
    }
    torch.save({"model_state_dict": {**state, **second_names}}, tmp_path / "a.pt")
    ours = jem_tf.pytorch.load(tmp_path / "a.pt", "wrn-10-1", classes=7)
    assert_close(ours.predict(x, verbose=0), theirs(to_torch(x)).detach().numpy(), 1e-4)
    assert ours.stored_chains() is None


def test_actnorm_is_initialised_from_data_as_in_pytorch():
    from jem_tf.backbones.actnorm import initialise_actnorm

    ours = backbones.wide_resnet((32, 32, 3), 10, 10, 1, "act")
    theirs = Classifier(10, 1, "act")
    x = images(16)
    model = jem_tf.JEM(ours)
    for name, weight in conversion.named_weights(ours):
        theirs.state_dict()[name].copy_(torch.from_numpy(conversion.to_torch(weight).copy()))
    model.adapt(x)
    logits = theirs(to_torch(x)).detach().numpy()
    # PyTorch divides by n - 1 for thousands of pixels n.
    assert_close(model.predict(x, verbose=0), logits, 1e-3)
    before = model.predict(x, verbose=0)
    initialise_actnorm(ours, 5 * x)  # without effect: it is initialised
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)

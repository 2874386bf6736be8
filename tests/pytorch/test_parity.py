"""The same weights give the same numbers in PyTorch and here; `make test-torch` installs it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf.pytorch
from jem_tf import backbones, energy

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
from torch_jem import Classifier, score  # noqa: E402

from pytorch import reference  # noqa: E402

SIZES = [(10, 1, None), (16, 2, None), *((10, 1, n) for n in ("batch", "instance", "layer", "act"))]
# At 28-10 the sums have ten thousand terms: rounding differs by a few of the last digits.
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


def there(x):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(np.asarray(x), -1, 1)))


def here(x):
    return np.moveaxis(x.detach().numpy(), 1, -1)


def close(found, expected, relative):
    """Within `relative` of the largest expected value: single ones may cancel to nothing."""
    assert np.abs(found - expected).max() < relative * np.abs(expected).max()


def test_logits(pair):
    theirs, ours, *_ = pair
    x = images()
    close(ours.predict(x, verbose=0), theirs(there(x)).detach().numpy(), 1e-4)


def test_input_gradients(pair):
    """In double precision: a unit of a leaky ReLU that is 0 but for rounding has one slope there
    and another one here, which is no fault of either."""
    theirs, ours, _, kind = pair
    keras.config.set_dtype_policy("float64")
    try:
        double = backbones.wide_resnet((32, 32, 3), 10, *kind)
    finally:
        keras.config.set_dtype_policy("float32")
    double.set_weights(ours.backbone.get_weights())
    x = images().astype(np.float64)
    found = energy.input_score(lambda v: double(v, training=False), tf.constant(x))
    close(found.numpy(), here(score(theirs.double(), there(x))), 1e-4)


def test_one_chain_with_the_same_noise_ends_at_the_same_point(pair):
    """20 steps of the paper's SGLD; noise is ours, drawn step by step as the sampler does."""
    from jem_tf._tf.randomness import fold_in, normal

    theirs, ours, *_ = pair
    start, seed = images(2), tf.constant([3, 4])
    found, _ = ours.run_chains(tf.constant(start), seed)
    x = there(start)
    for step in range(20):
        noise = there(normal(start.shape, fold_in(seed, tf.constant(step))).numpy())
        x = x + score(theirs, x) + 0.01 * noise
    close(found.numpy(), here(x), 1e-4)
    assert np.abs(found.numpy() - start).max() > 0.02  # and they did go somewhere


def test_the_buffer_comes_along(pair):
    _, ours, chains, _ = pair
    np.testing.assert_array_equal(ours.buffer["chains"].numpy(), here(chains))


def test_back_again(pair, tmp_path):
    """What PyTorch loads, strictly and without code in the file, is what it had written."""
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
def test_both_kinds_of_files(tmp_path, older):
    theirs, x = reference.make(), images()
    options = {"_use_new_zipfile_serialization": not older}
    reference.save(theirs, tmp_path / "a.pt", torch.rand(4, 3, 32, 32), **options)
    ours = jem_tf.pytorch.load(tmp_path / "a.pt", "wrn-10-1")
    close(ours.predict(x, verbose=0), theirs(there(x)).detach().numpy(), 1e-4)


def test_the_variant_of_jem_plus_plus(tmp_path):
    """No `f.linear`, batch norm, and second names for the layers that YOPO keeps apart."""
    theirs, x = reference.make(norm="batch", linear=False, classes=7), images()
    state = theirs.state_dict()
    again = {k.replace("f.conv1", "f.layer_one"): v for k, v in state.items() if "f.conv1" in k}
    again |= {
        k.replace("f.layer1", "f.other_layers.0"): v for k, v in state.items() if "f.layer1" in k
    }
    torch.save({"model_state_dict": {**state, **again}}, tmp_path / "a.pt")
    ours = jem_tf.pytorch.load(tmp_path / "a.pt", "wrn-10-1", classes=7)
    close(ours.predict(x, verbose=0), theirs(there(x)).detach().numpy(), 1e-4)
    assert not ours.buffer.filled


def test_actnorm_learns_its_start_from_data_as_there():
    from jem_tf.backbones.actnorm import initialise

    ours = backbones.wide_resnet((32, 32, 3), 10, 10, 1, "act")
    theirs = Classifier(10, 1, "act")
    x = images(16)
    model = jem_tf.JEM(ours)
    for name, weight in jem_tf.pytorch.layout._weights(ours):
        theirs.state_dict()[name].copy_(
            torch.from_numpy(jem_tf.pytorch.layout._to_torch(weight).copy())
        )
    model.adapt(x)
    logits = theirs(there(x)).detach().numpy()
    # PyTorch divides by n - 1 of thousands of pixels
    close(model.predict(x, verbose=0), logits, 1e-3)
    before = model.predict(x, verbose=0)
    initialise(ours, 5 * x)  # once only
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)

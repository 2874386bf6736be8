"""`energy`, `ood_score`, `refine` and `sample`: against SciPy, repeatable, with clear errors."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp, softmax


@pytest.fixture
def model(trained_model):
    return trained_model


@pytest.mark.parametrize("n", [1, 7, 300])
def test_energies_are_those_of_the_logits_in_batches_of_any_size(model, blobs, n):
    x, y = blobs[0][:n], blobs[1][:n]
    logits = model.predict(x, verbose=0)
    np.testing.assert_allclose(model.energy(x, batch_size=64), -logsumexp(logits, 1), rtol=1e-4)
    joint = model.energy(x, y, batch_size=64)
    np.testing.assert_allclose(joint, -logits[np.arange(n), y], rtol=1e-4, atol=1e-5)
    in_batches, at_once = model.ood_score(x, batch_size=64), model.ood_score(x, batch_size=300)
    np.testing.assert_allclose(in_batches, at_once, rtol=1e-4, atol=1e-6)


def test_batches_give_the_same_answers_as_arrays(model, blobs):
    x, y = blobs
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    for stream in (rows.batch(70), iter([(x[:40], y[:40]), (x[40:], y[40:])])):
        np.testing.assert_allclose(model.energy(stream, batch_size=64), model.energy(x), rtol=1e-4)
    scores = model.ood_score(rows.map(lambda x, _: x).batch(300), "gradient_norm")
    np.testing.assert_allclose(scores, model.ood_score(x, "gradient_norm"), rtol=1e-4)
    with pytest.raises(ValueError, match=r"`\.batch\(\)` it"):
        model.energy(rows)


def test_scores_are_those_of_the_logits_and_of_finite_differences(model, blobs):
    x = blobs[0][:20]
    logits = model.predict(x, verbose=0)
    density = model.ood_score(x, "log_density")
    np.testing.assert_allclose(density, logsumexp(logits, 1), rtol=1e-4)
    confidence = model.ood_score(x, "max_probability")
    np.testing.assert_allclose(confidence, softmax(logits, 1).max(1), rtol=1e-4)
    scale, step = model.input_range.scale.numpy(), 1e-2
    slopes = [
        -(model.energy(x + step * unit) - model.energy(x - step * unit)) / (2 * step)
        for unit in np.diag(scale)
    ]
    np.testing.assert_allclose(
        -model.ood_score(x, "gradient_norm"), np.linalg.norm(slopes, axis=0), rtol=0.02
    )


def test_no_rows_give_no_answers(model, blobs):
    assert model.energy(blobs[0][:0]).shape == (0,)


def test_in_a_graph_answers_are_tensors(model, blobs):
    energy, score = tf.function(lambda x: (model.energy(x), model.ood_score(x)))(blobs[0])
    np.testing.assert_allclose(energy, model.energy(blobs[0]), rtol=1e-5)
    np.testing.assert_allclose(score, model.ood_score(blobs[0]), rtol=1e-4, atol=1e-6)


def test_samples_repeat_with_their_seed(model):
    first, second = (model.sample(5, steps=3, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (first != model.sample(5, steps=3, seed=2)).any()
    assert (model.sample(5, steps=3) != model.sample(5, steps=3)).any()


def test_batches_of_samples_differ(model):
    x = model.sample(8, steps=3, seed=1, batch_size=4)
    assert (x[:4] != x[4:]).any()


def test_samples_of_a_class_follow_it(model):
    """Chains of a class raise its logit more than chains of another class do."""
    for label in range(3):
        same = model.predict(model.sample(50, label, steps=50, seed=1), verbose=0)
        other = model.predict(model.sample(50, (label + 1) % 3, steps=50, seed=1), verbose=0)
        assert same[:, label].mean() > other[:, label].mean()


def test_each_sample_may_have_its_own_label(model):
    labels = np.array([0, 1, 2, 0])
    samples = model.sample(4, labels, steps=50, seed=1)
    assert samples.shape == (4, 2)
    for label in range(3):
        alone = model.sample(4, label, steps=50, seed=1)
        np.testing.assert_allclose(samples[labels == label], alone[labels == label], rtol=1e-4)


def test_refinement_raises_the_density(model, blobs):
    far = blobs[0] + model.input_range.scale.numpy()
    assert model.energy(model.refine(far, 20)).mean() < model.energy(far).mean()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.sample(2, label=3), "label=3"),
        (lambda m: m.sample(2, label=-1), "label=-1"),
        (lambda m: m.sample(2, label=[0, 1, 2]), "label="),
        (lambda m: m.sample(2, label=0.5), "label=0.5"),
        (lambda m: m.sample(0), "n=0"),
        (lambda m: m.sample(2, steps=0), "steps=0"),
        (lambda m: m.refine(np.zeros((1, 2)), steps=-1), "steps=-1"),
        (lambda m: m.ood_score(np.zeros((1, 2)), "typicality"), "kind='typicality'"),
    ],
)
def test_errors_quote_wrong_arguments(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (2, 5, 2)])
@pytest.mark.parametrize("method", ["energy", "ood_score", "refine", "adapt"])
def test_rows_of_another_shape_raise(method, shape, model):
    with pytest.raises(ValueError, match="shape"):
        getattr(model, method)(np.zeros(shape, np.float32))


def test_scores_before_adapt_have_the_unit_1(make_model, blobs):
    model = make_model()
    before = model.ood_score(blobs[0], "gradient_norm")
    model.adapt(blobs[0])
    after = model.ood_score(blobs[0], "gradient_norm")
    assert (after != before).all()  # now in units of the range of the data


def test_sampling_before_adapt_raises(make_model):
    with pytest.raises(ValueError, match="fit"):
        make_model().sample(3)


def test_stored_chains_are_those_of_the_buffer(model, make_model):
    chains = model.stored_chains()
    assert chains.shape == (200, 2)
    np.testing.assert_array_equal(chains, model.buffer["chains"].numpy())
    assert make_model().stored_chains() is None

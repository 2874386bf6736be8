"""`energy`, `ood_score`, `refine` and `sample`: batched, repeatable, and clear when wrong."""

import resource

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp


@pytest.fixture
def model(make_model, blobs):
    model = make_model()
    model.fit(*blobs, batch_size=50, epochs=2, verbose=0)
    return model


@pytest.mark.parametrize("n", [1, 7, 300])
def test_batches_do_not_change_the_answer(model, blobs, n):
    x, y = blobs[0][:n], blobs[1][:n]
    logits = model.predict(x, verbose=0)
    np.testing.assert_allclose(model.energy(x, batch_size=64), -logsumexp(logits, 1), rtol=1e-4)
    joint = model.energy(x, y, batch_size=64)
    np.testing.assert_allclose(joint, -logits[np.arange(n), y], rtol=1e-4, atol=1e-5)
    one, other = model.ood_score(x, batch_size=64), model.ood_score(x, batch_size=300)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_long_arrays_do_not_fill_the_memory(make_model):
    """800 MB of rows, if they existed: they are read a batch at a time."""
    model = make_model(features=1000)
    rows = np.broadcast_to(np.ones((1, 1000), np.float32), (200_000, 1000))
    model.energy(rows[:1000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert model.energy(rows, batch_size=1000).shape == (200_000,)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_no_rows_no_answers(model, blobs):
    assert model.energy(blobs[0][:0]).shape == (0,)


def test_in_a_graph_they_are_tensors(model, blobs):
    scores = tf.function(lambda x: (model.energy(x), model.ood_score(x)))(blobs[0])
    np.testing.assert_allclose(scores[0], model.energy(blobs[0]), rtol=1e-5)
    np.testing.assert_allclose(scores[1], model.ood_score(blobs[0]), rtol=1e-4, atol=1e-6)


def test_samples_repeat_with_their_seed(model):
    one, again = (model.sample(5, steps=3, seed=1) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert (one != model.sample(5, steps=3, seed=2)).any()
    assert (model.sample(5, steps=3) != model.sample(5, steps=3)).any()


def test_batches_of_samples_differ(model):
    x = model.sample(8, steps=3, seed=1, batch_size=4)
    assert (x[:4] != x[4:]).any()


def test_samples_of_a_class_follow_it(model):
    """Conditional chains raise the logit of their class more than other chains do."""
    for label in range(3):
        chosen = model.predict(model.sample(50, label, steps=50, seed=1), verbose=0)
        other = model.predict(model.sample(50, (label + 1) % 3, steps=50, seed=1), verbose=0)
        assert chosen[:, label].mean() > other[:, label].mean()


def test_labels_for_each_sample(model):
    assert model.sample(4, [0, 1, 2, 0], steps=2).shape == (4, 2)


def test_refinement_raises_the_density(model, blobs):
    far = blobs[0] + model.start.scale.numpy()
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
def test_bad_arguments_are_named(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)


def test_scores_need_no_data_first(make_model, blobs):
    model = make_model()
    before = model.ood_score(blobs[0])
    model.adapt(blobs[0])
    assert (model.ood_score(blobs[0]) != before).all()  # now in units of the data's range


def test_sampling_needs_data_first(make_model):
    with pytest.raises(ValueError, match="fit"):
        make_model().sample(3)

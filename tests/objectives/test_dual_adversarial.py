"""Dual adversarial training: stages, negatives, attacks and loss against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from jem_tf.objectives import DualAdversarial, Terms

from .toy import batch_of, check_by_differences, draw_data, make_toy_model, value_and_gradient

SEEDS = [tf.constant([1, 2])]


def make(step=0, y=None, **options):
    """An adapted model at a training step, and its batch."""
    model = make_toy_model(objective=DualAdversarial(**options))
    x, labels = draw_data()
    model.adapt(x)
    model.objective.prepare(model, None)
    model.progress.assign(step=np.int64(step))
    return model, batch_of(model, x, labels if y is None else y)


def cross_entropy(model, points, y):
    logits = model.predict(np.asarray(points), verbose=0)
    return (logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).mean()


def joint(model, points, y):
    """f(x)[y], and logsumexp f(x) for rows without a label."""
    f = model.predict(np.asarray(points), verbose=0)
    return np.where(y >= 0, f[np.arange(len(y)), y], logsumexp(f, axis=1))


def test_stage_one_is_adversarial_training_only():
    model, batch = make(step=4, warmup=5, radius=0.2, attack_steps=3)
    x, y = draw_data()
    adversarial = model.objective._attack(model, batch)
    distance = np.abs((adversarial - batch.x) / model.input_range.scale)
    assert distance.max() <= 0.2 + 1e-5 and distance.mean() > 0.1
    robust = cross_entropy(model, adversarial, y)
    assert robust > cross_entropy(model, x, y)

    negatives = model.objective.negatives(model, batch, SEEDS)
    assert negatives.shape[0] == 0
    terms = model.objective.loss(model, batch, negatives)
    assert float(terms.loss) == pytest.approx(robust, rel=1e-4)
    assert terms.logits.shape == (60, 3)
    model.progress.assign(step=np.int64(5))
    assert model.objective.negatives(model, batch, SEEDS).shape[0] == 60


def test_energies_are_those_of_the_class():
    """softplus(-f(x)[y]) + softplus(f(x')[y]), with log p(x) for rows without a label."""
    y = np.where(np.arange(60) % 5, draw_data()[1], -1)
    model, batch = make(y=y, warmup=0, radius=0.0)
    negatives = model.objective.negatives(model, batch, SEEDS)
    loss = lambda: model.objective.loss(model, batch, negatives).loss  # noqa: E731
    value, gradient = value_and_gradient(model, loss)
    inside = np.log1p(np.exp(-joint(model, batch.x, y))).mean()
    outside = np.log1p(np.exp(joint(model, negatives, y))).mean()
    labelled = y >= 0
    expected = cross_entropy(model, batch.x[labelled], y[labelled]) + inside + outside
    assert value == pytest.approx(expected, rel=1e-4)
    check_by_differences(model, loss, gradient)


def test_negatives_ascend_the_density_of_their_class():
    """The direction of a step is the sign of the slope of f(x)[y], by differences."""
    model, batch = make(warmup=0, step_size=0.01)
    kernel = model.backbone.trainable_weights[2]
    kernel.assign(5.0 * kernel)  # classes differ more than by chance
    y, scale = draw_data()[1], model.input_range.scale
    start = model.start.draw(60, SEEDS[0])

    def slope(labels):
        return joint(model, start + 0.01, labels) - joint(model, start - 0.01, labels)

    moved = ((model.objective.negatives(model, batch, SEEDS) - start) / scale)[:, 0]
    clear = np.abs(slope(y)) > 1e-3
    np.testing.assert_allclose(moved[clear], 0.01 * np.sign(slope(y)[clear]), atol=1e-5)
    marginal = slope(np.full(60, -1))
    assert (np.sign(marginal) != np.sign(slope(y)))[clear].sum() > 5  # log p(x) ascends elsewhere


def test_steps_grow_while_the_discriminator_wins_and_stop_at_the_bound():
    model, _ = make(warmup=0, steps=3, threshold=0.8)
    objective = model.objective

    def update(accuracy, times):
        logits = tf.zeros([1, 3])
        terms = Terms(tf.constant(0.0), logits, {"discriminator_accuracy": tf.constant(accuracy)})
        for _ in range(times):
            objective.after_update(model, None, terms)
        return objective.number("steps")

    assert update(0.75, times=100) == 1
    objective.assign(accuracy=np.float32(0.5))
    needed = int(np.ceil(np.log(0.4) / np.log(0.9)))  # 1 - 0.5 * 0.9^n > 0.8
    assert [update(1.0, times=n) for n in (needed - 1, 1, needed, 5 * needed)] == [1, 2, 3, 3]
    model.progress.assign(step=np.int64(0))
    objective.settings["warmup"] = 1  # stage 1 changes nothing
    objective.assign(steps=np.int32(1))
    assert update(1.0, times=100) == 1


def test_fit_makes_negatives_harder_and_keeps_the_number_of_steps(make_model, blobs, tmp_path):
    import keras

    model = make_model(objective=DualAdversarial(warmup=6, steps=4))
    logs = model.fit(*blobs, batch_size=50, epochs=10, verbose=0).history
    assert logs["generative_loss"][0] == 0.0 and logs["generative_loss"][1] > 0
    assert logs["ascent_steps"][0] == 1 and logs["ascent_steps"][-1] > 1
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert copy.objective.number("steps") == model.objective.number("steps") > 1


@pytest.mark.parametrize(
    "options",
    [
        {"weight": -1},
        {"radius": -1},
        {"step_size": 0},
        {"steps": 0},
        {"warmup": -1},
        {"threshold": 0.5},
    ],
)
def test_errors_quote_wrong_settings(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        DualAdversarial(**options)


def test_fit_warns_if_it_ends_in_the_first_stage(make_model, blobs):
    model = make_model(objective=DualAdversarial(steps=1, attack_steps=1, warmup=100))
    with pytest.warns(UserWarning, match="ended after 3 steps, and they begin after `warmup`=100"):
        model.fit(*blobs, batch_size=100, verbose=0)

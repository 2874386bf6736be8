"""Chains of a model: they move in units of the data, and follow the density of their class."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf.model.fitting import suitable_step_size


def test_rescaling_a_feature_and_its_weights_changes_nothing(make_model, blobs):
    x, y = blobs
    units = np.array([100.0, 0.01], np.float32)
    models = [make_model(start=jem_tf.Uniform()) for _ in range(2)]
    kernel, *rest = models[0].get_weights()
    models[1].set_weights([kernel / units[:, None], *rest])
    for model, factor in zip(models, (1.0, units)):
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
        model.fit(x * factor, y, batch_size=150, verbose=0, shuffle=False)
    chains = [model.stored_chains() for model in models]
    np.testing.assert_allclose(chains[1], chains[0] * units, rtol=2e-3)
    scores = [
        model.ood_score(x * factor, "gradient_norm") for model, factor in zip(models, (1.0, units))
    ]
    np.testing.assert_allclose(*scores, rtol=1e-3)


def test_chains_of_labels_follow_the_density_of_their_class(trained_model, blobs):
    """One noiseless step of size s moves x by s scale² d log p(x | y) / dx, by a gradient tape."""
    model = trained_model
    x, labels = tf.constant(blobs[0][:6]), tf.constant([0, 1, 2, 0, 1, 2])
    chains = jem_tf.model.chains.Chains(
        model.logits, jem_tf.SGLD(1, 0.01, noise=0), model.input_range, model.progress
    )
    for classes in (labels, None):
        with tf.GradientTape() as tape:
            tape.watch(x)
            logits = model.backbone(x)
            log_p = tf.reduce_logsumexp(logits, 1)
            if classes is not None:
                log_p = tf.reduce_sum(tf.one_hot(classes, 3) * logits, 1)
        slope = tape.gradient(log_p, x) * model.input_range.scale**2
        ends, _ = chains.run(x, tf.constant([1, 2]), classes, steps=1)
        size = 0.01 * model.progress["step_size"].numpy()
        np.testing.assert_allclose(ends, x + size * slope, rtol=1e-4, atol=1e-5)


def test_a_suitable_step_moves_new_chains_by_a_tenth_of_the_half_range(make_model, blobs):
    model = make_model(sampler=jem_tf.SGLD(1, 1.0, noise=0))
    model.adapt(blobs[0] * 10.0)  # steep in units of the range
    size = suitable_step_size(model)
    start = model.start.draw(64, tf.constant([model.seed, 2]))
    model.progress.assign(step_size=np.float32(size))
    _, diagnostics = model.run_chains(start, tf.constant([0, 0]))
    assert size < 0.1
    assert float(diagnostics["displacement"]) == pytest.approx(0.1, rel=1e-3)


def test_chains_of_training_are_in_bfloat16_where_asked_and_others_are_not(monkeypatch):
    """Of the same start and seed, only rounding differs; `steps` asks for other chains."""
    backbone = jem_tf.backbones.convnet((8, 8, 1), 3, width=4)
    start, seed = tf.random.stateless_uniform([5, 8, 8, 1], [1, 2], -1, 1), tf.constant([1, 2])

    def ends(dtype, **options):
        model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(4, 1.0, 0.01, dtype=dtype), seed=0)
        model.adapt(start)
        assert model.chain_dtype == ("float32" if dtype == "auto" else dtype)
        return tf.function(lambda x: model.run_chains(x, seed, **options)[0])(start).numpy()

    monkeypatch.setattr(jem_tf._tf.precision, "hardware_gains", lambda: False)
    single = ends("float32")
    np.testing.assert_array_equal(ends("auto"), single)
    moved = np.linalg.norm(single - start)
    assert 1e-5 * moved < np.linalg.norm(ends("bfloat16") - single) < 0.03 * moved
    np.testing.assert_allclose(ends("bfloat16", steps=4), single, atol=1e-6)
    model = jem_tf.JEM(backbone, sampler=jem_tf.MALA(4, 0.1))
    assert model.chain_dtype == "float32"  # it accepts by values, which would be too coarse

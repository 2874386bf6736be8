"""`JEM` as a Keras model: options of `compile`, metrics, weights of rows, and what is logged."""

import csv

import keras
import numpy as np
import pytest
from helpers import assert_same_weights, compile_for_tests
from scipy.special import logsumexp

import jem_tf
from jem_tf.objectives import Joint

LOGS = {"loss", "classification_loss", "generative_loss", "energy_data", "energy_samples"}


def one_hot(y):
    return keras.utils.to_categorical(y, 3)


@pytest.fixture(scope="module")
def train_three_steps(make_model, blobs):
    """A function that trains a new model for three steps with options of `compile`."""

    def train(**options):
        keras.utils.set_random_seed(3)
        model = make_model(compiled=False)
        model.compile(**{"optimizer": keras.optimizers.SGD(0.1), **options})
        model.optimizer.build(model.trainable_variables)
        model.fit(*blobs, batch_size=100, verbose=0)
        return model

    return train


@pytest.fixture(scope="module")
def default_training(train_three_steps):
    return train_three_steps()


def test_the_same_seed_repeats_a_training(train_three_steps, default_training):
    assert_same_weights(train_three_steps(), default_training)


@pytest.mark.parametrize(
    "options",
    [{"steps_per_execution": 3}, {"run_eagerly": True}],
    ids=lambda options: next(iter(options)),
)
def test_options_of_compile_do_not_change_the_update(options, train_three_steps, default_training):
    model = train_three_steps(**options)
    for weight, expected in zip(model.get_weights(), default_training.get_weights()):
        np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.stored_chains(), default_training.stored_chains(), rtol=1e-3)


@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "xla"]
)
def test_fit_learns_with_metrics_by_name_and_clipped_gradients(jit_compile, make_model, blobs):
    """XLA has random numbers of its own, so its updates cannot be compared."""
    model = make_model(compiled=False)
    optimizer = keras.optimizers.Adam(1e-2, clipnorm=1.0)
    model.compile(optimizer, metrics=["accuracy"], jit_compile=jit_compile)
    history = model.fit(*blobs, batch_size=50, epochs=8, verbose=0).history
    assert history["accuracy"][-1] > 0.9
    assert np.isfinite([values[-1] for values in history.values()]).all()


def test_averaged_weights_replace_the_raw_ones_at_the_end(make_model, blobs):
    """The average is computed here, from the weights after each step."""
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9)
    model = make_model(optimizer=optimizer)
    kernels = []

    class Recorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            kernels.append(model.trainable_weights[0].numpy())

    model.fit(*blobs, batch_size=100, verbose=0, callbacks=[Recorder()])
    average = kernels[0]
    for kernel in kernels[1:]:
        average = 0.9 * average + 0.1 * kernel
    assert len(kernels) == 3 and np.abs(average - kernels[-1]).max() > 1e-4
    np.testing.assert_allclose(model.trainable_weights[0], average, rtol=1e-5)


@pytest.mark.parametrize("weight", [0.2, 1.0])
def test_logs_are_the_losses_they_name(weight, trained_model, make_model, blobs):
    """`evaluate` against the same numbers computed from logits, by SciPy."""
    x, y = blobs
    model = trained_model
    if weight != 0.2:  # the default
        model = make_model(objective=Joint(weight), buffer=jem_tf.ReplayBuffer(300))
        model.compile("sgd", run_eagerly=True)
        model.fit(x, y, batch_size=300, verbose=0)
    logs = model.evaluate(x, y, batch_size=300, verbose=0, return_dict=True)
    logits = model.predict(x, verbose=0)
    f = logsumexp(logits, axis=1)
    cross_entropy = (f - logits[np.arange(300), y]).mean()
    assert logs["classification_loss"] == pytest.approx(cross_entropy, rel=1e-4)
    assert logs["energy_data"] == pytest.approx(-f.mean(), rel=1e-4)
    f_chains = logsumexp(model.predict(model.stored_chains(), verbose=0), axis=1)
    assert logs["energy_samples"] == pytest.approx(-f_chains.mean(), rel=1e-4)
    assert logs["gap"] == pytest.approx(f_chains.mean() - f.mean(), rel=1e-3, abs=1e-4)
    spread = np.clip(f.std(), 0.05, 5.0)  # at least T sqrt(D / 2), with T = 0.05 and D = 2
    trust = np.clip(2 - (f.mean() - f_chains) / (4 * spread), 0, 1)
    assert logs["trusted"] == pytest.approx(trust.mean(), rel=1e-3)
    generative = (trust * (f_chains - f.mean())).mean()
    assert logs["generative_loss"] == pytest.approx(generative, rel=1e-3, abs=1e-4)
    total = logs["classification_loss"] + weight * logs["generative_loss"]
    assert logs["loss"] == pytest.approx(total, rel=1e-4)


def test_without_generative_weight_the_update_is_that_of_a_classifier(make_model, blobs):
    x, y = blobs
    model = make_model(objective=Joint(0.0), input_noise=0.0, optimizer=keras.optimizers.SGD(0.1))
    plain = keras.models.clone_model(model.backbone)
    plain.set_weights(model.backbone.get_weights())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain.compile(keras.optimizers.SGD(0.1), loss)
    for network in (model, plain):
        network.fit(x, y, batch_size=100, shuffle=False, verbose=0)
    for weight, expected in zip(model.backbone.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(weight, expected, atol=1e-5)


def test_a_sample_weight_counts_as_repeated_rows(make_model, blobs):
    x, y = blobs[0][:12], blobs[1][:12]
    weight = np.array([1.0, 3.0, 0.0] * 4, np.float32)
    repeated = np.repeat(np.arange(12), weight.astype(int))
    model = make_model(buffer=jem_tf.ReplayBuffer(12))
    model.compile("adam", run_eagerly=True)
    model.fit(x, y, batch_size=12, verbose=0)
    weighted = model.evaluate(x, y, sample_weight=weight, verbose=0, return_dict=True)
    plain = model.evaluate(x[repeated], y[repeated], verbose=0, return_dict=True)
    for name in ("classification_loss", "generative_loss"):
        assert weighted[name] == pytest.approx(plain[name], rel=1e-4)


def test_unlabelled_rows_count_for_the_density_only(make_model, blobs):
    """With label -1, the classification loss and the accuracy are those of the other rows."""
    x, y = blobs
    model = make_model()
    model.fit(x, y, batch_size=100, epochs=2, verbose=0)
    some_labels = np.where(np.arange(300) < 100, y, -1)
    options = {"batch_size": 100, "verbose": 0, "return_dict": True}
    logs = model.evaluate(x, some_labels, **options)
    labelled = model.evaluate(x[:100], y[:100], **options)
    everything = model.evaluate(x, y, **options)
    assert logs["accuracy"] == pytest.approx(labelled["accuracy"])
    assert logs["classification_loss"] == pytest.approx(labelled["classification_loss"], rel=1e-4)
    assert logs["energy_data"] == pytest.approx(everything["energy_data"], rel=1e-4)
    before = model.get_weights()
    model.fit(x, np.full(300, -1), batch_size=100, epochs=1, verbose=0)
    assert any((a != b).any() for a, b in zip(before, model.get_weights()))


def test_one_hot_rows_of_zeros_are_unlabelled(make_model, blobs):
    x, y = blobs
    rows = np.where(np.arange(300)[:, None] < 100, one_hot(y), 0.0)
    model = make_model(compiled=False)
    compile_for_tests(model, one_hot=True)
    model.fit(x, rows, batch_size=100, epochs=3, verbose=0)
    correct = model.predict(x[:100], verbose=0).argmax(1) == y[:100]
    accuracy = model.evaluate(x, rows, 100, verbose=0, return_dict=True)["accuracy"]
    assert accuracy == pytest.approx(correct.mean())
    assert correct.any() and not correct.all()


def test_a_step_is_traced_for_the_full_batch_and_for_any_size_only(blobs):
    traces = []

    class Counting(jem_tf.JEM):
        def train_step(self, data):
            traces.append(1)
            return super().train_step(data)

    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model = Counting(backbone, sampler=jem_tf.SGLD(2))
    model.compile("adam")
    model.fit(*blobs, batch_size=64, epochs=1, verbose=0)  # the last batch is smaller
    after_first_epoch = len(traces)
    model.fit(*blobs, batch_size=64, epochs=3, verbose=0)
    assert len(traces) == after_first_epoch <= 2


@pytest.mark.parametrize(
    ("sampler", "step_size"),
    [(jem_tf.SGLD(3, 0.7, 0.01), 0.7), (jem_tf.SGLD.langevin(3, initial=0.2), 0.2)],
    ids=["fixed", "schedule"],
)
def test_step_sizes_that_do_not_tune_themselves_stay(sampler, step_size, make_model, blobs):
    model = make_model(sampler=sampler)
    history = model.fit(*blobs, batch_size=100, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert history["step_size"] == pytest.approx([step_size] * 2)


def test_mala_trains_and_logs_its_acceptance_rate(make_model, blobs):
    model = make_model(sampler=jem_tf.MALA(3))
    options = {"validation_data": blobs, "batch_size": 100, "verbose": 0}
    history = model.fit(*blobs, epochs=2, **options).history
    assert 0 < history["acceptance"][-1] <= 1
    assert "val_acceptance" not in history and "stiffness" not in history


def test_chains_of_a_class_end_near_its_data(make_model, blobs):
    """The slots of a class follow log p(x | y), from starts fitted to the classes."""
    model = make_model(
        buffer=jem_tf.ReplayBuffer(60, per_class=True),
        start=jem_tf.GaussianMixture(),
        optimizer=keras.optimizers.Adam(0.05),
    )
    model.fit(*blobs, batch_size=50, epochs=6, verbose=0)
    predicted = model.predict(model.stored_chains(), verbose=0).argmax(1)
    assert (predicted == model.buffer.arrays()["labels"][0]).mean() > 0.8


def test_a_step_tunes_the_step_size_by_its_own_diagnostics(make_model, blobs):
    x, y = blobs
    sampler = jem_tf.SGLD(3, temperature=1.0)
    model = make_model(sampler=sampler, buffer=jem_tf.ReplayBuffer(300, reinit_probability=0.0))
    model.fit(x, y, batch_size=300, verbose=0)
    for steps in (2, 3, 4):
        before = model.progress.arrays()["step_size"]
        logs = model.fit(x, y, batch_size=300, verbose=0).history
        stats = {name: logs[name][0] for name in ("stiffness", "acceptance")}
        room = min(np.log(0.1 / stats["stiffness"]), 5 * (stats["acceptance"] - 0.8))
        expected = np.clip(before * np.exp(0.05 * np.clip(room, -1, 1)), *sampler.step_size_bounds)
        assert model.progress.arrays()["step_size"] == pytest.approx(expected, rel=1e-5)
        assert logs["step_size"] == pytest.approx([expected], rel=1e-5)
        assert logs["chain_age"] == [3.0 * steps]  # sampler steps of every slot
    assert model.progress.arrays()["step"] == 4


def test_input_noise_has_its_size_in_units_of_the_data(make_model):
    x = np.zeros((4000, 2), np.float32)
    noisy_inputs = []

    class Recorder(Joint):
        def loss(self, model, batch, negatives):
            noisy_inputs.append(batch.x)
            return super().loss(model, batch, negatives)

    backbone = make_model(compiled=False).backbone
    model = jem_tf.JEM(backbone, jem_tf.SGLD(2), objective=Recorder(), input_noise=0.2)
    model.adapt(np.array([[-1.0, -5.0], [1.0, 5.0]], np.float32))
    model.compile("sgd", run_eagerly=True)
    model.fit(x, np.zeros(4000, int), batch_size=4000, verbose=0)
    deviation = noisy_inputs[-1].numpy().std(0)
    np.testing.assert_allclose(deviation, [0.2, 1.0], rtol=0.05)  # 1.1 % standard error


def test_csv_logger_and_tensorboard_work(make_model, blobs, tmp_path):
    callbacks = [
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.TensorBoard(tmp_path / "board"),
    ]
    options = {"batch_size": 100, "verbose": 0, "validation_data": blobs}
    make_model().fit(*blobs, epochs=2, callbacks=callbacks, **options)
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert set(rows[0]) >= LOGS | {f"val_{name}" for name in LOGS}
    assert list((tmp_path / "board").rglob("events*"))


def test_validation_uses_the_whole_buffer(trained_model, blobs):
    x, y = blobs
    options = {"batch_size": 50, "verbose": 0, "return_dict": True}
    logs = trained_model.evaluate(np.tile(x, (20, 1)), np.tile(y, 20), **options)
    energies = trained_model.energy(trained_model.stored_chains())
    error = energies.std() / np.sqrt(6000)  # draws without repetition vary less than that
    assert logs["energy_samples"] == pytest.approx(energies.mean(), abs=4 * error)

"""JEM as a Keras model: every way of calling `fit`, what it logs, what it answers."""

import csv

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

import jem_tf
from jem_tf.objectives import Joint

LOGS = {"loss", "classification_loss", "generative_loss", "energy_data", "energy_samples"}


def one_hot(y):
    return keras.utils.to_categorical(y, 3)


def batches(x, y, size=50):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size)


def generator(x, y):
    while True:
        for begin in range(0, len(x), 50):
            yield x[begin : begin + 50], y[begin : begin + 50]


class Sequence(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.rows = x, y

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return tuple(part[index * 50 : (index + 1) * 50] for part in self.rows)


FORMS = {
    "numpy": lambda x, y: {"x": x, "y": y, "batch_size": 50},
    "float64": lambda x, y: {"x": x.astype("float64"), "y": y, "batch_size": 50},
    "one_hot": lambda x, y: {"x": x, "y": one_hot(y), "batch_size": 50},
    "column": lambda x, y: {"x": x, "y": y[:, None], "batch_size": 50},
    "tf_data": lambda x, y: {"x": batches(x, y)},
    "generator": lambda x, y: {"x": generator(x, y), "steps_per_epoch": 6},
    "py_dataset": lambda x, y: {"x": Sequence(x, y)},
    "sample_weight": lambda x, y: {"x": x, "y": y, "sample_weight": np.ones(300)},
    "class_weight": lambda x, y: {"x": x, "y": y, "class_weight": {0: 1.0, 1: 2.0, 2: 1.0}},
    "validation_split": lambda x, y: {"x": x, "y": y, "validation_split": 0.2},
}


RARE = ("float64", "column", "py_dataset", "class_weight")


@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=pytest.mark.slow if f in RARE else ()) for f in FORMS]
)
def test_fit_learns_from_every_form_of_data(form, make_model, blobs):
    model = make_model()
    history = model.fit(**FORMS[form](*blobs), epochs=20, verbose=0).history
    assert history["accuracy"][-1] > 0.9
    assert set(history) >= LOGS
    assert np.isfinite([values[-1] for values in history.values()]).all()


OPTIONS = {
    "steps_per_execution": {"steps_per_execution": 3},
    "eager": {"run_eagerly": True},
    "xla": {"jit_compile": True},
    "clipnorm": {"optimizer": keras.optimizers.Adam(1e-2, clipnorm=1.0)},
}


@pytest.mark.parametrize(
    "option",
    [pytest.param(o, marks=pytest.mark.slow if o == "xla" else ()) for o in OPTIONS],
)
def test_fit_works_with_the_options_of_compile(option, make_model, blobs):
    model = make_model(compiled=False)
    settings = {"optimizer": keras.optimizers.Adam(1e-2), **OPTIONS[option]}
    model.compile(metrics=["accuracy"], **settings)
    history = model.fit(*blobs, batch_size=50, epochs=4 if option == "eager" else 20, verbose=0)
    assert history.history["accuracy"][-1] > (0.6 if option == "eager" else 0.9)


def test_averaged_weights_replace_the_raw_ones_at_the_end(make_model, blobs):
    optimizer = keras.optimizers.Adam(1e-2, use_ema=True, ema_momentum=0.9)
    model = make_model(optimizer=optimizer)
    model.fit(*blobs, batch_size=50, epochs=3, verbose=0)
    averages = optimizer._model_variables_moving_average
    np.testing.assert_array_equal(model.trainable_weights[0].numpy(), averages[0].numpy())


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_logs_are_the_losses_they_name(weight, make_model, blobs):
    """`evaluate` against the same numbers from logits, by SciPy."""
    x, y = blobs
    model = make_model(objective=Joint(weight))
    model.fit(x, y, batch_size=50, epochs=2, verbose=0)
    logs = model.evaluate(x, y, batch_size=300, verbose=0, return_dict=True)
    logits = model.predict(x, verbose=0)
    f = logsumexp(logits, axis=1)
    cross_entropy = (f - logits[np.arange(300), y]).mean()
    assert logs["classification_loss"] == pytest.approx(cross_entropy, rel=1e-4)
    assert logs["energy_data"] == pytest.approx(-f.mean(), rel=1e-4)
    chains = model.buffer.arrays()["chains"][0]
    f_chains = logsumexp(model.predict(chains, verbose=0), axis=1).mean()
    assert logs["energy_samples"] == pytest.approx(-f_chains, rel=1e-4)
    assert logs["generative_loss"] == pytest.approx(f_chains - f.mean(), rel=1e-3, abs=1e-4)
    total = logs["classification_loss"] + weight * logs["generative_loss"]
    assert logs["loss"] == pytest.approx(total, rel=1e-4)


@pytest.mark.slow
def test_learning_the_density_waits_for_stuck_chains(make_model, blobs):
    """Chains that cannot move, in a density that is pushed down where they are; no labels."""
    x, y = blobs[0], np.full(300, -1)

    def train(lag):
        keras.utils.set_random_seed(1)
        model = make_model(
            sampler=jem_tf.SGLD(1, step_size=1e-9, noise=0),
            objective=Joint(lag=lag),
            optimizer=keras.optimizers.SGD(0.05),
        )
        logs = model.fit(x, y, batch_size=100, epochs=60, verbose=0).history
        return logs["energy_samples"][-1] - logs["energy_data"][-1]

    assert train(lag=1e9) > 100  # runs away, and the loss looks wonderful
    assert train(lag=10.0) < 20  # twice the lag, where samples cease to count


def test_without_generative_weight_the_update_is_that_of_a_classifier(make_model, blobs):
    x, y = blobs
    model = make_model(objective=Joint(0.0), input_noise=0.0, optimizer=keras.optimizers.SGD(0.1))
    plain = keras.models.clone_model(model.backbone)
    plain.set_weights(model.backbone.get_weights())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    plain.compile(keras.optimizers.SGD(0.1), loss)
    for one in (model, plain):
        one.fit(x, y, batch_size=100, shuffle=False, verbose=0)
    for one, other in zip(model.backbone.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_weights_count_rows_as_if_they_were_repeated(make_model, blobs):
    x, y = blobs[0][:12], blobs[1][:12]
    weight = np.array([1.0, 3.0, 0.0] * 4, np.float32)
    repeated = np.repeat(np.arange(12), weight.astype(int))
    model = make_model(buffer=jem_tf.ReplayBuffer(12))
    model.fit(x, y, batch_size=12, verbose=0)
    weighted = model.evaluate(x, y, sample_weight=weight, verbose=0, return_dict=True)
    plain = model.evaluate(x[repeated], y[repeated], verbose=0, return_dict=True)
    for name in ("classification_loss", "generative_loss"):
        assert weighted[name] == pytest.approx(plain[name], rel=1e-4)


def test_unlabelled_rows_feed_only_the_density(make_model, blobs):
    """With label -1 the classification loss and accuracy are those of the other rows."""
    x, y = blobs
    model = make_model()
    model.fit(x, y, batch_size=50, epochs=2, verbose=0)
    partly = np.where(np.arange(300) < 100, y, -1)
    logs = model.evaluate(x, partly, batch_size=300, verbose=0, return_dict=True)
    labelled = model.evaluate(x[:100], y[:100], verbose=0, return_dict=True)
    everything = model.evaluate(x, y, verbose=0, return_dict=True)
    assert logs["accuracy"] == pytest.approx(labelled["accuracy"])
    assert logs["classification_loss"] == pytest.approx(labelled["classification_loss"], rel=1e-4)
    assert logs["energy_data"] == pytest.approx(everything["energy_data"], rel=1e-4)
    before = model.get_weights()
    model.fit(x, np.full(300, -1), batch_size=50, epochs=1, verbose=0)
    assert any((a != b).any() for a, b in zip(before, model.get_weights()))


def test_one_hot_rows_of_zeros_are_unlabelled(make_model, blobs):
    x, y = blobs
    known = np.arange(300) < 100
    model = make_model()
    model.fit(x, np.where(known[:, None], one_hot(y), 0.0), epochs=3, verbose=0)
    right = model.predict(x[:100], verbose=0).argmax(1) == y[:100]
    rows = np.where(known[:, None], one_hot(y), 0.0)
    assert model.evaluate(x, rows, verbose=0, return_dict=True)["accuracy"] == right.mean()


def test_the_same_seed_repeats_a_training(make_model, blobs):
    weights = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        model = make_model()
        model.fit(*blobs, batch_size=50, epochs=2, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        np.testing.assert_array_equal(one, other)


def test_one_trace_serves_the_whole_training(make_model, blobs):
    """One graph call for each step, never traced again, uneven last batches included."""
    traces = []

    class Counting(jem_tf.JEM):
        def train_step(self, data):
            traces.append(1)
            return super().train_step(data)

    model = make_model(compiled=False)
    model = Counting(model.backbone, sampler=model.sampler)
    model.compile("adam")
    model.fit(*blobs, batch_size=64, epochs=1, verbose=0)
    after_first_epoch = len(traces)
    model.fit(*blobs, batch_size=64, epochs=3, verbose=0)
    assert len(traces) == after_first_epoch <= 2  # the full batch, then any size


def test_chains_move_in_units_of_the_data(make_model, blobs):
    """Rescaling a feature and its first weights leaves training the same."""
    x, y = blobs
    units = np.array([100.0, 0.01], np.float32)
    models = [make_model(optimizer=keras.optimizers.SGD(0.0)) for _ in range(2)]
    kernel, *rest = models[0].get_weights()
    models[1].set_weights([kernel / units[:, None], *rest])
    for model, factor in zip(models, (1.0, units)):
        model.fit(x * factor, y, batch_size=50, epochs=1, verbose=0, shuffle=False)
    chains = [model.buffer.arrays()["chains"] for model in models]
    np.testing.assert_allclose(chains[1], chains[0] * units, rtol=2e-3)
    scores = [model.ood_score(x * factor) for model, factor in zip(models, (1.0, units))]
    np.testing.assert_allclose(*scores, rtol=1e-3)


def test_adapt_decides_and_fit_keeps_it(make_model, blobs):
    x, y = blobs
    model = make_model()
    model.adapt(np.concatenate([x, x + 1000.0]))
    model.fit(x, y, epochs=1, verbose=0)
    np.testing.assert_allclose(model.start["high"], x.max(0) + 1000.0)
    model.adapt(x)
    np.testing.assert_allclose(model.start["high"], x.max(0))
    by_itself = make_model()
    by_itself.fit(batches(x, y), epochs=1, verbose=0)
    np.testing.assert_allclose(by_itself.start["high"], x.max(0))


@pytest.mark.parametrize(
    "sampler", [jem_tf.SGLD(3, 1.0, 0.01), jem_tf.MALA(3), jem_tf.SGLD.langevin(3)]
)
def test_other_samplers_train(sampler, make_model, blobs):
    model = make_model(sampler=sampler)
    history = model.fit(*blobs, validation_data=blobs, batch_size=50, epochs=2, verbose=0).history
    assert ("acceptance" in history) == isinstance(sampler, jem_tf.MALA)
    if "acceptance" in history:
        assert 0 < history["acceptance"][-1] <= 1


def test_class_conditional_chains_and_informative_starts(make_model, blobs):
    """Slots of a class end near its data when chains follow log p(x | y)."""
    x, y = blobs
    model = make_model(
        buffer=jem_tf.ReplayBuffer(60, per_class=True), start=jem_tf.GaussianMixture()
    )
    model.fit(x, y, batch_size=50, epochs=15, verbose=0)
    arrays = model.buffer.arrays()
    predicted = model.predict(arrays["chains"][0], verbose=0).argmax(1)
    assert (predicted == arrays["labels"][0]).mean() > 0.8


def test_step_size_and_chain_age_are_logged(make_model, blobs):
    x, y = blobs
    model = make_model(buffer=jem_tf.ReplayBuffer(50, reinit_probability=0.0))
    model.fit(x, y, batch_size=50, epochs=2, verbose=0)
    assert model.buffer.mean_age() == 36.0  # 12 steps, each of 3, on every slot
    state = model.progress.arrays()
    assert state["step"] == 12 and 1e-3 <= state["step_size"] <= 10.0
    fixed = make_model(sampler=jem_tf.SGLD(2, step_size=0.05))
    assert fixed.fit(x, y, verbose=0).history["step_size"] == pytest.approx([0.05])


def test_a_step_tunes_the_step_size_by_its_own_gap(make_model, blobs):
    x, y = blobs
    model = make_model()
    model.fit(x, y, batch_size=300, verbose=0)
    for _ in range(3):
        before = model.progress.arrays()["step_size"]
        gap = model.fit(x, y, batch_size=300, verbose=0).history["generative_loss"][0]
        expected = before * np.exp(0.02 * np.tanh(-gap))
        assert model.progress.arrays()["step_size"] == pytest.approx(expected, rel=1e-5)


def test_input_noise_has_its_size_in_units_of_the_data(make_model, blobs):
    """A linear energy shifts by noise; its spread over rows shows the noise's size."""
    x = np.zeros((4000, 2), np.float32)
    seen = []

    class Watching(Joint):
        def loss(self, model, batch, x, contrast):
            seen.append(x)
            return super().loss(model, batch, x, contrast)

    backbone = make_model(compiled=False).backbone
    model = jem_tf.JEM(backbone, jem_tf.SGLD(1), objective=Watching(), input_noise=0.2)
    model.adapt(np.array([[-1.0, -5.0], [1.0, 5.0]], np.float32))
    model.compile("sgd", run_eagerly=True)
    model.fit(x, np.zeros(4000, int), batch_size=4000, verbose=0)
    np.testing.assert_allclose(
        seen[-1].numpy().std(0), [0.2, 1.0], rtol=0.05
    )  # 1.1 % standard error


def test_csv_logger_and_tensorboard_just_work(make_model, blobs, tmp_path):
    callbacks = [
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.TensorBoard(tmp_path / "board"),
    ]
    make_model().fit(*blobs, epochs=2, verbose=0, callbacks=callbacks, validation_data=blobs)
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert set(rows[0]) >= LOGS | {f"val_{name}" for name in LOGS}
    assert list((tmp_path / "board").rglob("events*"))


def test_validation_looks_at_the_whole_buffer(make_model, blobs):
    x, y = blobs
    model = make_model(buffer=jem_tf.ReplayBuffer(200))
    model.fit(x, y, batch_size=50, epochs=3, verbose=0)
    logs = model.evaluate(np.tile(x, (20, 1)), np.tile(y, 20), 50, verbose=0, return_dict=True)
    everything = model.energy(model.buffer.arrays()["chains"][0])
    error = everything.std() / np.sqrt(6000)  # draws without repetition vary less than that
    assert logs["energy_samples"] == pytest.approx(everything.mean(), abs=4 * error)


def test_train_on_batch_before_fit_says_what_is_missing(make_model, blobs):
    with pytest.raises(ValueError, match="buffer is empty"):
        make_model().train_on_batch(*blobs)


def test_evaluate_works_before_training(make_model, blobs):
    logs = make_model().evaluate(*blobs, verbose=0, return_dict=True)
    assert np.isfinite(logs["classification_loss"])
    assert logs["generative_loss"] == 0.0

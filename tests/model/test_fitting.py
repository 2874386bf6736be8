"""Before training: every form of data, and what is learned from it (errors: `test_refusals.py`)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf.model import fitting

LOGS = {"loss", "classification_loss", "generative_loss", "energy_data", "energy_samples"}


def batches(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(50)


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
    "float64": lambda x, y: {"x": x.astype("float64"), "y": y},
    "one_hot": lambda x, y: {"x": x, "y": keras.utils.to_categorical(y, 3)},
    "float labels": lambda x, y: {"x": x, "y": y.astype(np.float32)},
    "column": lambda x, y: {"x": x, "y": y[:, None].astype(np.int32)},
    "tf_data": lambda x, y: {"x": batches(x, y)},
    "generator": lambda x, y: {"x": generator(x, y), "steps_per_epoch": 6},
    "py_dataset": lambda x, y: {"x": Sequence(x, y)},
    "sample_weight": lambda x, y: {"x": x, "y": y, "sample_weight": np.ones(300)},
}


@pytest.fixture(scope="module")
def train_once_more(make_model, blobs):
    """A function that trains a model for an epoch, always from the same state."""
    keras.utils.set_random_seed(7)
    model = make_model(compiled=False)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(*blobs, batch_size=50, verbose=0)
    variables = [*model.variables, *model.optimizer.variables]
    variables += [*model.buffer.tf_variables, *model.progress.tf_variables]
    state = [(variable, variable.numpy()) for variable in variables]

    def train(x, **options):
        for variable, value in state:
            variable.assign(value)
        if isinstance(x, np.ndarray):
            options["batch_size"] = 50
        history = model.fit(x, **options, shuffle=False, verbose=0).history
        return model.get_weights(), history

    return train


@pytest.fixture(scope="module")
def arrays_result(train_once_more, blobs):
    """Weights and history after an epoch on arrays."""
    return train_once_more(blobs[0], y=blobs[1])


def assert_close(weights, expected):
    """Assert that weights differ by rounding only: steps for any batch size round differently."""
    for weight, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_the_same_update(form, train_once_more, arrays_result, blobs):
    weights, history = train_once_more(**FORMS[form](*blobs))
    assert_close(weights, arrays_result[0])
    for name, values in arrays_result[1].items():
        assert history[name] == pytest.approx(values, rel=1e-4), name
    assert set(history) >= LOGS


def test_class_weights_are_sample_weights(train_once_more, arrays_result, blobs):
    x, y = blobs
    by_class, _ = train_once_more(x, y=y, class_weight={0: 1.0, 1: 2.0, 2: 0.5})
    by_row, _ = train_once_more(x, y=y, sample_weight=np.array([1.0, 2.0, 0.5])[y])
    assert_close(by_class, by_row)
    assert np.abs(by_class[0] - arrays_result[0][0]).max() > 1e-4


def test_validation_split_holds_rows_out(train_once_more, blobs):
    x, y = blobs
    weights, history = train_once_more(x, y=y, validation_split=1 / 6)
    assert_close(weights, train_once_more(x[:250], y=y[:250])[0])
    assert set(history) >= {f"val_{name}" for name in LOGS}


def test_adapt_decides_on_the_range_and_fit_keeps_it(make_model, blobs):
    x, y = blobs
    model = make_model()
    model.compile("adam", run_eagerly=True)
    model.adapt(np.concatenate([x, x + 1000.0]))
    model.fit(x, y, batch_size=300, verbose=0)
    np.testing.assert_allclose(model.input_range.high, x.max(0) + 1000.0)
    model.adapt(x)
    np.testing.assert_allclose(model.input_range.high, x.max(0))


def test_fit_learns_the_range_of_a_data_set(make_model, blobs):
    x, y = blobs
    model = make_model()
    model.compile("adam", run_eagerly=True)
    model.fit(batches(x, y), steps_per_epoch=6, shuffle=False, verbose=0)
    np.testing.assert_allclose(model.input_range.low, x.min(0))
    np.testing.assert_allclose(model.input_range.high, x.max(0))


def test_fit_trains_on_every_batch_of_a_generator_in_order(make_model, blobs):
    """Although it reads the first batches before training."""
    x, y = blobs
    read, trained = [], []

    def stream():
        for begin in range(0, 300, 50):
            read.append(begin)
            yield x[begin : begin + 50], y[begin : begin + 50]

    class Recorder(jem_tf.objectives.CrossEntropy):
        def loss(self, model, batch, negatives):
            trained.append(batch.x.numpy())
            return super().loss(model, batch, negatives)

    model = make_model(objective=Recorder(), input_noise=0.0)
    model.compile("adam", run_eagerly=True)
    model.fit(stream(), steps_per_epoch=6, shuffle=False, verbose=0)
    assert read == [0, 50, 100, 150, 200, 250]
    np.testing.assert_array_equal(np.concatenate(trained), x)


def test_steps_without_a_batch_size_split_all_rows(make_model, blobs):
    model = make_model()
    model.compile("adam", run_eagerly=True)
    model.fit(*blobs, steps_per_epoch=2, verbose=0)
    assert model.progress.number("step") == 2 and len(model.stored_chains()) >= 150


def test_networks_that_rescale_get_no_warning_of_unscaled_images(recwarn):
    x = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 1)).astype(np.uint8)
    for first in ([], [keras.layers.Rescaling(1 / 255)], [keras.layers.Normalization()]):
        ends = [keras.layers.Flatten(), keras.layers.Dense(2)]
        jem_tf.JEM(keras.Sequential([keras.Input((4, 4, 1)), *first, *ends])).adapt(x)
    assert len([w for w in recwarn if "unscaled" in str(w.message)]) == 1


def test_a_density_below_that_of_noise_is_reported(make_model, blobs):
    x, _ = blobs
    model = make_model()
    model.adapt(x)
    logits = {"data": 0.0, "noise": 5.0}  # of inputs near a row of data, and of others

    def density(inputs):
        near = tf.reduce_min(tf.norm(inputs[:, None] - x[None], axis=-1), axis=1) < 0.1
        return tf.where(near, logits["data"], logits["noise"])[:, None] * tf.ones(3)

    model.logits = density
    assert "(AUROC 0." in fitting.unlearned_density(model, x)
    logits["data"] = 9.0
    assert fitting.unlearned_density(model, x) is None


def test_one_epoch_of_training_warns_that_the_density_is_not_learned(make_model):
    """Most rows are near 0, and few say how wide the range of noise is."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 0.2, (240, 16)), 2 * np.eye(16), -2 * np.eye(16)])
    model = make_model(16, optimizer=keras.optimizers.Adam(1e-4), activation="relu")
    with pytest.warns(UserWarning, match=r"density has not been learned yet.*\(AUROC 0\.[0-3]"):
        model.fit(x, np.arange(len(x)) % 3, batch_size=68, verbose=0)


def test_evaluate_works_before_training(make_model, blobs):
    logs = make_model().evaluate(*blobs, batch_size=100, verbose=0, return_dict=True)
    assert np.isfinite(logs["classification_loss"])
    assert logs["generative_loss"] == 0.0


def test_an_automatic_buffer_grows_with_the_batch(make_model, blobs):
    model = make_model()
    model.compile("adam", run_eagerly=True)
    model.fit(blobs[0][:8], blobs[1][:8], batch_size=8, verbose=0)
    assert len(model.stored_chains()) == 16
    model.fit(*blobs, batch_size=300, verbose=0)
    assert len(model.stored_chains()) >= 300


def test_steep_networks_begin_with_a_small_step(make_model, blobs):
    """A unit step would throw the chains of these networks far out of the range of the data."""
    x, y = blobs
    step_sizes = []
    for factor in (1.0, 1000.0):
        model = make_model(sampler=jem_tf.SGLD(3, temperature=1.0))
        model.compile("adam", run_eagerly=True)
        model.fit(x * factor, y, batch_size=300, verbose=0)
        step_sizes.append(model.progress.number("step_size"))
    gentle, steep = step_sizes
    assert steep < 0.1 * gentle


def test_chain_starts_are_fitted_to_all_of_sorted_data():
    """Rows are kept from all parts of the data, not only from its beginning."""
    x = np.repeat(np.arange(3.0, dtype=np.float32), 15_000)[:, None] + np.zeros((1, 2), np.float32)
    start = jem_tf.GaussianMixture()
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model = jem_tf.JEM(backbone, start=start)
    model.adapt(x, np.repeat(np.arange(3), 15_000))
    np.testing.assert_allclose(start["mean"].numpy()[:, 0], [0.0, 1.0, 2.0], atol=1e-5)
    np.testing.assert_allclose(start["share"], [1 / 3] * 3, atol=1e-3)

"""Wrong inputs get errors that name what was received, before any training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf


def network(*layers):
    return keras.Sequential([keras.Input((2,)), *layers])


class Probabilities(keras.Model):
    """A softmax where no layer shows it."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return keras.ops.softmax(self.dense(x))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 3)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (lambda: network(keras.layers.Dense(3, activation="softmax")), "ending in softmax"),
        (lambda: network(keras.layers.Dense(3), keras.layers.Softmax()), "softmax"),
        (
            lambda: network(keras.layers.Dense(3), keras.layers.Activation("softmax")),
            "ending in softmax",
        ),
        (lambda: network(keras.layers.Dense(3, activation="sigmoid")), "ending in sigmoid"),
        (lambda: network(keras.layers.Dense(1)), r"output shape \(None, 1\)"),
        (
            lambda: network(keras.layers.Dense(4), keras.layers.Reshape((2, 2))),
            r"output shape \(None, 2, 2\)",
        ),
    ],
)
def test_backbones_that_do_not_end_in_logits_are_refused(backbone, message):
    with pytest.raises(ValueError, match=message):
        jem_tf.JEM(backbone())


def test_a_backbone_must_be_a_model():
    with pytest.raises(TypeError, match="Dense"):
        jem_tf.JEM(keras.layers.Dense(3))


def test_a_hidden_softmax_is_found_when_data_comes(blobs):
    model = jem_tf.JEM(Probabilities())
    model.compile("adam")
    with pytest.raises(ValueError, match="rows that are probabilities"):
        model.fit(*blobs, verbose=0)


def test_a_backbone_is_built_from_the_data(blobs):
    backbone = keras.Sequential([keras.layers.Dense(8, "silu"), keras.layers.Dense(3)])
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2))
    model.compile("adam")
    model.fit(*blobs, verbose=0)
    assert model.num_classes == 3


def nan_at(x, row):
    x = x.copy()
    x[row, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (nan_at(x, 17), y), "nan in row 17"),
        (lambda x, y: (np.where(np.arange(300)[:, None] == 299, np.inf, x), y), "inf in row 299"),
        (lambda x, y: (x, y.astype(np.float32)), "dtype float32"),
        (lambda x, y: (x, np.where(np.arange(300) == 40, 3, y)), "3 in row 40"),
        (lambda x, y: (x, y - 2), "-2 in row 0"),
        (lambda x, y: (x, keras.utils.to_categorical(y, 5)), "3 columns"),
        (lambda x, y: (x[:0], y[:0]), "empty"),
        (lambda x, y: (x[:, 0], y), r"shape \(32,\)"),
        (lambda x, y: (x.astype(str), y), "numbers"),
        (lambda x, y: (x, None), "y=None"),
    ],
    ids=["nan", "inf", "float", "high", "low", "columns", "empty", "rank", "text", "none"],
)
def test_wrong_data_is_named(change, message, make_model, blobs):
    with pytest.raises(ValueError, match=message):
        make_model().fit(*change(*blobs), verbose=0)


def test_wrong_data_in_a_stream_is_named(make_model, blobs):
    x, y = blobs
    stream = tf.data.Dataset.from_tensor_slices((nan_at(x, 77), y)).batch(50)
    with pytest.raises(ValueError, match="nan in row 77"):
        make_model().fit(stream, verbose=0)
    with pytest.raises(ValueError, match="empty"):
        make_model().fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(50).take(0), verbose=0)
    with pytest.raises(ValueError, match="y=None"):
        make_model().fit(tf.data.Dataset.from_tensor_slices(x).batch(50), verbose=0)
    with pytest.raises(ValueError, match="infinite"):
        make_model().adapt(tf.data.Dataset.from_tensor_slices(x).batch(50).repeat())


def test_a_label_out_of_range_late_in_a_stream_stops_training(make_model, blobs):
    """`fit` looks at the first batches only; the graph checks the rest."""
    x, y = np.tile(blobs[0], (3, 1)), np.tile(blobs[1], 3)
    y[-1] = 7
    stream = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
    with pytest.raises(tf.errors.InvalidArgumentError, match="between 0 and 2"):
        make_model().fit(stream, verbose=0)


def test_unscaled_images_are_noticed():
    x = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 1))
    backbone = keras.Sequential(
        [keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    for dtype in (np.uint8, np.float32):
        model = jem_tf.JEM(backbone)
        with pytest.warns(UserWarning, match=r"range \[\d+, 25\d\]"):
            model.adapt(x.astype(dtype))
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(1))
    model.compile("adam")
    with pytest.warns(UserWarning, match="unscaled"):
        model.fit(x.astype(np.uint8), np.arange(20) % 2, verbose=0)


def test_scaled_images_are_not(recwarn):
    x = np.random.default_rng(0).uniform(-1, 1, (20, 4, 4, 1)).astype(np.float32)
    backbone = keras.Sequential(
        [keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    jem_tf.JEM(backbone).adapt(x)
    assert not [w for w in recwarn if "unscaled" in str(w.message)]


def test_a_loss_is_refused(make_model, blobs):
    model = make_model(compiled=False)
    model.compile("adam", loss="mse")
    with pytest.raises(ValueError, match="loss='mse'"):
        model.fit(*blobs, verbose=0)


def test_fit_before_compile_says_so(make_model, blobs):
    with pytest.raises(ValueError, match="compile"):
        make_model(compiled=False).fit(*blobs, verbose=0)


def test_capacity_below_the_batch_is_refused(make_model, blobs):
    model = make_model(buffer=jem_tf.ReplayBuffer(10))
    with pytest.raises(ValueError, match="capacity=10, batch size 32"):
        model.fit(*blobs, verbose=0)


def test_an_automatic_buffer_grows_with_the_batch(make_model, blobs):
    model = make_model()
    model.fit(blobs[0][:40], blobs[1][:40], batch_size=8, verbose=0)
    model.fit(*blobs, batch_size=128, verbose=0)
    assert model.buffer.arrays()["age"].shape[1] >= 128


@pytest.mark.parametrize("shape", [(5,), (5, 3), (2, 5, 2)])
@pytest.mark.parametrize("method", ["energy", "ood_score", "refine", "adapt"])
def test_rows_of_another_shape_are_refused(method, shape, make_model):
    with pytest.raises(ValueError, match="shape"):
        getattr(make_model(), method)(np.zeros(shape, np.float32))


def test_chains_that_are_no_numbers_start_anew(make_model, blobs):
    model = make_model(buffer=jem_tf.ReplayBuffer(60))
    model.fit(*blobs, batch_size=50, verbose=0)
    model.buffer.assign(chains=np.full((1, 60, 2), np.nan, np.float32))
    history = model.fit(*blobs, batch_size=50, epochs=5, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert np.isfinite(model.buffer.arrays()["chains"]).all()


def test_parts_of_another_kind_are_refused(make_model):
    for wrong in ({"sampler": jem_tf.SGLD}, {"buffer": 1000}, {"start": "uniform"}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            make_model(**wrong)


def test_a_later_fit_with_a_larger_batch_is_refused(make_model, blobs):
    model = make_model(buffer=jem_tf.ReplayBuffer(40))
    model.fit(*blobs, verbose=0)
    with pytest.raises(ValueError, match="capacity=40, batch size 100"):
        model.fit(*blobs, batch_size=100, verbose=0)


def test_negative_settings_are_refused(make_model):
    with pytest.raises(ValueError, match="input_noise=-1"):
        make_model(input_noise=-1)
    for name in ("weight", "lag", "energy_penalty"):
        with pytest.raises(ValueError, match=f"{name}=-1"):
            jem_tf.objectives.Joint(**{name: -1})


def test_a_generator_loses_nothing_to_being_looked_at(make_model, blobs):
    """Training sees every batch from the first, in order."""
    x, y = blobs
    taken = []

    def stream():
        for begin in range(0, 300, 50):
            taken.append(begin)
            yield x[begin : begin + 50], y[begin : begin + 50]

    model = make_model()
    model.fit(stream(), steps_per_epoch=6, verbose=0)
    assert taken == [0, 50, 100, 150, 200, 250]
    assert model.progress.arrays()["step"] == 6


def test_unnormalised_features_begin_with_a_small_step(make_model, blobs):
    """A unit step would throw the chains of steep networks far out of the data's range."""
    x, y = blobs
    gentle, steep = make_model(), make_model()
    gentle.fit(x, y, verbose=0)
    steep.fit(x * 1000.0, y, verbose=0)
    assert steep.progress.arrays()["step_size"] < 0.1 * gentle.progress.arrays()["step_size"]


def test_chain_starts_see_all_of_sorted_data():
    """Rows are kept from all over the data, not from its beginning."""
    x = np.repeat(np.arange(3.0, dtype=np.float32), 15_000)[:, None] + np.zeros((1, 2), np.float32)
    start = jem_tf.GaussianMixture()
    model = jem_tf.JEM(network(keras.layers.Dense(3)), start=start)
    model.adapt(x, np.repeat(np.arange(3), 15_000))
    np.testing.assert_allclose(start["mean"].numpy()[:, 0], [0.0, 1.0, 2.0], atol=1e-5)
    np.testing.assert_allclose(start["share"], [1 / 3] * 3, atol=1e-3)

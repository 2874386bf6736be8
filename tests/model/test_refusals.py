"""What `fit` refuses, and that it names the value: data, labels, weights, buffers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf.data import inputs


def batches(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(50)


def nan_at(x, row):
    x = x.copy()
    x[row, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (nan_at(x, 17), y), "nan in row 17"),
        (lambda x, y: (np.where(np.arange(300)[:, None] == 299, np.inf, x), y), "inf in row 299"),
        (lambda x, y: (x, y + 0.5), "integers.*0.5 in row 0"),
        (lambda x, y: (x, np.ones((300, 3))), "sum to 1.*row 0"),
        (lambda x, y: (x, np.where(np.arange(300) == 40, 3, y)), "3 in row 40"),
        (lambda x, y: (x, y - 2), "-2 in row 0"),
        (lambda x, y: (x, keras.utils.to_categorical(y, 5)), "3 columns"),
        (lambda x, y: (x[:0], y[:0]), "empty"),
        (lambda x, y: (x[:, 0], y), r"shape \(32,\)"),
        (lambda x, y: (x.astype(str), y), "numbers"),
        (lambda x, y: (x, None), "y=None"),
    ],
    ids=[
        "nan",
        "inf",
        "fraction",
        "multi-label",
        "high",
        "low",
        "columns",
        "empty",
        "rank",
        "text",
        "none",
    ],
)
def test_errors_quote_wrong_data(change, message, make_model, blobs):
    with pytest.raises(ValueError, match=message):
        make_model().fit(*change(*blobs), verbose=0)


def test_errors_quote_wrong_data_in_a_stream(make_model, blobs):
    x, y = blobs
    model = make_model()
    with pytest.raises(ValueError, match="nan in row 77"):
        model.fit(batches(nan_at(x, 77), y), verbose=0)
    with pytest.raises(ValueError, match="empty"):
        model.fit(batches(x, y).take(0), verbose=0)
    rows = tf.data.Dataset.from_tensor_slices(x).batch(50)
    with pytest.raises(ValueError, match="y=None"):
        model.fit(rows, verbose=0)
    with pytest.raises(ValueError, match="infinite"):
        model.adapt(rows.repeat())


def test_a_wrong_label_late_in_a_stream_stops_training(make_model, blobs):
    """`fit` reads the first batches only. The graph checks the others."""
    x, y = np.tile(blobs[0], (3, 1)), np.tile(blobs[1], 3)
    y[-1] = 7
    stream = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
    with pytest.raises(ValueError, match=r"between 0 and 2.*Received: 7$"):
        make_model().fit(stream, shuffle=False, verbose=0)


@pytest.mark.parametrize("form", [lambda x, y: (x, y), batches], ids=["arrays", "tf.data"])
def test_wrong_validation_labels_raise_before_training(form, make_model, blobs):
    x, y = blobs
    model = make_model()
    with pytest.raises(ValueError, match=r"validation_data.*between 0 and 2.*5 in row 0$"):
        model.fit(x, y, validation_data=form(x, y + 5), verbose=0)
    assert model.progress.number("step") == 0


def test_weights_of_zero_raise(make_model, blobs):
    with pytest.raises(ValueError, match="All 300 sample weights are 0"):
        make_model().fit(*blobs, sample_weight=np.zeros(300), verbose=0)
    stream = tf.data.Dataset.from_tensor_slices((*blobs, np.zeros(300))).batch(50)
    with pytest.raises(ValueError, match="All 300 sample weights are 0"):
        make_model().fit(stream, verbose=0)


def test_single_rows_of_a_data_set_raise(make_model, blobs):
    with pytest.raises(ValueError, match=r"`\.batch\(\)` it"):
        make_model().fit(tf.data.Dataset.from_tensor_slices(blobs), verbose=0)
    x, y = blobs
    one_hot = np.eye(3, dtype=np.float32)[y]
    for rows in (x, x.reshape(-1, 2, 1), x.astype(int).reshape(-1, 2)):
        with pytest.raises(ValueError, match=r"`\.batch\(\)` it"):
            inputs.check_batched(tf.data.Dataset.from_tensor_slices((rows, one_hot)))
    for rows in (x, x.astype(str)[:, 0]):  # text has one axis
        for drop in (True, False):
            data = tf.data.Dataset.from_tensor_slices((rows, one_hot)).batch(3, drop)
            inputs.check_batched(data)


def test_a_loss_in_compile_raises(make_model, blobs):
    model = make_model(compiled=False)
    model.compile("adam", loss="mse")
    with pytest.raises(ValueError, match="loss='mse'"):
        model.fit(*blobs, verbose=0)


def test_fit_before_compile_raises(make_model, blobs):
    with pytest.raises(ValueError, match="compile"):
        make_model(compiled=False).fit(*blobs, verbose=0)


def test_train_on_batch_before_fit_raises(make_model, blobs):
    with pytest.raises(ValueError, match="buffer is empty"):
        make_model().train_on_batch(*blobs)


def test_a_capacity_below_the_batch_size_raises(make_model, blobs):
    model = make_model(buffer=jem_tf.ReplayBuffer(10))
    with pytest.raises(ValueError, match="capacity=10, batch size 32"):
        model.fit(*blobs, verbose=0)


def test_a_later_fit_with_a_batch_above_the_capacity_raises(make_model, blobs):
    model = make_model(buffer=jem_tf.ReplayBuffer(40))
    model.compile("adam", run_eagerly=True)
    model.fit(blobs[0][:30], blobs[1][:30], batch_size=30, verbose=0)
    with pytest.raises(ValueError, match="capacity=40, batch size 100"):
        model.fit(*blobs, batch_size=100, verbose=0)

"""A training that is stopped and goes on is the training that was never stopped."""

import os
import resource
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf._tf import checkpoints
from jem_tf.callbacks import Interrupted, Resume


class StopAt(keras.callbacks.Callback):
    """Sends a signal to this process in a step, or dies there as a power cut would."""

    def __init__(self, step, number=None):
        super().__init__()
        self.left, self.number = step, number

    def on_train_batch_begin(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            if self.number is None:
                raise PowerCut
            os.kill(os.getpid(), self.number)


class PowerCut(BaseException):
    pass


@pytest.fixture
def ordinary_ctrl_c():
    """Python's own, also where this process was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def batches(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(50)


def plain(features=2, classes=3):
    layers = keras.layers.Dense(8), keras.layers.Dropout(0.2), keras.layers.Dense(classes)
    model = keras.Sequential([keras.Input((features,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(True)
    model.compile(keras.optimizers.Adam(1e-2, use_ema=True), loss, metrics=["accuracy"])
    return model


def average(model_maker):
    rate = keras.optimizers.schedules.CosineDecay(1e-2, 18)
    return model_maker(optimizer=keras.optimizers.Adam(rate, use_ema=True, ema_momentum=0.9))


MODELS = {"plain": lambda make: plain(), "jem": average}


def same(one, other):
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "kind, stop, number",
    [
        ("jem", 1, None),
        ("jem", 7, None),
        pytest.param("jem", 17, None, marks=pytest.mark.slow),
        pytest.param("jem", 6, signal.SIGTERM, marks=pytest.mark.slow),
        ("jem", 9, signal.SIGTERM),
        pytest.param("jem", 18, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("plain", 9, None, marks=pytest.mark.slow),
        ("plain", 6, signal.SIGTERM),
    ],
)
def test_the_weights_are_the_same_bit_for_bit(kind, stop, number, make_model, blobs, tmp_path):
    """Three epochs of six steps, stopped in step `stop`; checkpoints every fourth step."""
    data = batches(*blobs)

    def train(*callbacks):
        keras.utils.set_random_seed(3)
        model = MODELS[kind](make_model)
        history = model.fit(data, validation_data=data, epochs=3, verbose=0, callbacks=callbacks)
        return model, history.history

    straight, expected = train()
    with pytest.raises(PowerCut if number is None else Interrupted):
        train(StopAt(stop, number), Resume(tmp_path, steps=4))
    resume = Resume(tmp_path, steps=4)
    done = stop if number else (stop - 1) // 4 * 4
    assert resume.epoch == max(0, done - 1) // 6
    resumed, history = train(resume)
    same(straight, resumed)
    assert history == expected


@pytest.mark.slow
def test_epochs_of_a_data_set_depend_on_their_number_only():
    digits = jem_tf.data.load("digits")
    for augment in (False, True):
        whole = list(digits.epochs(500, 3, augment=augment).take(9).as_numpy_iterator())
        later = list(digits.epochs(500, 3, first=2, augment=augment).take(3).as_numpy_iterator())
        for (x, y), (again, labels) in zip(whole[6:], later):
            np.testing.assert_array_equal(x, again)
            np.testing.assert_array_equal(y, labels)
    orders = [np.concatenate([y for _, y in whole[i : i + 3]]) for i in (0, 3, 6)]
    assert all(len(order) == len(digits.train) for order in orders)
    assert not np.array_equal(orders[0], orders[1])
    np.testing.assert_array_equal(*(np.bincount(order) for order in orders[:2]))


def test_a_second_signal_stops_at_once(ordinary_ctrl_c, make_model, blobs, tmp_path):
    class Twice(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stop:
        make_model().fit(*blobs, verbose=0, callbacks=[Twice(), Resume(tmp_path)])
    assert not isinstance(stop.value, Interrupted)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_after_a_failed_fit_is_an_ordinary_one(ordinary_ctrl_c, make_model, blobs, tmp_path):
    with pytest.raises(PowerCut):
        make_model().fit(*blobs, verbose=0, callbacks=[StopAt(2), Resume(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def saved(make_model, blobs, tmp_path):
    """Two checkpoints of a training in progress, after steps 4 and 8."""
    with pytest.raises(PowerCut):
        callbacks = [StopAt(9), Resume(tmp_path, steps=4)]
        make_model().fit(batches(*blobs), epochs=3, verbose=0, callbacks=callbacks)
    return tmp_path


@pytest.mark.parametrize("name", [checkpoints.MODEL, checkpoints.STATE])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "empty"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_used(name, damage, saved):
    path = saved / "000002" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    kept = {"truncated": content[: len(content) // 2], "flipped": content, "empty": b""}
    path.unlink()
    if damage in kept:
        path.write_bytes(kept[damage])
    with pytest.warns(UserWarning, match="000002.*damaged"):
        resume = Resume(saved)
    assert (resume.epoch, resume._state["batch"]) == (0, 4)


def test_half_a_checkpoint_is_none_and_all_damaged_begins_anew(saved, make_model, blobs):
    (saved / "000002").rename(saved / ".000003.part")
    assert Resume(saved)._state["batch"] == 4
    (saved / "000001" / checkpoints.STATE).write_text("garbage")
    with pytest.warns(UserWarning, match="damaged"):
        resume = Resume(saved)
    assert resume.epoch == 0
    make_model().fit(batches(*blobs), epochs=2, verbose=0, callbacks=[resume])


def test_two_checkpoints_are_kept(make_model, blobs, tmp_path):
    make_model().fit(batches(*blobs), verbose=0, callbacks=[Resume(tmp_path, steps=1)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000006", "000007"]


def test_a_full_disk_costs_no_training(make_model, blobs, saved):
    before = {p: p.read_bytes() for p in saved.rglob("*") if p.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        with pytest.warns(UserWarning, match="No checkpoint could be written"):
            model = make_model()
            callbacks = [Resume(saved, steps=4)]
            model.fit(batches(*blobs), epochs=3, verbose=0, callbacks=callbacks)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert model.progress.arrays()["step"] == 18
    assert {p: p.read_bytes() for p in saved.rglob("*") if p.is_file()} == before


def test_a_checkpoint_of_another_model_is_refused(make_model, blobs, saved):
    other = jem_tf.JEM(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]))
    other.compile("adam")
    with pytest.raises(ValueError, match="another model"):
        other.fit(*blobs, verbose=0, callbacks=[Resume(saved)])


@pytest.mark.slow
def test_on_more_replicas_training_goes_on_but_says_it_is_not_the_same(
    mirrored, saved, make_model, blobs
):
    with mirrored.scope():
        model = make_model()
    with pytest.warns(UserWarning, match="1 replicas, there are 2"):
        model.fit(batches(*blobs), epochs=3, verbose=0, callbacks=[Resume(saved)])
    assert model.progress.arrays()["step"] == 18
    assert len(model.buffer.arrays()["chains"]) == 2


@pytest.mark.slow
def test_steps_in_one_execution(make_model, blobs, tmp_path):
    def train(*callbacks):
        keras.utils.set_random_seed(3)
        model = make_model()
        model.compile(keras.optimizers.Adam(1e-2), steps_per_execution=3)
        model.fit(batches(*blobs), epochs=3, verbose=0, callbacks=callbacks)
        return model

    with pytest.raises(PowerCut):
        train(StopAt(4), Resume(tmp_path, steps=1))
    same(train(), train(Resume(tmp_path)))


@pytest.mark.parametrize("options", [{"seconds": 0}, {"steps": 0}, {"keep": 0}])
def test_wrong_settings_are_named(options, tmp_path):
    with pytest.raises(ValueError, match=f"{next(iter(options))}=0"):
        Resume(tmp_path, **options)

"""`Resume`: a run that was interrupted ends with the weights of one that was not, bit for bit."""

import os
import resource
import shutil
import signal
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from helpers import assert_same_weights

import jem_tf
from jem_tf._tf import checkpoints
from jem_tf.callbacks import Resume, TrainingInterrupted


class PowerCut(BaseException):
    """Ends a training without calling its callbacks."""


class StopAt(keras.callbacks.Callback):
    """Sends a signal to this process in a step, or raises `PowerCut` there."""

    def __init__(self, step, number=None):
        super().__init__()
        self.steps_left, self.number = step, number

    def on_train_batch_begin(self, batch, logs=None):
        self.steps_left -= 1
        if self.steps_left == 0:
            if self.number is None:
                raise PowerCut
            os.kill(os.getpid(), self.number)


@pytest.fixture
def default_ctrl_c():
    """Python's handler of SIGINT, also where this process was started with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def batches(blobs):
    return tf.data.Dataset.from_tensor_slices(blobs).batch(50)


def make_plain():
    layers = keras.layers.Dense(8), keras.layers.Dropout(0.2), keras.layers.Dense(3)
    model = keras.Sequential([keras.Input((2,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(True)
    model.compile(keras.optimizers.Adam(1e-2, use_ema=True), loss, metrics=["accuracy"])
    return model


@pytest.fixture(scope="module")
def train(make_model, batches):
    """A function that trains a model of a kind for three epochs of six steps."""

    def train(kind, *callbacks):
        keras.utils.set_random_seed(3)
        if kind == "plain":
            model = make_plain()
        else:
            rate = keras.optimizers.schedules.CosineDecay(1e-2, 18)
            adam = keras.optimizers.Adam(rate, use_ema=True, ema_momentum=0.9)
            model = make_model(optimizer=adam)
        options = {"validation_data": batches, "epochs": 3, "shuffle": False, "verbose": 0}
        history = model.fit(batches, **options, callbacks=callbacks)
        return model, history.history

    return train


@pytest.fixture(scope="module")
def uninterrupted(train):
    """The results of both kinds of model without interruption."""
    return {kind: train(kind) for kind in ("jem", "plain")}


@pytest.mark.parametrize(
    ("kind", "stop", "number"),
    [
        pytest.param("jem", 1, None, marks=pytest.mark.slow),
        ("jem", 7, None),
        pytest.param("jem", 17, None, marks=pytest.mark.slow),
        pytest.param("jem", 6, signal.SIGTERM, marks=pytest.mark.slow),
        ("jem", 9, signal.SIGTERM),
        pytest.param("jem", 18, signal.SIGINT, marks=pytest.mark.slow),
        ("plain", 9, None),
        ("plain", 6, signal.SIGTERM),
    ],
)
def test_a_resumed_run_is_the_same_bit_for_bit(kind, stop, number, train, uninterrupted, tmp_path):
    """Interrupted in step `stop`, with checkpoints every fourth step."""
    expected, expected_history = uninterrupted[kind]
    with pytest.raises(PowerCut if number is None else TrainingInterrupted):
        train(kind, StopAt(stop, number), Resume(tmp_path, steps=4))
    resume = Resume(tmp_path, steps=4)
    done = stop if number else (stop - 1) // 4 * 4
    assert resume.epoch == max(0, done - 1) // 6
    resumed, history = train(kind, resume)
    assert_same_weights(resumed, expected)
    assert history == expected_history


def test_a_second_signal_stops_at_once(default_ctrl_c, make_model, batches, tmp_path):
    class SendTwice(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stop:
        options = {"shuffle": False, "verbose": 0}
        make_model().fit(batches, **options, callbacks=[SendTwice(), Resume(tmp_path)])
    assert not isinstance(stop.value, TrainingInterrupted)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture(scope="module")
def interrupted_run(make_model, batches, tmp_path_factory):
    """Two checkpoints of a run that a power cut has ended, of steps 4 and 8."""
    directory = tmp_path_factory.mktemp("interrupted")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(PowerCut):
        callbacks = [StopAt(9), Resume(directory, steps=4)]
        make_model().fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
    yield directory
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def saved(interrupted_run, tmp_path):
    """A copy of these checkpoints, which a test may change."""
    return Path(shutil.copytree(interrupted_run, tmp_path / "checkpoints"))


def test_ctrl_c_after_a_failed_fit_has_its_default_effect(default_ctrl_c, batches, tmp_path):
    """`fit` calls no callback when it raises, so the handler of `Resume` is still there."""
    resume = Resume(tmp_path)
    with pytest.raises(PowerCut):
        make_plain().fit(batches, shuffle=False, verbose=0, callbacks=[StopAt(1), resume])
    assert signal.getsignal(signal.SIGINT) == resume._on_signal
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_corrupt_checkpoint_is_skipped(saved):
    (saved / "000002" / checkpoints.MODEL).write_bytes(b"")
    with pytest.warns(UserWarning, match="000002.*corrupt"):
        resume = Resume(saved)
    assert (resume.epoch, resume._state["batch"]) == (0, 4)


def test_training_starts_again_if_all_checkpoints_are_corrupt(saved, batches):
    for checkpoint in saved.iterdir():
        (checkpoint / checkpoints.STATE).write_text("garbage")
    with pytest.warns(UserWarning, match="corrupt"):
        resume = Resume(saved, steps=100)
    assert resume.epoch == 0
    history = make_plain().fit(batches, shuffle=False, verbose=0, callbacks=[resume])
    assert history.epoch == [0]
    assert Resume(saved).epoch == 1  # the end of the new run is saved


def test_two_checkpoints_are_kept(batches, tmp_path):
    make_plain().fit(batches, shuffle=False, verbose=0, callbacks=[Resume(tmp_path, steps=1)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000006", "000007"]


def test_a_full_disk_does_not_stop_training(make_model, batches, saved):
    before = {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        with pytest.warns(UserWarning, match="No checkpoint could be written"):
            model = make_model()
            callbacks = [Resume(saved, steps=4)]
            model.fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert model.progress.number("step") == 18
    assert {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()} == before


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # Keras, as it fails
def test_a_checkpoint_of_another_model_raises(batches, saved):
    other = jem_tf.JEM(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]))
    other.compile("adam")
    with pytest.raises(ValueError, match="another model"):
        other.fit(batches, shuffle=False, verbose=0, callbacks=[Resume(saved)])


@pytest.mark.slow
def test_a_run_resumed_on_more_replicas_continues_with_a_warning(
    mirrored, saved, make_model, batches
):
    with mirrored.scope():
        model = make_model()
    with pytest.warns(UserWarning, match="1 replicas, and there are 2 now"):
        model.fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=[Resume(saved)])
    assert model.progress.number("step") == 18
    assert len(model.buffer.arrays()["chains"]) == 2


@pytest.mark.slow
def test_runs_with_several_steps_in_an_execution_resume(make_model, batches, tmp_path):
    def train(*callbacks):
        keras.utils.set_random_seed(3)
        model = make_model()
        model.compile(keras.optimizers.Adam(1e-2), steps_per_execution=3)
        model.fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
        return model

    with pytest.raises(PowerCut):
        train(StopAt(4), Resume(tmp_path, steps=1))
    assert_same_weights(train(Resume(tmp_path)), train())


@pytest.mark.parametrize("options", [{"seconds": 0}, {"steps": 0}, {"keep": 0}])
def test_errors_quote_wrong_settings(options, tmp_path):
    with pytest.raises(ValueError, match=f"{next(iter(options))}=0"):
        Resume(tmp_path, **options)

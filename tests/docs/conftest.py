"""What makes the examples of the documentation short enough for a test."""

from types import SimpleNamespace

import keras
import pytest
import sklearn.datasets
import tensorflow as tf

import jem_tf
from jem_tf.annealing import LogZ
from jem_tf.composition import Composition, constants
from jem_tf.data import inputs
from jem_tf.evaluation import BUDGETS, Budget

TINY_BUDGET = Budget(
    rows=30,
    attack_rows=4,
    attack_steps=2,
    refine_steps=(),
    distal_steps=2,
    samples_per_class=1,
    sample_steps=2,
    animation_frames=1,
    classifier_rows=1,
)


@pytest.fixture
def short(monkeypatch, tmp_path):
    """Training of one step, samples of two steps, 600 digits, a tiny evaluation, no tracing."""
    monkeypatch.chdir(tmp_path)
    fit = keras.Model.fit
    digits = sklearn.datasets.load_digits()
    few_digits = SimpleNamespace(images=digits.images[:600], target=digits.target[:600])

    def short_fit(self, x=None, y=None, batch_size=None, epochs=1, steps_per_epoch=None, **options):
        batch_size = batch_size or (None if inputs.is_stream(x) else 32)
        return fit(self, x, y, batch_size, epochs=1, steps_per_epoch=1, **options)

    def short_sample(sample):
        return lambda self, *args, **options: sample(self, *args, **{**options, "steps": 2})

    monkeypatch.setattr(keras.Model, "fit", short_fit)
    for kind in (jem_tf.JEM, Composition):
        monkeypatch.setattr(kind, "sample", short_sample(kind.sample))
    monkeypatch.setattr(constants, "estimate", lambda *_: LogZ(0.0, 0.0, 1.0, 1.0))
    monkeypatch.setattr(jem_tf, "side_by_side", lambda: None)  # it would change other tests
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda: few_digits)
    monkeypatch.setitem(BUDGETS, "quick", TINY_BUDGET)
    tf.config.run_functions_eagerly(True)  # a few steps take less time than tracing
    yield
    tf.config.run_functions_eagerly(False)

"""Trainings of digits that are lost without the guard, and nearly as good as healthy with it."""

import dataclasses
import json

import keras
import pytest

from jem_tf import data
from jem_tf.callbacks import DivergenceGuard
from jem_tf.training import recipes

pytestmark = pytest.mark.slow

# The paper's step size and loss: nothing but the guard watches over the chains.
FIXED = dataclasses.replace(recipes.get("digits"), step_size=1.0, lag=1e9)
STEPS = 21


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def train(recipe, digits, guard=None, classifier_first=False):
    """The model after `recipe`, and its accuracy on test data."""
    keras.utils.set_random_seed(0)
    model = recipe.model(digits, 0)
    rows = digits.epochs(recipe.batch_size, 0)
    options = {"steps_per_epoch": STEPS, "shuffle": False, "verbose": 0}
    if classifier_first:
        plain = keras.losses.SparseCategoricalCrossentropy(True)
        model.backbone.compile(keras.optimizers.Adam(1e-3), plain)
        model.backbone.fit(rows, epochs=40, **options)
    model.compile(recipe.optimizer(STEPS))
    model.fit(rows, epochs=recipe.epochs, callbacks=[guard] if guard else [], **options)
    x, y = digits.arrays("test")
    return model, (model.predict(x, verbose=0).argmax(1) == y).mean()


@pytest.fixture(scope="module")
def healthy(digits):
    return train(FIXED, digits)[1]


def ill(model):
    """What the guard would say of the end."""
    vitals = model.vitals()
    return vitals["extent"] > 3 or vitals["trusted"] < 0.5 or not -100 < vitals["gap"] < 50


TROUBLES = {
    "rate": (dataclasses.replace(FIXED, learning_rate=30e-3, noise=0.0), False),
    "classifier": (dataclasses.replace(FIXED, step_size=10.0), True),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_guard_brings_a_lost_training_home(trouble, digits, healthy, tmp_path):
    recipe, classifier_first = TROUBLES[trouble]
    lost, without = train(recipe, digits, classifier_first=classifier_first)
    log = tmp_path / "events.jsonl"
    guard = DivergenceGuard(log=log)
    saved, accuracy = train(recipe, digits, guard, classifier_first)
    print(f"\n{trouble}: healthy {healthy:.3f}, without {without:.3f}, with {accuracy:.3f}")
    print(f"vitals without {lost.vitals()}\nwith {saved.vitals()}")
    assert ill(lost) and not ill(saved)
    assert accuracy > healthy - 0.02
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert 1 <= len([e for e in events if e["event"] == "divergence"]) < guard.attempts
    for event in events:
        print(event["step"], event["message"])

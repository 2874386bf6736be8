"""Trainings of digits that diverge without the guard, and end nearly as well as others with it."""

import dataclasses
import json

import keras
import pytest

from jem_tf import data
from jem_tf.callbacks import DivergenceGuard
from jem_tf.training import recipes

pytestmark = pytest.mark.slow

# The paper's step size and loss: only the guard reacts to the state of the chains.
FIXED = dataclasses.replace(
    recipes.get("digits"),
    step_size=1.0,
    noise=0.02,
    temperature=0.1,
    generative_weight=1.0,
    lag=1e9,
)
STEPS = 21


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def train(recipe, digits, guard=None, classifier_first=False):
    """Train by `recipe`; return the model and its accuracy on test data."""
    keras.utils.set_random_seed(0)
    model = recipe.model(digits, 0)
    rows = digits.epochs(recipe.batch_size, 0)
    options = {"steps_per_epoch": STEPS, "shuffle": False, "verbose": 0}
    if classifier_first:
        loss = keras.losses.SparseCategoricalCrossentropy(True)
        model.backbone.compile(keras.optimizers.Adam(1e-3), loss)
        model.backbone.fit(rows, epochs=40, **options)
    model.compile(recipe.optimizer(STEPS))
    model.fit(rows, epochs=recipe.epochs, callbacks=[guard] if guard else [], **options)
    x, y = digits.arrays("test")
    return model, (model.predict(x, verbose=0).argmax(1) == y).mean()


@pytest.fixture(scope="module")
def healthy_accuracy(digits):
    return train(FIXED, digits)[1]


def has_diverged(model):
    """Whether the guard would roll back the end of the training."""
    vitals = model.health.vitals()
    above, below = min(vitals["gap"], vitals["relative_gap"]), vitals["relative_gap"]
    return vitals["extent"] > 3 or vitals["trusted"] < 0.5 or above > 5 or below < -20


RECIPES = {
    "rate": (dataclasses.replace(FIXED, learning_rate=30e-3, noise=0.0), False),
    "classifier": (dataclasses.replace(FIXED, step_size=10.0), True),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_guard_rescues_a_diverging_run(name, digits, healthy_accuracy, tmp_path):
    recipe, classifier_first = RECIPES[name]
    diverged, unguarded = train(recipe, digits, classifier_first=classifier_first)
    log = tmp_path / "events.jsonl"
    guard = DivergenceGuard(log=log)
    rescued, guarded = train(recipe, digits, guard, classifier_first)
    print(f"\n{name}: healthy {healthy_accuracy:.3f}, without {unguarded:.3f}, with {guarded:.3f}")
    print(f"vitals without {diverged.health.vitals()}\nwith {rescued.health.vitals()}")
    assert has_diverged(diverged) and not has_diverged(rescued)
    assert guarded > healthy_accuracy - 0.02
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert 1 <= len([e for e in events if e["event"] == "divergence"]) < guard.attempts
    for event in events:
        print(event["step"], event["message"])


def test_a_self_tuning_step_size_needs_no_guard_where_a_fixed_one_diverges(digits):
    """From a trained classifier, whose log density is steep: see "classifier" above."""
    model, accuracy = train(recipes.get("digits"), digits, classifier_first=True)
    print(f"\nfrom a classifier: {accuracy:.3f}, {model.health.vitals()}")
    assert not has_diverged(model)
    assert model.health.vitals()["trusted"] > 0.8 and accuracy > 0.96

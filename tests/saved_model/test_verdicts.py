"""The verdict of an export is right for every objective: it passes data, and flags outliers."""

import dataclasses

import pytest
import tensorflow as tf

from jem_tf import data, export
from jem_tf.data import ood_sets
from jem_tf.objectives import OBJECTIVES
from jem_tf.training import RunSettings, recipes, train


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_exports_flag_outliers_and_few_digits(objective, tmp_path):
    digits = data.load("digits")
    recipe = dataclasses.replace(recipes.get("digits"), epochs=30)
    model = train(digits, RunSettings(recipe, objective), tmp_path / "run", verbose=False)
    network = model.backbone if objective == "cross_entropy" else model  # a plain Keras classifier
    path = export(
        network,
        tmp_path / "export",
        calibrate=digits.arrays("validation"),
        reference=digits.arrays("train"),
        warmup_batches=(1,),
        sample_steps=2,
    )
    classify = tf.saved_model.load(str(path)).signatures["serving_default"]
    flagged = lambda x: classify(inputs=x)["is_ood"].numpy().mean()  # noqa: E731
    assert flagged(digits.arrays("test")[0]) <= 0.07
    for name in ("noise", "patches", "constant"):
        assert flagged(ood_sets.load(name, digits, 300)) >= 0.95, name

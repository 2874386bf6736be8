"""Recipes: learning rates against their formulas, and the models and settings they make."""

import dataclasses

import numpy as np
import pytest

import jem_tf
from jem_tf import data
from jem_tf._tf.muon import Muon
from jem_tf._tf.private import learning_rate
from jem_tf.objectives import HDGE, IGEBM, Factored
from jem_tf.training import recipe_files, recipes


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def rates(recipe, steps_per_epoch, steps):
    schedule = learning_rate(recipe.optimizer(steps_per_epoch))
    return [float(schedule(step)) for step in steps]


@pytest.mark.parametrize("warmup", [None, 100])
def test_a_cosine_rate_decays_to_zero_with_or_without_warmup(warmup):
    recipe = recipes.Recipe("", "mlp", epochs=2, learning_rate=1e-3, warmup=warmup)
    begin = warmup or 0
    steps = [begin, begin + (1000 - begin) // 2, 1000]
    assert rates(recipe, 500, steps) == pytest.approx([1e-3, 5e-4, 0.0], abs=1e-9)
    if warmup:
        assert rates(recipe, 500, (0, 50)) == pytest.approx([0.0, 5e-4])


def test_few_rows_have_a_short_warmup_and_ramp():
    """Of 24 epochs of 5 steps, 30 are a quarter. Otherwise the rate would end far below its peak,
    and the density would hardly count."""
    recipe = dataclasses.replace(recipes.get("cifar10-small"), epochs=24)
    limited = recipe.limited(5)
    assert (limited.warmup, limited.ramp) == (30, 30)
    assert rates(limited, 5, (30, 120)) == pytest.approx([recipe.learning_rate, 0.0], abs=1e-9)
    assert recipe.limited(704) == recipe
    assert recipes.get("digits").limited(1).warmup == 0  # none


def test_the_baseline_has_a_rate_of_its_own_and_the_same_noise(digits):
    recipe = recipes.Recipe("", "mlp", learning_rate=1e-3, baseline_rate=3e-3, input_noise=0.07)
    for objective, rate in (("joint", 1e-3), ("hdge", 1e-3), ("cross_entropy", 3e-3)):
        schedule = learning_rate(recipe.optimizer(10, objective))
        assert float(schedule(0)) == pytest.approx(rate)
        assert recipe.model(digits, objective=objective).input_noise == 0.07
    same = dataclasses.replace(recipe, baseline_rate=None).optimizer(10, "cross_entropy")
    assert float(learning_rate(same)(0)) == pytest.approx(1e-3)


def test_the_rate_of_the_paper_rises_for_1000_steps_and_drops_three_times():
    steps = (0, 500, 1000, 782 * 60, 782 * 60 + 1, 782 * 120 + 1, 782 * 180 + 1)
    expected = [0.0, 5e-5, 1e-4, 1e-4, 3e-5, 9e-6, 2.7e-6]
    assert rates(recipes.get("cifar10"), 782, steps) == pytest.approx(expected)


def test_an_optimizer_clips_and_averages():
    recipe = recipes.Recipe("", "mlp", clip_norm=0.5, ema=0.9)
    optimizer = recipe.optimizer(10)
    assert (optimizer.clipnorm, optimizer.use_ema, optimizer.ema_momentum) == (0.5, True, 0.9)
    assert not dataclasses.replace(recipe, ema=None).optimizer(10).use_ema


def test_options_of_another_objective_say_how_to_choose_it():
    with pytest.raises(ValueError, match=r"'label_smoothing'.* choose it with --objective"):
        recipes.get("cifar10-classifier").objective("joint")


def test_muon_has_the_settings_of_adam():
    recipe = recipes.Recipe("", "mlp", learning_rate=2e-3, weight_decay=0.1, muon=True, ema=0.9)
    optimizer = recipe.optimizer(10)
    assert isinstance(optimizer, Muon) and optimizer.use_ema
    assert float(learning_rate(optimizer)(0)) == pytest.approx(2e-3)
    assert optimizer.weight_decay == optimizer.adam_weight_decay == 0.1


@pytest.mark.parametrize(
    ("name", "shape", "recipe"),
    [
        ("cifar100", (32, 32, 3), "cifar100"),
        ("svhn_cropped", (32, 32, 3), "svhn"),
        ("emnist", (28, 28, 1), "image"),
        ("table", (3,), "tabular"),
    ],
)
def test_data_sets_have_a_default_recipe(name, shape, recipe, digits):
    dataset = dataclasses.replace(digits, name=name, shape=shape)
    assert recipes.default_for(dataset) == recipe


def test_svhn_is_cropped_and_not_flipped():
    assert recipes.get("svhn").augments_rows == "crop"
    assert recipes.get("cifar10").augments_rows is True


def test_the_fast_recipe_keeps_the_life_of_chains():
    slow, fast = recipes.get("image"), recipes.get("image_fast")
    assert fast.steps == 4
    assert fast.steps / fast.reinit_probability == slow.steps / slow.reinit_probability == 400


def test_a_model_has_the_settings_of_its_recipe(digits):
    recipe = dataclasses.replace(
        recipes.get("digits"), steps=7, step_size=0.5, noise=0.02, clip=0.1, capacity=99, lag=3.0
    )
    model = recipe.model(digits, seed=5)
    sampler = model.sampler
    assert (sampler.steps, sampler.step_size, sampler.noise, sampler.clip) == (7, 0.5, 0.02, 0.1)
    assert (model.buffer.capacity, model.buffer.reinit_probability) == (99, 0.05)
    assert (model.objective.weight, model.objective.lag) == (0.2, 3.0)
    assert (model.seed, model.input_noise, model.num_classes) == (5, 0.05, 10)
    assert model.one_pass and type(model.start) is jem_tf.Uniform


def test_objectives_with_chains_get_the_settings_of_the_recipe():
    recipe = dataclasses.replace(recipes.get("fashion_mnist"), energy_penalty=0.3)
    factored = recipe.objective("factored")
    assert type(factored) is Factored and (factored.weight, factored.lag) == (0.15, recipe.lag)
    assert factored.energy_penalty == 0.3
    default = recipes.get("fashion_mnist").objective("igebm").energy_penalty
    assert default == IGEBM().energy_penalty > 0
    assert type(recipe.objective("hdge")) is HDGE


def test_a_recipe_has_the_settings_for_colour_images(digits):
    recipe = dataclasses.replace(
        recipes.get("digits"), ramp=50, chain_ratio=0.5, radius=0.02, start="mixture"
    )
    recipe = dataclasses.replace(recipe, start_options={"uniform_share": 0.1, "rank": 8})
    joint = recipe.objective("joint")
    assert (joint.ramp, joint.chain_ratio, joint.radius) == (50, 0.5, 0.02)
    assert recipe.objective("factored").chain_ratio == 0.5
    for objective in ("cross_entropy", "hdge"):  # without chains: the settings have no effect
        recipe.objective(objective)
    start = recipe.model(digits).start
    assert (start.uniform_share, start.rank) == (0.1, 8)
    with pytest.raises(ValueError, match=r"option of mixture 'rnak'\. Did you mean 'rank'"):
        dataclasses.replace(recipe, start_options={"rnak": 8})


def test_options_of_an_objective_go_before_the_settings_of_the_recipe():
    options = {"classifies": False, "temperature": 0.1}
    recipe = dataclasses.replace(recipes.get("digits"), objective_options=options)
    only = recipe.objective("hdge")
    assert type(only) is HDGE and (only.classifies, only.temperature) == (False, 0.1)
    heavy = dataclasses.replace(recipe, objective_options={"weight": 0.7}).objective("joint")
    assert heavy.weight == 0.7 and heavy.lag == recipe.lag
    with pytest.raises(ValueError, match=r"hdge 'clasifies'\. Did you mean 'classifies'"):
        dataclasses.replace(recipe, objective_options={"clasifies": 1}).objective("hdge")


def test_a_recipe_can_augment_for_the_classifier_only(digits):
    recipe = dataclasses.replace(recipes.get("digits"), augment="classifier", start="mixture")
    model = recipe.model(digits, seed=0)
    assert recipe.augments_rows is False
    x = digits.arrays("test", 50)[0]
    augmented = model.augmentation(x, training=True).numpy()
    assert augmented.shape == x.shape and not np.allclose(augmented, x)
    assert x.min() <= augmented.min() and augmented.max() <= x.max()
    assert isinstance(model.start, jem_tf.GaussianMixture) and not model.one_pass


@pytest.mark.parametrize("field", ["start", "augment"])
def test_errors_quote_wrong_words(field, digits):
    with pytest.raises(ValueError, match="mixtrue"):
        dataclasses.replace(recipes.get("digits"), **{field: "mixtrue"}).model(digits)


def test_unknown_recipes_and_objectives_suggest_similar_ones():
    with pytest.raises(ValueError, match="Did you mean 'digits'"):
        recipes.get("digitz")
    with pytest.raises(ValueError, match="Did you mean 'joint'"):
        recipes.get("digits").objective("jiont")


def test_an_assignment_gives_the_network_a_latent_variable(digits):
    recipe = recipe_files.change(recipes.get("digits"), ["backbone_options.latent=4"])
    assert recipe.network(digits).layers[-1].latent == 4

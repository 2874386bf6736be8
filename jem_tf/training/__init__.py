"""Training runs: from a recipe and data to a run directory with the trained model."""

from jem_tf.training.recipe import Recipe
from jem_tf.training.recipes import RECIPES
from jem_tf.training.run import train
from jem_tf.training.settings import DataSource, RunSettings

__all__ = ["RECIPES", "DataSource", "Recipe", "RunSettings", "train"]

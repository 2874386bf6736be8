"""Named recipes that were tested.

Not here: what a recipe is (`recipe.py`), the training run (`run.py`).
"""

from dataclasses import replace

from jem_tf.checks import check_known
from jem_tf.data import Dataset
from jem_tf.training.recipe import Recipe

RECIPES = {
    "digits": Recipe(
        "8x8 digits in minutes on two cores",
        "convnet",
        epochs=80,
        learning_rate=1e-3,
        baseline_rate=3e-3,
        ema=0.99,
        steps=10,
        temperature=0.005,
        input_noise=0.05,
    ),
    "fashion_mnist": Recipe(
        "28x28 gray images in under an hour on two cores",
        "convnet",
        {"width": 16},
        epochs=8,
        learning_rate=2e-3,
        baseline_rate=3e-3,
        warmup=500,
        ema=0.998,
        steps=5,
        capacity=500,
        temperature=0.0005,
        reinit_probability=0.0125,  # chains live for 400 steps, as the paper's
        input_noise=0.05,
        generative_weight=0.15,
    ),
    "image": Recipe(
        "any small images: convolutions, SiLU, self-tuning step size",
        "convnet",
        temperature=0.001,
    ),
    "tabular": Recipe("vectors: dense layers", "mlp", epochs=30, start="mixture"),
}


_PAPER = Recipe(
    "the paper's WideResNet-28-10, 200 epochs; needs accelerators (two cores: cifar10-small)",
    "wide_resnet",
    {"depth": 28, "width": 10},
    epochs=200,
    learning_rate=1e-4,
    warmup=1000,
    cosine=False,
    drops=(60, 120, 180),
    clip_norm=None,
    step_size=1.0,
    noise=0.01,
    capacity=10_000,
    input_noise=0.03,
    generative_weight=1.0,
    lag=1e9,  # all chains count
    augment=True,
)
RECIPES |= {
    "cifar10": _PAPER,
    "cifar100": _PAPER,
    "svhn": replace(_PAPER, augment="crop"),  # digits must not be flipped
    "cifar10-classifier": Recipe(
        "a ResNet-9 for cifar10-small to begin with: --objective cross_entropy",
        "resnet",
        {"width": 32, "dtype": "mixed_bfloat16"},
        epochs=24,
        batch_size=128,
        learning_rate=4e-3,
        weight_decay=0.05,
        warmup=400,
        input_noise=0.03,
        objective_options={"label_smoothing": 0.1},
        muon=True,
        augment="cutout",
    ),
    "cifar10-small": Recipe(
        "32x32 color images on two cores: a ResNet-9, then JEM from it (--from)",
        "resnet",
        {"width": 32, "dtype": "mixed_bfloat16"},
        epochs=6,
        learning_rate=5e-4,
        weight_decay=0.15,
        warmup=400,
        steps=5,
        temperature=0.0005,
        start="mixture",
        start_options={"uniform_share": 0.1, "rank": 16},
        capacity=1000,
        reinit_probability=0.0125,
        input_noise=0.03,
        generative_weight=0.1,
        ramp=500,
        chain_ratio=0.5,
        radius=0.008,
        frozen_statistics=True,
        augment="classifier",
    ),
}


def fast(recipe: Recipe) -> Recipe:
    """`recipe` with 4 sampler steps, at a third of the cost of 20. Restarts are so rare that chains
    live for 400 steps, as with 20."""
    return replace(recipe, about=f"{recipe.about}; 4 steps", steps=4, reinit_probability=0.01)


RECIPES |= {f"{name}_fast": fast(RECIPES[name]) for name in ("fashion_mnist", "image")}


# From docs/results: the time on two cores, and the accuracy on test data. Others were not measured.
MEASURED = {
    "digits": ("under 4 minutes", "98.9 % (98.6 to 99.2, 10 seeds)"),
    "fashion_mnist": ("18 minutes of one core", "91.0 % (90.9 to 91.0, 3 seeds)"),
    "cifar10-classifier": ("47 minutes of one core", "90.2 % (1 seed)"),
    "cifar10-small": ("42 minutes of one core, from cifar10-classifier", "87.0 % (1 seed)"),
}


def get(name: str) -> Recipe:
    """Return the recipe `name`; raise `ValueError` with the nearest name if there is none."""
    check_known("recipe", name, RECIPES)
    return RECIPES[name]


def default_for(data: Dataset) -> str:
    """The name of the recipe for `data`."""
    name = data.name.removesuffix("_cropped")  # svhn_cropped in TensorFlow Datasets
    if name in RECIPES:
        return name
    return "image" if len(data.shape) == 3 else "tabular"

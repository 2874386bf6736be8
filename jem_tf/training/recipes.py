"""Named settings that were tested, from a data set to a compiled model.

Not here: the training run (`run.py`).
"""

import inspect
from dataclasses import dataclass, field, replace
from typing import Any

import keras

from jem_tf import backbones, objectives
from jem_tf.callbacks.schedules import Warmup
from jem_tf.checks import check_known, check_positive, check_positive_integer
from jem_tf.data import Dataset
from jem_tf.data.augmentation import RandomCrop
from jem_tf.model import JEM
from jem_tf.objectives.sampled import SampledObjective
from jem_tf.sampling import SGLD, GaussianMixture, ReplayBuffer, Uniform
from jem_tf.training.fields import check_types

STARTS = {"uniform": Uniform, "mixture": GaussianMixture}
BACKBONES = ("convnet", "mlp", "resnet", "wide_resnet")
AUGMENTATIONS = (False, True, "crop", "classifier")


@dataclass(frozen=True)
class Recipe:
    """Everything that defines a run except the data, the objective and the seed.

    ```python
    recipe = dataclasses.replace(recipes.get("digits"), epochs=10)
    recipe.model(data.load("digits"), seed=1)
    ```
    """

    about: str
    backbone: str
    backbone_options: dict[str, Any] = field(default_factory=dict)
    epochs: int = 50
    batch_size: int = 64
    learning_rate: float = 5e-4
    baseline_rate: float | None = None  # of cross-entropy alone; None: the same
    drops: tuple[int, ...] = ()  # epochs at which the learning rate is multiplied by 0.3
    weight_decay: float | None = None  # decoupled, as in AdamW
    clip_norm: float | None = 1.0
    ema: float | None = None
    steps: int = 20
    step_size: float | str = "auto"
    noise: float | str = "tied"
    temperature: float = 0.05  # of the density that chains sample, with tied noise
    clip: float | None = None  # of a sampler step
    chain_dtype: str = "auto"  # of the network in chains: bfloat16 where that is faster
    start: str = "uniform"  # of `STARTS`; "mixture" is a Gaussian for each class
    start_options: dict[str, Any] = field(default_factory=dict)  # of `GaussianMixture`
    capacity: int | None = None
    reinit_probability: float = 0.05
    input_noise: float = 0.1
    generative_weight: float = 0.2
    ramp: int = 0  # training steps in which it rises from zero
    chain_ratio: float = 1.0  # chains for each row of data
    radius: float = 0.0  # of robust cross-entropy, the objective joint only
    objective_options: dict[str, Any] = field(default_factory=dict)  # of one objective
    lag: float = 4.0
    energy_penalty: float = 0.0
    warmup: int | None = None  # steps in which the learning rate rises
    cosine: bool = True  # after the warm-up, decay to zero; otherwise by `drops`
    frozen_statistics: bool = False  # of batch norm, if the run begins with a classifier
    augment: bool | str = False  # crop and flip; "crop" only; "classifier": not for the density

    def __post_init__(self) -> None:
        check_types(self)
        check_known("backbone", self.backbone, BACKBONES)
        options = inspect.signature(getattr(backbones, self.backbone)).parameters
        for name in self.backbone_options:
            check_known(f"option of {self.backbone}", name, list(options)[2:])
        check_known("start", self.start, STARTS)
        for name in self.start_options:
            options = inspect.signature(STARTS[self.start]).parameters
            check_known(f"option of {self.start}", name, [n for n in options if n != "kwargs"])
        for name in ("epochs", "batch_size", "steps"):
            check_positive_integer(name, getattr(self, name))
        check_positive("learning_rate", self.learning_rate)

    def network(self, data: Dataset) -> keras.Model:
        """The backbone for `data`."""
        make = getattr(backbones, self.backbone)
        return make(data.shape, len(data.class_names), **self.backbone_options)

    def optimizer(
        self, steps_per_epoch: int, objective: str = "joint"
    ) -> keras.optimizers.Optimizer:
        """Adam with this recipe's schedule, clipping and averaging."""
        peak = self.learning_rate
        if objective == "cross_entropy" and self.baseline_rate is not None:
            peak = self.baseline_rate
        rate: Any = peak
        if self.cosine:
            rest = max(1, self.epochs * steps_per_epoch - (self.warmup or 0))
            rate = keras.optimizers.schedules.CosineDecay(peak, rest)
        elif self.drops:
            rate = keras.optimizers.schedules.PiecewiseConstantDecay(
                [epoch * steps_per_epoch for epoch in self.drops],
                [peak * 0.3**i for i in range(len(self.drops) + 1)],
            )
        if self.warmup and self.cosine:
            rate = keras.optimizers.schedules.CosineDecay(
                0.0, rest, warmup_target=peak, warmup_steps=self.warmup
            )
        elif self.warmup:
            rate = Warmup(rate, self.warmup)
        average = {} if self.ema is None else {"use_ema": True, "ema_momentum": self.ema}
        return keras.optimizers.Adam(
            rate, weight_decay=self.weight_decay, clipnorm=self.clip_norm, **average
        )

    def objective(self, name: str) -> objectives.Objective:
        """The objective `name`; objectives with chains get the settings of this recipe."""
        options: dict[str, Any] = {}
        if issubclass(objectives.OBJECTIVES.get(name, objectives.Objective), SampledObjective):
            options = {"weight": self.generative_weight, "lag": self.lag}
            options |= {"ramp": self.ramp, "chain_ratio": self.chain_ratio}
            if self.energy_penalty > 0:
                options["energy_penalty"] = self.energy_penalty
        if name == "joint":
            options["radius"] = self.radius
        if name == "igebm":  # the data of a run has labels
            options["conditional"] = True
        if name in objectives.OBJECTIVES:
            accepted = inspect.signature(objectives.OBJECTIVES[name]).parameters
            for option in self.objective_options:
                check_known(f"option of {name}", option, [n for n in accepted if n != "kwargs"])
        return objectives.get(name, **{**options, **self.objective_options})

    @property
    def augments_rows(self) -> bool | str:
        """The augmentation of `Dataset.epochs`, for both the classifier and the density."""
        return False if self.augment == "classifier" else self.augment

    def model(
        self,
        data: Dataset,
        seed: int | None = None,
        objective: str = "joint",
        network: keras.Model | None = None,
    ) -> JEM:
        """A JEM for `data`, not compiled; with the recipe's network unless there is another."""
        objective_layer = self.objective(objective)
        temperature = self.temperature if objective_layer.uses_chains else 1.0
        if self.augment not in AUGMENTATIONS:
            raise ValueError(
                f"`augment` must be one of {AUGMENTATIONS}. Received: {self.augment!r}"
            )
        return JEM(
            self.network(data) if network is None else network,
            sampler=SGLD(
                self.steps, self.step_size, self.noise, self.clip, temperature, self.chain_dtype
            ),
            buffer=ReplayBuffer(self.capacity, self.reinit_probability, objective_layer.by_class),
            input_noise=self.input_noise,
            start=STARTS[self.start](**self.start_options),
            objective=objective_layer,
            augmentation=RandomCrop(flip=True) if self.augment == "classifier" else None,
            frozen_statistics=self.frozen_statistics and network is not None,
            seed=seed,
        )


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
    "cifar10-small": Recipe(
        "32x32 color images on two cores: a ResNet-9, then JEM from it (--from)",
        "resnet",
        {"width": 32, "dtype": "mixed_bfloat16"},
        epochs=3,
        learning_rate=5e-4,
        baseline_rate=4e-3,
        weight_decay=0.15,
        warmup=400,
        steps=5,
        temperature=0.0005,
        start="mixture",
        start_options={"uniform_share": 0.1, "rank": 16},
        capacity=1000,
        reinit_probability=0.0125,
        input_noise=0.03,
        generative_weight=0.05,
        ramp=500,
        chain_ratio=0.5,
        radius=0.006,
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
    "fashion_mnist": ("17 to 28 minutes", "91.0 % (91.0 to 91.1, 3 seeds)"),
    "cifar10-small": ("36 minutes, after 78 of one core for the classifier", "83.0 % (1 seed)"),
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

"""The settings of a training: from a data set to a model, its objective and its optimizer.

Not here: those that were tested (`recipes.py`), the training run (`run.py`).
"""

import inspect
from dataclasses import dataclass, field, replace
from typing import Any

import keras

from jem_tf import backbones, objectives
from jem_tf._tf.muon import Muon
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
AUGMENTATIONS = (False, True, "crop", "cutout", "classifier")


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
    muon: bool = False  # whether Muon updates the convolutions, and not Adam
    drops: tuple[int, ...] = ()  # epochs at which the learning rate is multiplied by 0.3
    weight_decay: float | None = None  # decoupled, as in AdamW
    clip_norm: float | None = 1.0  # of the gradient of a weight
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
    # Crop and flip; "crop" only; "cutout" covers a square, too; "classifier": not for the density.
    augment: bool | str = False

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

    def limited(self, steps_per_epoch: int) -> "Recipe":
        """This recipe with at most a quarter of the training steps for the warm-up and for the
        ramp: with few rows, neither would end."""
        most = self.epochs * steps_per_epoch // 4
        return replace(self, warmup=min(self.warmup or 0, most), ramp=min(self.ramp, most))

    def network(self, data: Dataset) -> keras.Model:
        """The backbone for `data`."""
        make = getattr(backbones, self.backbone)
        return make(data.shape, len(data.class_names), **self.backbone_options)

    def optimizer(
        self, steps_per_epoch: int, objective: str = "joint"
    ) -> keras.optimizers.Optimizer:
        """Adam or Muon with this recipe's schedule, clipping and averaging."""
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
        options: dict[str, Any] = {"weight_decay": self.weight_decay, "clipnorm": self.clip_norm}
        if self.ema is not None:
            options |= {"use_ema": True, "ema_momentum": self.ema}
        if self.muon:
            return Muon(rate, adam_weight_decay=self.weight_decay, **options)
        return keras.optimizers.Adam(rate, **options)

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
                try:
                    check_known(f"option of {name}", option, [n for n in accepted if n != "kwargs"])
                except ValueError as error:
                    hint = "`objective_options` are for one objective: choose it with --objective."
                    raise ValueError(f"{error} {hint}") from None
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

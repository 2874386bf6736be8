"""The amount of work of an evaluation, by name: how many rows, steps and samples.

Not here: what is done with it (`parts/`).
"""

from dataclasses import dataclass, replace

from jem_tf.evaluation.measures.features import TRAINING_ROWS
from jem_tf.evaluation.measures.robustness import NORMS


@dataclass(frozen=True)
class Budget:
    """The amount of work of each part of an evaluation.

    ```python
    BUDGETS["tiny"] = Budget(rows=100, attack_rows=10)  # evaluate(..., budget="tiny")
    ```
    """

    rows: int = 2_000  # test rows, and rows of each out-of-distribution set
    attack_rows: int = 250
    attack_steps: int = 20  # of PGD and APGD
    restarts: int = 1  # random starts of PGD and APGD
    refine_steps: tuple[int, ...] = (1, 10)  # the k of JEM-k
    refine_attacks: tuple[str, ...] = ("linf",)
    refine_rows: int = 32
    noise_draws: int = 2  # draws of the noise of JEM-k that its attack averages over
    square_steps: int = 50  # of the square attack on JEM-k
    boundary_rows: int = 20
    boundary_steps: int = 1_000
    pointwise_rows: int = 8
    distal_steps: int = 100
    samples_per_class: int = 10
    max_samples: int = 500  # of all classes together
    sample_steps: int = 400
    animation_frames: int = 40
    train_rows: int = 20_000  # training rows that samples are compared with
    feature_rows: int = 2_000  # rows for the Fréchet distance
    classifier_rows: int = TRAINING_ROWS  # rows times epochs of the classifier for features


BUDGETS = {
    "quick": Budget(),
    "full": Budget(
        rows=10_000,
        attack_rows=1_000,
        attack_steps=40,
        restarts=2,
        refine_attacks=NORMS,
        refine_rows=64,
        noise_draws=4,
        square_steps=200,
        boundary_rows=100,
        boundary_steps=10_000,
        pointwise_rows=50,
        distal_steps=200,
        samples_per_class=50,
        max_samples=5_000,
        train_rows=60_000,
        feature_rows=10_000,
    ),
}
# Published Inception scores and Fréchet distances need ten thousand samples or more.
BUDGETS["published"] = replace(
    BUDGETS["full"], restarts=5, samples_per_class=1_000, max_samples=10_000
)

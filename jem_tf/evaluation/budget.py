"""How much work an evaluation is allowed, by name."""

from dataclasses import dataclass

from jem_tf.evaluation.measures.robustness import WHITE_BOX


@dataclass(frozen=True)
class Budget:
    """How much work goes into each part."""

    rows: int = 2_000  # test rows, and rows of each OOD set
    attack_rows: int = 250
    attack_steps: int = 20
    refine: tuple[int, ...] = (1, 10)  # the k of JEM-k
    refine_attacks: tuple[str, ...] = ("linf",)
    refine_rows: int = 32
    draws: int = 2  # of the refinement's noise, which its attacker averages over
    boundary_rows: int = 20
    boundary_steps: int = 1_000
    pointwise_rows: int = 8
    distal_steps: int = 100
    per_class: int = 10  # samples of each class,
    samples: int = 500  # and of all together, at most
    train_rows: int = 20_000  # that samples are compared with
    sample_steps: int = 400
    feature_rows: int = 2_000  # data that samples are compared with in features


BUDGETS = {
    "quick": Budget(),
    "full": Budget(
        rows=10_000,
        attack_rows=1_000,
        attack_steps=40,
        refine_attacks=WHITE_BOX,
        refine_rows=64,
        draws=4,
        boundary_rows=100,
        boundary_steps=10_000,
        pointwise_rows=50,
        distal_steps=200,
        per_class=50,
        samples=5_000,
        train_rows=60_000,
        feature_rows=10_000,
    ),
}

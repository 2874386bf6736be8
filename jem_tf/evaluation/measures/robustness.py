"""How small a change of an input makes a classifier wrong, with Foolbox's attacks.

Not here: networks. They are functions from inputs to logits, with gradients by the inputs for the
white-box attacks. Sizes are in units where pixels go from 0 to 1: 8 / 255 is eight gray levels.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.checks import check_known
from jem_tf.evaluation.progress import bar

ATTACKS = {
    "linf": "PGD, every pixel changed by at most ε (white box)",
    "l2": "PGD, Euclidean length of the change at most ε (white box)",
    "boundary": "boundary attack, Euclidean length, no gradients",
    "pointwise": "pointwise attack, Euclidean length, no gradients",
}
WHITE_BOX = ("linf", "l2")
EPSILONS = {
    "linf": tuple(e / 255 for e in (0, 2, 4, 8, 12, 16, 26, 40, 64)),
    "l2": (0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
}
BATCH_SIZE = 128

Network = Callable[[tf.Tensor], tf.Tensor]
Answer = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Curve:
    """Accuracy against the size of the attack."""

    attack: str
    epsilons: list[float]
    accuracy: list[float]  # after the worst attack found up to each size
    rows: int
    commonest: float  # share of the commonest class: right without looking
    warnings: list[str]


def attack(
    kind: str,
    network: Network | None,
    x: np.ndarray,
    y: np.ndarray,
    bounds: tuple[float, float] = (-1.0, 1.0),
    epsilons: Sequence[float] | None = None,
    steps: int = 40,
    starts: np.ndarray | None = None,
    classify: Network | None = None,
    answer: Answer | None = None,
) -> Curve:
    """Accuracy of `network` on `x` under the attack `kind`, one of `ATTACKS`.

    `steps` are those of PGD, and of the boundary attack. Attacks without gradients begin at
    `starts`, other inputs of which some are in other classes (default: `x`). `classify` answers
    for the attacked inputs, if that is not what the attack follows: a noisy classifier is attacked
    through an average. Without a `network`, attacks that need no gradients ask `answer`, from
    arrays to logits.
    """
    check_known("attack", kind, ATTACKS)
    slack = 1e-4 * (bounds[1] - bounds[0])  # as resizing rounds
    if x.min() < bounds[0] - slack or x.max() > bounds[1] + slack:
        raise ValueError(
            f"Inputs must lie in `bounds` {bounds}. Received: {x.min():g} to {x.max():g}"
        )
    x = np.clip(x, *bounds).astype(np.float32)
    norm = kind if kind in WHITE_BOX else "l2"
    sizes = sorted({0.0, *(default_sizes(norm, x.shape[1:]) if epsilons is None else epsilons)})
    if kind in WHITE_BOX:
        if network is None:
            raise ValueError(f"The attack {kind!r} needs a network with gradients.")
        model = _Model(network, bounds)
        right, warnings = _pgd(kind, model, x, y, sizes, steps, classify or model.network)
    else:
        if answer is None:
            if network is None:
                raise ValueError("An attack needs a `network`, or an `answer`.")
            answer = _Model(network, bounds).answer
        starts = x if starts is None else np.clip(starts, *bounds).astype(np.float32)
        distance, warnings = _minimal(kind, answer, bounds, x, y, starts, steps)
        right = distance > np.asarray(sizes)[:, np.newaxis]
    raw = right.mean(1)
    if (np.diff(raw) > 0.05).any():
        warnings.append("accuracy rises with ε in places: the attack is not strong enough")
    accuracy = np.logical_and.accumulate(right).mean(1)  # smaller changes are allowed too
    commonest = float(np.bincount(y).max() / len(y))
    return Curve(kind, list(sizes), accuracy.tolist(), len(x), commonest, warnings)


def default_sizes(norm: str, shape: tuple[int, ...]) -> tuple[float, ...]:
    """`EPSILONS`, and a size at which every image can be turned into plain gray."""
    values = float(np.prod(shape))
    return *EPSILONS[norm], 0.5 if norm == "linf" else 0.5 * np.sqrt(values)


def compare(curves: Sequence[Curve]) -> list[str]:
    """Signs of masked gradients: accuracy that stays where every input can be made the same, and
    attacks that see gradients losing to attacks that do not."""
    found = []
    by_kind = {curve.attack: curve for curve in curves}
    for curve in curves:
        if curve.attack in WHITE_BOX and curve.accuracy[-1] > curve.commonest + 0.05:
            found.append(
                f"{curve.attack}: accuracy is still {curve.accuracy[-1]:.0%} at "
                f"ε = {curve.epsilons[-1]:.2g}, where every input can be made plain gray: the "
                "attack is too weak, or gradients are masked"
            )
    for kind in ("boundary", "pointwise"):
        if kind in by_kind and "l2" in by_kind:
            black, white = by_kind[kind], by_kind["l2"]
            other = np.interp(black.epsilons, white.epsilons, white.accuracy)
            # Two standard errors of the smaller set of rows.
            slack = 1.0 / np.sqrt(min(black.rows, white.rows))
            if (np.asarray(black.accuracy) < other - max(0.1, slack)).any():
                found.append(f"{kind} attack does better than PGD, which sees the gradients")
    return found


def refined(jem: Any, steps: int, draws: int = 1) -> Network:
    """JEM-k: logits after `steps` sampler steps from the input, with new noise at every call.

    With several `draws` the probabilities are averaged, so that the gradient of the result is
    the expectation over the noise that an attacker wants.
    """
    calls = tf.Variable(0, dtype=tf.int32)

    def network(x: tf.Tensor) -> tf.Tensor:
        copies = tf.repeat(x, draws, axis=0)
        seed = tf.stack([calls.assign_add(1), steps])
        moved = jem.run_chains(copies, seed, steps=steps)[0]
        log_p = tf.nn.log_softmax(tf.cast(jem.backbone(moved, training=False), tf.float32))
        grouped = tf.reshape(log_p, [tf.shape(x)[0], draws, -1])
        return tf.reduce_logsumexp(grouped, axis=1) - np.log(draws)

    return network


def distal(
    network: Network,
    classes: np.ndarray,
    shape: tuple[int, ...],
    bounds: tuple[float, float] = (-1.0, 1.0),
    steps: int = 200,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Noise changed until the network is sure of `classes`: the images and the confidences."""
    foolbox = _foolbox()
    model = _Model(network, bounds)
    noise = np.random.default_rng(seed).uniform(*bounds, (len(classes), *shape))
    width = bounds[1] - bounds[0]
    ascent = foolbox.attacks.LinfPGD(abs_stepsize=width / 255, steps=1, random_start=False)
    x = tf.constant(noise, tf.float32)
    target = foolbox.criteria.TargetedMisclassification(tf.constant(classes, tf.int64))
    for _ in bar(range(steps), steps, about="distal adversarials"):
        x = ascent.run(model.foolbox, x, target, epsilon=width)
    p = tf.nn.softmax(model.network(x)).numpy()
    return x.numpy(), p[np.arange(len(classes)), classes]


class _Model:
    """A network as Foolbox wants it, traced once."""

    def __init__(self, network: Network, bounds: tuple[float, float]):
        self.bounds, self.width = bounds, bounds[1] - bounds[0]
        # A network without a gradient (it rounds, say) has one of zero, not none, for Foolbox.
        connected = lambda x: network(x) + 0.0 * tf.reduce_sum(x)  # noqa: E731
        self.network = tf.function(connected, reduce_retracing=True)

    @property
    def foolbox(self) -> Any:
        """With gradients."""
        device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
        return _foolbox().TensorFlowModel(self.network, self.bounds, device)

    def answer(self, x: np.ndarray) -> np.ndarray:
        """Logits of an array of any length."""
        parts = np.array_split(x.astype(np.float32), -(-len(x) // BATCH_SIZE))
        return np.concatenate([self.network(tf.constant(part)).numpy() for part in parts])


def _pgd(
    kind: str,
    model: _Model,
    x: np.ndarray,
    y: np.ndarray,
    sizes: Sequence[float],
    steps: int,
    classify: Network,
) -> tuple[np.ndarray, list[str]]:
    """Whether each row is still right, `[sizes, rows]`."""
    attacks = _foolbox().attacks
    make = attacks.LinfPGD if kind == "linf" else attacks.L2PGD
    method = make(steps=steps, rel_stepsize=max(2.5 / steps, 0.1), random_start=True)
    classify = tf.function(classify, reduce_retracing=True)
    tf.random.set_seed(0)  # Foolbox's random starts
    right = np.zeros((len(sizes), len(x)), bool)
    jobs = [(i, b) for b in range(0, len(x), BATCH_SIZE) for i in range(len(sizes))]
    flat = 0
    for i, begin in bar(jobs, len(jobs), about=f"attack {kind}"):
        rows = slice(begin, begin + BATCH_SIZE)
        inputs, labels = tf.constant(x[rows]), tf.constant(y[rows], tf.int64)
        if sizes[i] > 0:
            inputs = method.run(model.foolbox, inputs, labels, epsilon=sizes[i] * model.width)
        else:
            flat += _without_gradient(model.network, inputs, labels)
        right[i, rows] = tf.argmax(classify(inputs), -1) == labels
    share = flat / len(x)
    masked = [f"{share:.0%} of inputs have a gradient of exactly zero: it is masked"]
    return right, masked if share > 0.1 else []


def _without_gradient(network: Network, x: tf.Tensor, y: tf.Tensor) -> int:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(x))
    slope = np.asarray(tape.gradient(loss, x)).reshape(len(x), -1)
    return int((~slope.any(axis=1)).sum())


def _minimal(
    kind: str,
    answer: Answer,
    bounds: tuple[float, float],
    x: np.ndarray,
    y: np.ndarray,
    starts: np.ndarray,
    steps: int,
) -> tuple[np.ndarray, list[str]]:
    """The Euclidean length of the smallest change found for each row, 0 where it was wrong."""
    foolbox = _foolbox()
    method = (
        foolbox.attacks.BoundaryAttack(steps=steps)
        if kind == "boundary"
        else foolbox.attacks.PointwiseAttack()
    )
    asked = foolbox.NumPyModel(answer, bounds)  # its TensorFlow indexing is broken
    predicted = answer(starts).argmax(-1)
    todo = np.flatnonzero(answer(x).argmax(-1) == y)
    distance = np.zeros(len(x))
    nowhere = [i for i in todo if (predicted == y[i]).all()]  # to start from
    distance[nowhere] = np.inf
    todo = np.setdiff1d(todo, nowhere)
    parts = [todo[i : i + 32] for i in range(0, len(todo), 32)]
    np.random.seed(0)  # Foolbox's
    for rows in bar(parts, len(parts), about=f"{kind} attack"):
        begin = np.stack([_nearest(x[i], starts[predicted != y[i]]) for i in rows])
        result = method.run(asked, x[rows], y[rows], starting_points=begin)
        change = (np.asarray(result) - x[rows]).reshape(len(rows), -1) / (bounds[1] - bounds[0])
        distance[rows] = np.linalg.norm(change, axis=1)
    said = f"{len(nowhere)} inputs were not attacked: every answer is their class"
    return distance, [said] if nowhere else []


def _nearest(x: np.ndarray, others: np.ndarray) -> np.ndarray:
    return others[((others - x) ** 2).reshape(len(others), -1).sum(1).argmin()]


def _foolbox() -> Any:
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # it imports GitPython, which wants git
    try:
        import foolbox
    except ImportError as error:
        raise ValueError("Attacks need Foolbox: pip install 'jem_tf[report]'") from error
    return foolbox

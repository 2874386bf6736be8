"""The replay buffer B of Algorithm 1: chains that continue from where they stopped.

Not here: the updates of chains (`sgld.py`, `mala.py`).
The mean age of a slot in sampler steps is training steps x batch x steps / capacity. A buffer that
is too large for the training budget stays noise, whatever the loss says.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.randomness import fold_in
from jem_tf._tf.state import CHUNK, State
from jem_tf.checks import check_positive_integer, check_probability
from jem_tf.sampling.starts import ChainStart

MAX_AUTO_CAPACITY = 10_000  # the paper's
TARGET_VISITS = 200  # draws of a slot over a run, after which short runs showed clear samples


class Draw(NamedTuple):
    """Chains drawn from the buffer, and what is needed to write them back."""

    x: tf.Tensor
    slots: tf.Tensor
    age: tf.Tensor
    labels: tf.Tensor | None


@keras.saving.register_keras_serializable("jem_tf")
class ReplayBuffer(State):
    """Persistent chains in a `tf.Variable`, one buffer for each replica.

    ```python
    ReplayBuffer()                        # capacity chosen from the training budget
    ReplayBuffer(capacity=10_000)         # the paper's
    ReplayBuffer(per_class=True)          # slots belong to classes, chains sample p(x | y)
    ```

    Args:
        capacity: slots on each replica. None chooses a capacity such that each slot is drawn
            about 200 times during training, at most 10 000.
        reinit_probability: the probability that a drawn chain is restarted.
        per_class: give each slot a class, in the shares of the data.
    """

    per_replica = ("chains", "age", "labels")

    def __init__(
        self,
        capacity: int | None = None,
        reinit_probability: float = 0.05,
        per_class: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if capacity is not None:
            check_positive_integer("capacity", capacity, "None or a positive integer")
        check_probability("reinit_probability", reinit_probability)
        self.capacity = capacity
        self.reinit_probability = float(reinit_probability)
        self.per_class = bool(per_class)

    @property
    def filled(self) -> bool:
        """Whether the buffer holds chains."""
        return "chains" in self

    def initialise(
        self,
        start: ChainStart,
        seed: tf.Tensor,
        batch: int,
        steps: int | None,
        class_shares: np.ndarray,
    ) -> None:
        """Fill the buffer of every replica from `start`.

        The training will draw `batch` chains in each of `steps` steps, or of an unknown number.
        With `per_class`, slots have classes in the shares of the data, `class_shares`: uniform
        classes would leave a constant gradient 1/K - p(y) on the biases of the outputs.
        """
        capacity = self.capacity or capacity_for(steps, batch)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        shape = (replicas, capacity)
        labels = np.broadcast_to(proportional_labels(capacity, class_shares), shape)

        def draw(replica: int, chunk: int, rows: int) -> tf.Tensor:
            replica_seed = fold_in(seed, replica)
            begin = chunk * CHUNK
            return start.draw(
                rows,
                fold_in(replica_seed, chunk) if chunk else replica_seed,
                tf.constant(labels[replica, begin : begin + rows]) if self.per_class else None,
            )

        self.fill("chains", (capacity, *start.input_range.low.shape), draw)
        self.assign(age=np.zeros(shape, np.float32))
        if self.per_class:
            self.assign(labels=labels)

    def too_small(self, batch: int) -> bool:
        """Whether the capacity was chosen automatically, for batches smaller than `batch`."""
        return self.capacity is None and self["age"].shape[0] < batch

    def check_capacity(self, batch: int) -> None:
        """Raise `ValueError` if a draw of `batch` different chains is impossible."""
        capacity = self["age"].shape[0]
        if capacity < batch:
            raise ValueError(
                "`capacity` must be at least the batch size of a replica. "
                f"Received: capacity={capacity}, batch size {batch}"
            )

    def draw(self, n: tf.Tensor | int, start: ChainStart, seed: tf.Tensor) -> Draw:
        """Draw `n` different slots of this replica; some of their chains are restarted."""
        if not self.filled:
            raise ValueError("The replay buffer is empty: `fit` fills it before the first step.")
        seeds = tf.random.split(seed, 3)
        slots = self._slots(n, seeds[0])
        labels = tf.gather(self["labels"], slots) if self.per_class else None
        old, age = tf.gather(self["chains"], slots), tf.gather(self["age"], slots)
        restart = tf.random.stateless_uniform([n], seeds[1]) < self.reinit_probability
        finite = tf.reduce_all(tf.math.is_finite(tf.reshape(old, [n, -1])), axis=1)
        restart |= tf.logical_not(finite)  # a non-finite chain never recovers
        x = tf.where(_broadcast_over(restart, old), start.draw(n, seeds[2], labels), old)
        return Draw(x, slots, tf.where(restart, tf.zeros_like(age), age), labels)

    def peek(self, n: tf.Tensor | int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Read at most `n` chains of this replica, and their classes if they have any."""
        slots = self._slots(tf.minimum(n, self["age"].shape[0]), seed)
        labels = tf.gather(self["labels"], slots) if self.per_class else None
        return tf.gather(self["chains"], slots), labels

    def mean_age(self) -> tf.Tensor:
        """Mean number of sampler steps that the chains of this replica have taken."""
        return tf.reduce_mean(self["age"]) if self.filled else tf.constant(0.0)

    def _slots(self, n: tf.Tensor | int, seed: tf.Tensor) -> tf.Tensor:
        # The indices of the n largest random numbers are different, so that no two chains are
        # written back to one slot.
        keys = tf.random.stateless_uniform(self["age"].shape, seed)
        return tf.math.top_k(keys, n, sorted=False).indices

    def write(self, draw: Draw, x: tf.Tensor, steps: int) -> None:
        """Write the chains of `draw`, now at `x` and `steps` older, back to their slots."""
        slots = draw.slots[:, tf.newaxis]
        self["chains"].scatter_nd_update(slots, x)
        self["age"].scatter_nd_update(slots, draw.age + tf.cast(steps, tf.float32))

    def convert_saved(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Distribute saved chains over the present replicas, whatever their number was."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync

        def distribute(value: np.ndarray) -> np.ndarray:
            rows = value.reshape(-1, *value.shape[2:])
            capacity = len(rows) // replicas
            return rows[: capacity * replicas].reshape(replicas, capacity, *rows.shape[1:])

        return {name: distribute(value) for name, value in arrays.items()}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "capacity": self.capacity,
            "reinit_probability": self.reinit_probability,
            "per_class": self.per_class,
        }


def proportional_labels(count: int, shares: np.ndarray) -> np.ndarray:
    """`count` labels whose numbers are proportional to `shares`, spread evenly; int32."""
    exact = count * np.asarray(shares, np.float64) / np.sum(shares)
    numbers = exact.astype(int)
    largest = np.argsort(-(exact - numbers), kind="stable")  # the largest remainders
    numbers[largest[: count - numbers.sum()]] += 1
    labels = np.repeat(np.arange(len(numbers), dtype=np.int32), numbers)
    places = np.concatenate([(np.arange(n) + 0.5) / n for n in numbers if n])
    return labels[np.argsort(places, kind="stable")]


def capacity_for(steps: int | None, batch: int) -> int:
    """Slots such that `steps` draws visit each about `TARGET_VISITS` times, within sane limits."""
    if steps is None:
        return max(1_000, batch)
    largest = max(MAX_AUTO_CAPACITY, 2 * batch)
    return int(np.clip(steps * batch // TARGET_VISITS, 2 * batch, largest))


def _broadcast_over(flags: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """`flags` `[n]` in a shape that broadcasts over `x` `[n, ...]`."""
    return tf.reshape(flags, [-1] + [1] * (len(x.shape) - 1))

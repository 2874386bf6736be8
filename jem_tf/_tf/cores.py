"""How a training on CPUs uses their cores: in shares of the chains that go on side by side.

Not here: more than one device (`distribute.py`). TensorFlow gives every operation all cores by
default; those of small networks and batches are over before a second core is of use.
"""

import os
import warnings
from itertools import pairwise

import tensorflow as tf

MOST = 8  # each share has the network once more in the graph


def side_by_side() -> None:
    """One core for an operation, and as many shares of chains as there are cores (8 at most).

    ```python
    jem_tf.side_by_side()    # before anything else: TensorFlow decides on threads only once
    model.fit(...)           # up to 1.4 times as fast on two cores
    ```

    For programs that train JEM on CPUs, as `jem-tf train` does. What else they do has one core for
    an operation too, such as `predict` with its one batch at a time.
    """
    cores = _cores()
    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(1, cores // MOST))
    except RuntimeError:
        warnings.warn(
            "`side_by_side` has no effect: TensorFlow has begun. Call it first.", stacklevel=2
        )


def on_gpu() -> bool:
    """Whether there are devices that need no help with their cores."""
    return bool(tf.config.get_visible_devices("GPU"))


def shares(whole: int = 1) -> int:
    """In how many shares to calculate what can be; `whole` if operations have all cores."""
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    if on_gpu():
        return 1
    return max(1, min(MOST, _cores() // threads)) if threads else whole


def shares_of(x: tf.Tensor, count: int) -> list[slice]:
    """The rows of `x` in `count` shares as equal as may be."""
    if count == 1:
        return [slice(None)]
    rows = tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
    bounds = [rows * share // count for share in range(count + 1)]
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

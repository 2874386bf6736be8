"""How training on CPUs uses the cores: chains in shares that run side by side.

Not here: more than one device (`distribution.py`). By default TensorFlow gives every operation all
cores. Operations of small networks and batches end before a second core is of use.
"""

import os
import warnings
from itertools import pairwise

import tensorflow as tf

MAX_SHARES = 8  # the graph holds a copy of the network for each share


def side_by_side() -> None:
    """Give each operation one core, and run as many shares of chains as there are cores, at most 8.

    ```python
    jem_tf.side_by_side()    # before anything else: TensorFlow sets its threads up only once
    model.fit(...)           # up to 1.4 times as fast on two cores
    ```

    For programs that train JEM on CPUs; `jem-tf train` calls it. Everything else in the process
    then has one core per operation as well, such as `predict`, which runs one batch at a time.
    """
    try:
        tf.config.threading.set_intra_op_parallelism_threads(max(1, num_cores() // MAX_SHARES))
    except RuntimeError:
        warnings.warn(
            "`side_by_side` has no effect: TensorFlow has started already. Call it first.",
            stacklevel=2,
        )


def on_gpu() -> bool:
    """Whether TensorFlow sees a GPU."""
    return bool(tf.config.get_visible_devices("GPU"))


def num_shares(default: int = 1) -> int:
    """In how many shares to compute; `default` if operations use all cores."""
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    if on_gpu():
        return 1
    return max(1, min(MAX_SHARES, num_cores() // threads)) if threads else default


def split_rows(x: tf.Tensor, count: int) -> list[slice]:
    """The rows of `x` in `count` shares whose sizes differ by at most one."""
    if count == 1:
        return [slice(None)]
    rows = tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
    bounds = [rows * share // count for share in range(count + 1)]
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

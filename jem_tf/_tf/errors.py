"""Failed assertions of a graph as short errors.

TensorFlow reports them with a page of nodes and lines of its own code.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

_FAILED = re.compile(
    r"assertion failed: \[(?P<text>.*?)\] \[(?P<value>.*?)\]"  # in a graph
    r"|Summarized data: b?['\"](?P<eager_text>.*?)['\"]\s+\[?(?P<eager_value>[^\]\n]*)",
    re.DOTALL,
)


def check(condition: tf.Tensor, message: str, value: tf.Tensor) -> tf.Operation | None:
    """An assertion in the graph; `short_errors` makes a `ValueError` of it that quotes `value`."""
    return tf.debugging.Assert(condition, [message, value])


@contextmanager
def short_errors() -> Iterator[None]:
    """Raise a failed `check` as `ValueError`, without the page of graph."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = _FAILED.search(error.message)
        if found is None:
            raise
        text, value = (found[name] or found[f"eager_{name}"] for name in ("text", "value"))
    else:
        return
    raise ValueError(f"{text} Received: {value}")

"""What all subjects share: scores of arrays and of streams of any length."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from jem_tf import evaluation


def test_streams_and_arrays_have_the_same_scores(model, blobs_data):
    x, y = blobs_data
    subject = evaluation.of(model)
    stream = tf.data.Dataset.from_tensor_slices((x, y)).batch(7)
    scores = subject.scores(stream, labelled=True)
    np.testing.assert_array_equal(scores["y"], y)
    expected = subject.scores(x)["gradient_norm"]
    np.testing.assert_allclose(scores["gradient_norm"], expected, atol=1e-5)


def test_inputs_of_another_shape_raise_an_error_with_both_shapes(model):
    with pytest.raises(ValueError, match=r"\[batch, 2\].*\(5,\)"):
        evaluation.of(model).scores(np.zeros((4, 5)))


def test_infinite_streams_raise_an_error(model):
    stream = tf.data.Dataset.from_tensors(tf.zeros([1, 2])).repeat()
    with pytest.raises(ValueError, match="infinite"):
        evaluation.of(model).scores(stream)


MEMORY = """
import resource, keras, tensorflow as tf
from jem_tf import evaluation
layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(3)]
subject = evaluation.of(keras.Sequential(layers))
batch = tf.zeros([500, 28, 28, 1])
stream = lambda n: tf.data.Dataset.range(n).map(lambda i: batch + tf.cast(i, tf.float32))
subject.scores(stream(20))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(subject.scores(stream(200))["gradient_norm"]) == 100_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_inputs():
    """100 000 inputs of 3 kB, 300 MB in all; in a process of its own for the peak of its memory."""
    command = [sys.executable, "-c", MEMORY]
    growth = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(growth) < 50_000  # kB; the scores themselves take 3 MB

"""Sums and means over replicas against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from jem_tf._tf.replicas import mean_or_zero, mean_share, sum_over_replicas


def test_shares_of_replicas_add_up_to_the_mean(mirrored):
    """With other rows and weights on each replica."""
    values = [np.array([1.0, 2.0, 6.0], np.float32), np.array([4.0], np.float32)]
    weights = [np.array([1.0, 0.0, 2.0], np.float32), np.array([3.0], np.float32)]

    def share(value, weight):
        part = mean_share(value, weight)
        return part, sum_over_replicas(part)

    def distribute(parts):
        return mirrored.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )

    parts, totals = mirrored.run(tf.function(share), (distribute(values), distribute(weights)))
    expected = np.average(np.concatenate(values), weights=np.concatenate(weights))
    assert sum(float(part) for part in parts.values) == pytest.approx(expected)
    assert [float(total) for total in totals.values] == pytest.approx([expected] * 2)


def test_a_mean_without_weight_or_rows_is_zero():
    assert float(mean_share(tf.constant([1.0, 2.0]), tf.zeros(2))) == 0.0
    assert float(mean_or_zero(tf.zeros([0, 3]))) == 0.0
    assert float(mean_or_zero(tf.constant([[1.0, 2.0], [3.0, 6.0]]))) == 3.0

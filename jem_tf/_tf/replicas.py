"""Sums and means over the replicas of a `tf.distribute` strategy.

Every loss is a mean over the global batch. A replica computes its share of that mean, so that the
shares of all replicas add up to it.
"""

import tensorflow as tf


def sum_over_replicas(value: tf.Tensor) -> tf.Tensor:
    """The sum of `value` over all replicas, in each of them."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def mean_share(values: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """This replica's share of the weighted mean over all replicas; 0 if the weights sum to 0."""
    total = sum_over_replicas(tf.reduce_sum(weight))
    return tf.math.divide_no_nan(tf.reduce_sum(weight * values), total)


def mean_or_zero(values: tf.Tensor) -> tf.Tensor:
    """The mean of `values`, and 0 if there are none: a replica may get no rows of a batch."""
    return tf.math.divide_no_nan(tf.reduce_sum(values), tf.cast(tf.size(values), tf.float32))

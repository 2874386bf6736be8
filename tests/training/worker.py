"""A training on two features, for `test_workers.py`: on replicas of one process, or as a worker.

python worker.py mirrored|multi-worker REPLICAS OUT.npz
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import jem_tf
from jem_tf._tf.distribution import choose_strategy


def train(strategy):
    """Train for two epochs; return weights, chains and history.

    52 rows in a batch and 44 in the last one: the parts of workers differ in size.
    """
    keras.utils.set_random_seed(1)
    y = np.arange(200) % 3
    x = np.random.default_rng(0).normal(size=(200, 2)) + 3 * y[:, None]
    with strategy.scope():
        layers = keras.layers.Dense(8, "silu"), keras.layers.Dense(3)
        model = jem_tf.JEM(keras.Sequential([keras.Input((2,)), *layers]), jem_tf.SGLD(2), seed=1)
        model.compile(keras.optimizers.Adam(1e-2), metrics=["accuracy"])
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    rows = tf.data.Dataset.from_tensor_slices((x.astype(np.float32), y))
    data = rows.batch(52).with_options(options)
    fit = {"validation_data": data, "epochs": 2, "shuffle": False, "verbose": 0}
    history = model.fit(data, **fit).history
    arrays = {f"weight_{i}": weight for i, weight in enumerate(model.get_weights())}
    arrays["chains"] = model.buffer.arrays()["chains"]
    return arrays | {name: np.array(history[name]) for name in ("loss", "val_accuracy")}


def main(kind, replicas, out):
    if kind == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * int(replicas)
        tf.config.set_logical_device_configuration(cpu, parts)
        strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(len(parts))])
    else:
        strategy = choose_strategy("multi-worker")
    assert strategy.num_replicas_in_sync == int(replicas)
    np.savez(out, **train(strategy))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Images per second of a training step: JEM, cross-entropy alone, and a plain graph of JEM.

    python benchmarks/training_step.py [--rounds 5] [--json FILE]

The three take turns, so that a noisy machine hits all; medians are printed. The plain graph is
Algorithm 1 written straight down in one `tf.function`, without Keras' loop, metrics, seeds or
checks: what a careful user would write by hand.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import jem_tf
from jem_tf import backbones

SHAPE, CLASSES, CAPACITY = (32, 32, 3), 10, 1000


def plain_graph(network: keras.Model, batch: int, steps: int) -> Callable:
    """Algorithm 1 as one would write it down."""
    optimizer = keras.optimizers.Adam(1e-4)
    optimizer.build(network.trainable_weights)
    buffer = tf.Variable(tf.random.uniform([CAPACITY, *SHAPE], -1, 1), trainable=False)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        slots = tf.random.uniform([batch], 0, CAPACITY, tf.int32)
        fresh = tf.random.uniform([batch, *SHAPE], -1, 1)
        anew = tf.random.uniform([batch, 1, 1, 1]) < 0.05
        samples = tf.where(anew, fresh, tf.gather(buffer, slots))
        for _ in tf.range(steps):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(samples)
                f = tf.reduce_logsumexp(network(samples, training=False), -1)
            samples += tape.gradient(f, samples) + 0.01 * tf.random.normal([batch, *SHAPE])
        with tf.GradientTape() as tape:
            logits = network(tf.concat([x, samples], 0), training=True)
            f = tf.reduce_logsumexp(logits, -1)
            clf = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits[:batch])
            loss = tf.reduce_mean(clf) + tf.reduce_mean(f[batch:]) - tf.reduce_mean(f[:batch])
        gradients = tape.gradient(loss, network.trainable_weights)
        optimizer.apply_gradients(zip(gradients, network.trainable_weights))
        buffer.scatter_nd_update(slots[:, None], samples)
        return loss

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=8, help="training steps in a round")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (options.batches * options.batch, *SHAPE)).astype(np.float32)
    y = rng.integers(CLASSES, size=len(x))
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(options.batch, drop_remainder=True)

    def network() -> keras.Model:
        return backbones.wide_resnet(SHAPE, CLASSES, depth=10, width=2)

    model = jem_tf.JEM(
        network(),
        sampler=jem_tf.SGLD(options.steps, step_size=1.0, noise=0.01),
        buffer=jem_tf.ReplayBuffer(CAPACITY),
    )
    model.compile(keras.optimizers.Adam(1e-4), metrics=["accuracy"])
    classifier = network()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    classifier.compile(keras.optimizers.Adam(1e-4), loss=loss, metrics=["accuracy"])
    plain = plain_graph(network(), options.batch, options.steps)
    runs: dict[str, Callable] = {
        "JEM": lambda: model.fit(batches, verbose=0, shuffle=False),
        "plain graph": lambda: [plain(*rows) for rows in batches],
        "cross-entropy": lambda: classifier.fit(batches, verbose=0, shuffle=False),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(options.rounds + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            if turn:  # the first turn traces
                rates[name].append(len(x) / (time.perf_counter() - begin))
    result = {name: float(np.median(values)) for name, values in rates.items()}
    print(f"WRN-10-2, 32x32x3, batch {options.batch}, {options.steps} SGLD steps")
    for name, rate in result.items():
        spread = f"{min(rates[name]):.1f} to {max(rates[name]):.1f}"
        print(f"  {name:14} {rate:8.1f} images/s   ({spread} in {options.rounds} rounds)")
    for one, other in (("JEM", "plain graph"), ("cross-entropy", "JEM")):
        ratio = float(np.median(np.divide(rates[one], rates[other])))
        result[f"{one} / {other}"] = ratio
        print(f"  {one} / {other}: {ratio:.2f} (median of the rounds' ratios)")
    if options.json:
        machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        options.json.write_text(json.dumps({**result, "machine": machine}, indent=2) + "\n")


if __name__ == "__main__":
    main()

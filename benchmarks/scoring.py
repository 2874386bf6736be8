"""Streamed OOD scores beside the bare graph function on the same batches, in turns; the cost of a
verdict beside logits and gradient.

    python benchmarks/scoring.py

Prints inputs per second and the ratio, which must stay above 0.9. The verdict is at batch 32, with
the network of Fashion-MNIST and a full bank; at most 3 times the cost of the gradient is the aim.
"""

import statistics
import time

import numpy as np
import tensorflow as tf

import jem_tf
from jem_tf import backbones, energy, evaluation

BATCH_SIZE, NUM_BATCHES, NUM_ROUNDS = 256, 40, 7
SHAPE = (28, 28, 1)


def main() -> float:
    """Return the median over rounds of the ratio of streamed to bare throughput."""
    network = backbones.convnet(SHAPE, 10, width=16)
    subject = evaluation.of(network)
    rows = tf.random.stateless_uniform([BATCH_SIZE * NUM_BATCHES, *SHAPE], [0, 0], -1.0, 1.0)
    batches = tf.split(rows, NUM_BATCHES)
    stream = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH_SIZE).prefetch(2)
    bare = tf.function(lambda x: energy.logits_density_and_norm(network, x))

    def seconds(run) -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    def loop() -> None:
        for batch in batches:
            bare(batch)[2].numpy()

    loop()  # traces
    subject.scores(stream)
    pairs = [(seconds(loop), seconds(lambda: subject.scores(stream))) for _ in range(NUM_ROUNDS)]
    ratio = statistics.median(b / s for b, s in pairs)
    for name, column in (("bare graph function", 0), ("streamed scores", 1)):
        rates = [BATCH_SIZE * NUM_BATCHES / pair[column] for pair in pairs]
        print(
            f"{name:<20} {statistics.median(rates):8.0f} inputs/s "
            f"({min(rates):.0f} to {max(rates):.0f})"
        )
    print(f"streamed / bare, median of {NUM_ROUNDS} rounds: {ratio:.2f}")
    measure_verdict(network)
    return ratio


def measure_verdict(network) -> None:
    """Print the time of logits, gradient and verdict at batch 32, in turns."""
    model = jem_tf.JEM(network, objective="cross_entropy")
    rows = np.random.default_rng(0).uniform(-1, 1, (5000, *SHAPE)).astype(np.float32)
    labels = np.arange(5000) % 10
    model.adapt(rows, labels)
    description = model.fit_detector(rows[:1000], labels[:1000], reference=(rows, labels))
    functions = {
        "logits": model.logits,
        "gradient": lambda x: energy.input_score(model.logits, x),
        "verdict": model.p_value,
    }
    traced = {name: tf.function(f, reduce_retracing=True) for name, f in functions.items()}
    batch, times = tf.constant(rows[:32]), {name: [] for name in functions}
    for turn in range(10 * NUM_ROUNDS):
        for name, function in traced.items():
            begin = time.perf_counter()
            function(batch).numpy()
            times[name] += [time.perf_counter() - begin] if turn > 5 else []
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"{name:<10} {1e6 * value / 32:8.1f} us an input at batch 32")
    print(
        f"verdict / gradient: {medians['verdict'] / medians['gradient']:.2f}; the detector has "
        f"{description['bytes'] / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()

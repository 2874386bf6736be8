"""Streamed OOD scores beside the bare graph function on the same batches, in turns.

    python benchmarks/scoring.py

Prints inputs per second and the ratio, which must stay above 0.9.
"""

import statistics
import time

import tensorflow as tf

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
    return ratio


if __name__ == "__main__":
    main()

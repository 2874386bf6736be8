"""Streaming OOD scores beside the bare graph function on the same batches, turn by turn.

`python benchmarks/scoring.py` prints inputs per second and the ratio, which has to stay above 0.9.
"""

import statistics
import time

import tensorflow as tf

from jem_tf import backbones, energy, evaluation

BATCH, BATCHES, ROUNDS = 256, 40, 7
SHAPE = (28, 28, 1)


def main() -> float:
    """The median over rounds of streamed to bare throughput."""
    network = backbones.convnet(SHAPE, 10, width=16)
    subject = evaluation.of(network)
    rows = tf.random.stateless_uniform([BATCH * BATCHES, *SHAPE], [0, 0], -1.0, 1.0)
    batches = tf.split(rows, BATCHES)
    stream = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH).prefetch(2)
    bare = tf.function(lambda x: energy.scored(network, x))

    def seconds(run) -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    def loop() -> None:
        for batch in batches:
            bare(batch)[2].numpy()

    loop(), subject.scores(stream)  # traced
    pairs = [(seconds(loop), seconds(lambda: subject.scores(stream))) for _ in range(ROUNDS)]
    ratio = statistics.median(b / s for b, s in pairs)
    for name, column in (("bare graph function", 0), ("streamed scores", 1)):
        times = [BATCH * BATCHES / pair[column] for pair in pairs]
        print(
            f"{name:<20} {statistics.median(times):8.0f} inputs/s "
            f"({min(times):.0f} to {max(times):.0f})"
        )
    print(f"streamed / bare, median of {ROUNDS} rounds: {ratio:.2f}")
    return ratio


if __name__ == "__main__":
    main()

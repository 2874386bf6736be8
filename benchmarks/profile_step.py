"""The time of a training step by kind of operation, measured by TensorFlow's profiler.

python benchmarks/profile_step.py WRN-10-2 --batch 32
"""

import argparse
import collections
import re
import tempfile
from pathlib import Path

from contender import NETWORKS, jem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20, help="sampler steps")
    parser.add_argument("--capacity", type=int, default=1000)
    parser.add_argument("--dtype", default="auto", help="of chains")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 in the update, too")
    parser.add_argument("--count", type=int, default=5, help="training steps to profile")
    parser.add_argument("--top", type=int, default=12, help="kinds of operation to print")
    options = parser.parse_args()
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    run = jem(options)
    run(2)
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            run(options.count)
        (file,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    durations: collections.Counter[str] = collections.Counter()
    calls: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                kind = re.search(r":(\w+)$", name)  # "name of the node:Kind"
                if kind and kind[1] not in ("Process", "Run") and not name.startswith("$"):
                    durations[kind[1]] += event.duration_ps
                    calls[kind[1]] += 1
    total = sum(durations.values())
    print(
        f"{options.network}, batch {options.batch}, {options.steps} sampler steps: "
        f"{total / 1e12 / options.count:.3f} s of operations in a step"
    )
    for kind, duration in durations.most_common(options.top):
        print(
            f"{100 * duration / total:5.1f} %  {calls[kind] / options.count:6.0f} per step  {kind}"
        )


if __name__ == "__main__":
    main()

"""Training steps side by side: this package, PyTorch, and cross-entropy alone; speed and memory.

    python benchmarks/training_step.py                       # all of docs/performance.md
    python benchmarks/training_step.py --networks WRN-10-2 --rounds 3 --no-growth

Each is a process of its own (`contender.py`); they take turns of a few seconds, so that a noisy
machine hits all. Medians of the rounds, their range, and medians of the rounds' ratios are printed;
everything is kept as JSON.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMPETING = {
    "JEM": ["JEM"],
    "PyTorch": ["PyTorch"],
    "PyTorch, channels last": ["PyTorch", "--channels-last"],
    "cross-entropy": ["cross-entropy"],
}
BATCHES = {"digits": 64, "WRN-10-2": 32, "WRN-16-4": 16}
GROWTH = {  # of WRN-10-2; the first of each is what the others are compared with
    "steps": (5, 10, 20),
    "batch": (16, 32, 64),
    "capacity": (1_000, 10_000, 50_000),
}


class Contender:
    """A process that trains when it is told to."""

    def __init__(self, words: list[str]):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "contender.py"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.turns: list[float] = []
        self.peak = 0.0
        self._told()

    def run(self, steps: int) -> float:
        """Seconds of `steps` training steps."""
        assert self.process.stdin is not None
        print(steps, file=self.process.stdin, flush=True)
        return self._told()

    def _told(self) -> float:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")
        found = json.loads(line)
        self.peak = found["peak_mb"]
        return found["seconds"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compete(
    competing: dict[str, list[str]], batches: dict[str, int], rounds: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Images per second of each in each round, and its peak of memory."""
    contenders = {name: Contender(words) for name, words in competing.items()}
    counts = {}
    for name, contender in contenders.items():
        contender.run(1)
        counts[name] = max(1, round(seconds / contender.run(1)))
    for _ in range(rounds):
        for name, contender in contenders.items():
            spent = contender.run(counts[name])
            contender.turns.append(counts[name] * batches[name] / spent)
    for contender in contenders.values():
        contender.close()
    return {n: {"images_per_second": c.turns, "peak_mb": c.peak} for n, c in contenders.items()}


def table(found: dict[str, dict[str, Any]], first: str, flops: dict[str, float]) -> str:
    """A line for each; ratios are to `first`, round by round."""
    lines = ["| | images/s | range | ratio | GFLOP/s | peak memory |", "|---|---|---|---|---|---|"]
    for name, one in found.items():
        rates = one["images_per_second"]
        ratio = statistics.median(
            mine / other for mine, other in zip(rates, found[first]["images_per_second"])
        )
        median = statistics.median(rates)
        work = f"{median * flops[name] / 1e9:.0f}" if name in flops else ""
        cells = [name, f"{median:.1f}", f"{min(rates):.1f} to {max(rates):.1f}", f"{ratio:.2f}"]
        cells += [work, f"{one['peak_mb']:.0f} MB"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def flops_of(network: str, steps: int | None) -> float:
    """Of a training step, for each image: passes forth of convolutions and dense layers, two for
    each sampler step (forth, and back to the input), three for each of an image and its sample in
    the update (forth, back to the inputs of layers, back to weights). Cross-entropy, without
    `steps`, has three."""
    import numpy as np
    from contender import network as make

    forth = 0
    for layer in make(network).layers:
        if hasattr(layer, "kernel"):
            places = np.prod(layer.output.shape[1:-1]) if layer.kernel.ndim == 4 else 1
            forth += 2 * int(np.prod(layer.kernel.shape)) * int(places)
    return forth * (3 if steps is None else 2 * steps + 6)


def peak_gflops() -> float:
    """What this machine reaches in large products of matrices, single precision."""
    import time

    import tensorflow as tf

    a = tf.random.normal((4096, 4096))
    product = tf.function(lambda: tf.matmul(a, a))
    product()
    best = 0.0
    for _ in range(8):
        begin = time.perf_counter()
        product().numpy()
        best = max(best, 2 * 4096**3 / (time.perf_counter() - begin) / 1e9)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--contenders", nargs="+", choices=list(COMPETING), default=list(COMPETING))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn")
    parser.add_argument("--no-growth", dest="growth", action="store_false")
    parser.add_argument("--json", type=Path, default=Path("runs/bench/training_step.json"))
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    peak = peak_gflops()
    machine = {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "peak_gflops": peak}
    print(f"{machine['cpu']}, {machine['cores']} cores; products of matrices: {peak:.0f} GFLOP/s")
    kept: dict[str, Any] = {"machine": machine}
    for name in options.networks:
        batch = BATCHES[name]
        words = [name, "--batch", str(batch)]
        competing = {n: [COMPETING[n][0], *words, *COMPETING[n][1:]] for n in options.contenders}
        batches = dict.fromkeys(competing, batch)
        found = compete(competing, batches, options.rounds, options.seconds)
        work = {n: flops_of(name, None if n == "cross-entropy" else 20) for n in competing}
        print(
            f"\n{name}, batch {batch}, 20 sampler steps\n\n{table(found, 'JEM', work)}", flush=True
        )
        kept[name] = {"batch": batch, "flops": work, "found": found}
    for what, values in GROWTH.items() if options.growth else ():
        settings = {f"{what} {v}": {"batch": 32, "steps": 20, what: v} for v in values}
        competing = {
            n: ["JEM", "WRN-10-2", *(w for k, v in s.items() for w in (f"--{k}", str(v)))]
            for n, s in settings.items()
        }
        batches = {n: s["batch"] for n, s in settings.items()}
        found = compete(competing, batches, 3, options.seconds)
        work = {n: flops_of("WRN-10-2", s["steps"]) for n, s in settings.items()}
        print(f"\nJEM, WRN-10-2, by {what}\n\n{table(found, next(iter(found)), work)}", flush=True)
        kept[f"growth by {what}"] = found
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"\nWrote {options.json}")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()

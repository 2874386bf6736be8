"""Speed and memory of training steps: this package, PyTorch, and cross-entropy alone.

    python benchmarks/training_step.py                       # docs/results/performance.md
    python benchmarks/training_step.py --networks WRN-10-2 --rounds 3 --no-growth

Each contender is a process of its own (`contender.py`). They take turns of a few seconds, so that
noise affects all of them. Prints medians and ranges over the rounds, and medians of the ratios
within a round; writes everything as JSON.
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
CONTENDERS = {
    "JEM": ["JEM"],
    "JEM, float32": ["JEM", "--dtype", "float32"],
    "JEM, bfloat16": ["JEM", "--autocast"],
    "PyTorch": ["PyTorch"],
    "PyTorch, channels last": ["PyTorch", "--channels-last"],
    "PyTorch, compiled": ["PyTorch", "--channels-last", "--compile"],
    "PyTorch, bfloat16": ["PyTorch", "--channels-last", "--autocast"],
    "cross-entropy": ["cross-entropy"],
}
SETTINGS = {  # batch and sampler steps; the last is the recipe `fashion_mnist_fast`
    "digits": (64, 20),
    "WRN-10-2": (32, 20),
    "WRN-16-4": (16, 20),
    "fashion_mnist": (64, 4),
}
GROWTH = {  # of WRN-10-2; the others are compared with the first of each
    "steps": (5, 10, 20),
    "batch": (16, 32, 64),
    "capacity": (1_000, 10_000, 50_000),
}


class Contender:
    """A process that runs training steps on request."""

    def __init__(self, arguments: list[str]):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "contender.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.rates: list[float] = []
        self.peak_mb = 0.0
        self._read()

    def run(self, steps: int) -> float:
        """Run `steps` training steps; return their seconds."""
        assert self.process.stdin is not None
        print(steps, file=self.process.stdin, flush=True)
        return self._read()

    def _read(self) -> float:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")
        report = json.loads(line)
        self.peak_mb = report["peak_mb"]
        return report["seconds"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compete(
    arguments: dict[str, list[str]], batches: dict[str, int], rounds: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Return images per second of each contender in each round, and its peak memory."""
    contenders = {name: Contender(words) for name, words in arguments.items()}
    counts = {}
    for name, contender in contenders.items():
        contender.run(1)
        counts[name] = max(1, round(seconds / contender.run(1)))
    for _ in range(rounds):
        for name, contender in contenders.items():
            elapsed = contender.run(counts[name])
            contender.rates.append(counts[name] * batches[name] / elapsed)
    for contender in contenders.values():
        contender.close()
    return {
        name: {"images_per_second": contender.rates, "peak_mb": contender.peak_mb}
        for name, contender in contenders.items()
    }


def table(results: dict[str, dict[str, Any]], first: str, flops: dict[str, float]) -> str:
    """Return a line for each result; ratios are those of `first` to it, within a round."""
    columns = ["", "images/s", "range", f"{first} by it", "GFLOP/s", "peak memory"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, result in results.items():
        rates = result["images_per_second"]
        ratio = statistics.median(
            reference / rate for rate, reference in zip(rates, results[first]["images_per_second"])
        )
        median = statistics.median(rates)
        gflops = f"{median * flops[name] / 1e9:.0f}" if name in flops else ""
        cells = [name, f"{median:.1f}", f"{min(rates):.1f} to {max(rates):.1f}", f"{ratio:.2f}"]
        cells += [gflops, f"{result['peak_mb']:.0f} MB"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def flops_of(network: str, steps: int | None) -> float:
    """Return the floating-point operations of a training step per image.

    Counted in forward passes of convolutions and dense layers: two per sampler step (forward, and
    backward to the input), and three for an image and for its sample in the update (forward,
    backward to the inputs of layers, backward to weights). Without `steps`: cross-entropy, three.
    """
    import numpy as np
    from contender import network as make

    forward = 0
    for layer in make(network).layers:
        if hasattr(layer, "kernel"):
            positions = np.prod(layer.output.shape[1:-1]) if layer.kernel.ndim == 4 else 1
            forward += 2 * int(np.prod(layer.kernel.shape)) * int(positions)
    return forward * (3 if steps is None else 2 * steps + 6)


def peak_gflops() -> float:
    """Return the speed of this machine in large matrix products, single precision."""
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


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    names = list(CONTENDERS)
    parser.add_argument("--contenders", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn")
    parser.add_argument("--no-growth", dest="growth", action="store_false")
    parser.add_argument("--json", type=Path, default=Path("runs/bench/training_step.json"))
    return parser.parse_args()


def compare(network: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure all contenders on `network`, and print the table."""
    batch, steps = SETTINGS[network]
    flags = ["--batch", str(batch), "--steps", str(steps)]
    arguments = {
        name: [CONTENDERS[name][0], network, *flags, *CONTENDERS[name][1:]]
        for name in options.contenders
    }
    batches = dict.fromkeys(arguments, batch)
    results = compete(arguments, batches, options.rounds, options.seconds)
    flops = {n: flops_of(network, None if n == "cross-entropy" else steps) for n in arguments}
    print(f"\n{network}, batch {batch}, {steps} sampler steps\n", flush=True)
    print(table(results, "JEM" if "JEM" in results else next(iter(results)), flops), flush=True)
    return {"batch": batch, "flops": flops, "results": results}


def measure_growth(flag: str, values: tuple[int, ...], seconds: float) -> dict[str, Any]:
    """Measure JEM with WRN-10-2 for each value of `flag`, and print the table."""
    settings = {f"{flag} {value}": {"batch": 32, "steps": 20, flag: value} for value in values}
    arguments = {
        name: ["JEM", "WRN-10-2", *(w for k, v in s.items() for w in (f"--{k}", str(v)))]
        for name, s in settings.items()
    }
    batches = {name: s["batch"] for name, s in settings.items()}
    results = compete(arguments, batches, 3, seconds)
    flops = {name: flops_of("WRN-10-2", s["steps"]) for name, s in settings.items()}
    print(f"\nJEM, WRN-10-2, by {flag}\n\n{table(results, next(iter(results)), flops)}", flush=True)
    return results


def main() -> None:
    options = parse_arguments()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    peak = peak_gflops()
    machine = {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "peak_gflops": peak}
    print(f"{machine['cpu']}, {machine['cores']} cores; matrix products: {peak:.0f} GFLOP/s")
    report: dict[str, Any] = {"machine": machine}
    for network in options.networks:
        report[network] = compare(network, options)
    for flag, values in GROWTH.items() if options.growth else ():
        report[f"growth by {flag}"] = measure_growth(flag, values, options.seconds)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nWrote {options.json}")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()

"""A process of `training_step.py`: prepares one kind of training, then times steps of it.

    echo 5 | python benchmarks/contender.py JEM WRN-10-2 --batch 32 --steps 20 --capacity 1000

Prints a line of JSON when it is ready, and one for each number of steps that it reads from stdin.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

NETWORKS = {  # shape of the input, and the function of `jem_tf.backbones` with its options
    "digits": ((8, 8, 1), "convnet", {"width": 32}),
    "fashion_mnist": ((28, 28, 1), "convnet", {"width": 16}),
    "WRN-10-2": ((32, 32, 3), "wide_resnet", {"depth": 10, "width": 2}),
    "WRN-16-4": ((32, 32, 3), "wide_resnet", {"depth": 16, "width": 4}),
    "WRN-28-10": ((32, 32, 3), "wide_resnet", {"depth": 28, "width": 10}),
}
NUM_CLASSES, NUM_ROWS = 10, 512


def rows(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return noise and labels: the content of an image does not change the time of a step."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (NUM_ROWS, *shape)).astype(np.float32)
    return x, rng.integers(NUM_CLASSES, size=NUM_ROWS)


def network(name: str) -> Any:
    from jem_tf import backbones

    shape, make, options = NETWORKS[name]
    return getattr(backbones, make)(shape, NUM_CLASSES, **options)


def time_fit(model: Any, options: argparse.Namespace) -> Callable[[int], float]:
    """Return a function that runs steps of Keras' `fit` and returns their seconds.

    The first step is not counted, because `fit` starts in it.
    """
    import keras
    import tensorflow as tf

    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda *_, **__: ends.append(time.perf_counter())
    )

    data = tf.data.Dataset.from_tensor_slices(rows(NETWORKS[options.network][0]))
    data = data.repeat().batch(options.batch).prefetch(2)

    def run(steps: int) -> float:
        ends.clear()
        model.fit(data, steps_per_epoch=steps + 1, callbacks=[clock], verbose=0, shuffle=False)
        return ends[-1] - ends[0]

    return run


def jem(options: argparse.Namespace) -> Callable[[int], float]:
    """JEM of this package."""
    import keras

    import jem_tf

    jem_tf.side_by_side()
    if options.autocast:
        keras.config.set_dtype_policy("mixed_bfloat16")
    model = jem_tf.JEM(
        network(options.network),
        sampler=jem_tf.SGLD(options.steps, step_size=1.0, noise=0.01, dtype=options.dtype),
        buffer=jem_tf.ReplayBuffer(options.capacity),
        input_noise=0.03,
    )
    model.compile(keras.optimizers.Adam(1e-4), metrics=["accuracy"])
    return time_fit(model, options)


def cross_entropy(options: argparse.Namespace) -> Callable[[int], float]:
    """Cross-entropy with Keras, of the same network."""
    import keras

    model = network(options.network)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss=loss, metrics=["accuracy"])
    return time_fit(model, options)


def pytorch(options: argparse.Namespace) -> Callable[[int], float]:
    """The same algorithm in PyTorch, `torch_jem.py`."""
    import torch
    import torch_jem

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    shape, make, settings = NETWORKS[options.network]
    if make == "convnet":
        model = torch_jem.convnet(NUM_CLASSES, settings["width"], shape[0], shape[2])
    else:
        model = torch_jem.Classifier(**settings)
    layout = {
        "memory_format": torch.channels_last if options.channels_last else torch.contiguous_format
    }
    if options.compile:
        model = torch.compile(model.to(**layout))
    trainer = torch_jem.Trainer(
        model, (shape[2], *shape[:2]), options.capacity, options.steps, layout=layout
    )
    x, y = rows(shape)
    x = torch.from_numpy(np.moveaxis(x, -1, 1).copy()).to(**layout)
    y = torch.from_numpy(y)
    parts = [
        (x[i : i + options.batch], y[i : i + options.batch])
        for i in range(0, NUM_ROWS - options.batch + 1, options.batch)
    ]

    def run(steps: int) -> float:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.autocast):
            for step in range(steps):
                trainer.step(*parts[step % len(parts)])
        return time.perf_counter() - begin

    return run


CONTENDERS = {"JEM": jem, "PyTorch": pytorch, "cross-entropy": cross_entropy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(CONTENDERS))
    parser.add_argument("network", choices=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20, help="sampler steps")
    parser.add_argument("--capacity", type=int, default=1000)
    parser.add_argument("--dtype", default="auto", help="of chains of JEM")
    parser.add_argument("--channels-last", action="store_true", help="layout of PyTorch")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 in the update, too")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    options = parser.parse_args()
    run = CONTENDERS[options.name](options)
    run(1)  # traces, or chooses kernels
    report(0.0)
    for line in sys.stdin:
        report(run(int(line)))


def report(seconds: float) -> None:
    print(json.dumps({"seconds": seconds, "peak_mb": peak_mb()}), flush=True)


def peak_mb() -> float:
    """Return the peak memory of this process (`ru_maxrss` would include that of its parent)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in status if x.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()

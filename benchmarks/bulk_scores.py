"""Rate and memory of `jem_tf.score` against the bare graph, on 100 000 small images in one process.

    python benchmarks/bulk_scores.py [--rows 100000] [--broken 0.01]

The bare graph is the signature `serving_default` of the same export, called with batches that are
in memory already. Each source is scored in a process of its own, a tenth of the rows first: memory
is constant if its peak is the same for both. Loading the model is not counted.
"""

import argparse
import io
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

import jem_tf
from jem_tf import backbones

SHAPE = (28, 28, 1)
BATCH = 256


def export_model(directory: Path) -> Path:
    """Export a network for Fashion-MNIST with a fitted detector, trained on noise for a moment."""
    rng = np.random.default_rng(0)
    y = np.arange(1000) % 10
    x = np.clip(rng.normal(0.1 * y[:, None, None, None] - 0.5, 0.3, (1000, *SHAPE)), -1, 1)
    x = x.astype(np.float32)
    model = jem_tf.JEM(backbones.convnet(SHAPE, 10), seed=0, objective="cross_entropy")
    model.compile("adam")
    model.fit(x, y, verbose=0)
    options = {"calibrate": (x, y), "pixel_range": (-1.0, 1.0), "warmup_batches": (1,)}
    return jem_tf.export(model, directory / "model", **options)


def write_images(directory: Path, rows: int, broken: float) -> tuple[Path, Path]:
    """Write `rows` PNG files, some of them broken, and the same images as an `.npz` file."""
    rng = np.random.default_rng(1)
    every = round(1 / broken) if broken else rows + 1
    folder = directory / "images"
    pixels = rng.integers(0, 256, (1000, *SHAPE), dtype=np.uint8)
    files = []
    for image in pixels:
        file = io.BytesIO()
        Image.fromarray(image[..., 0]).save(file, "PNG")
        files.append(file.getvalue())
    for i in range(rows):
        (folder / f"{i // 1000:03d}").mkdir(parents=True, exist_ok=True)
        content = files[i % 1000]
        content = content[: len(content) // 2] if i % every == every - 1 else content
        (folder / f"{i // 1000:03d}" / f"{i:06d}.png").write_bytes(content)
    array = np.resize(pixels, (rows, *SHAPE))
    np.savez(directory / "rows.npz", x=array)
    return folder, directory / "rows.npz"


def bare_rate(version: Path, seconds: float = 10.0) -> float:
    """Rows per second of the signature itself."""
    loaded = tf.saved_model.load(str(version))
    call = loaded.signatures["serving_default"]
    rng = np.random.default_rng(2)
    x = tf.constant(rng.uniform(-1, 1, (BATCH, *SHAPE)).astype(np.float32))
    call(inputs=x)
    begin, batches = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        {name: value.numpy() for name, value in call(inputs=x).items()}
        batches += 1
    return batches * BATCH / (time.perf_counter() - begin)


def score_in_new_process(version: Path, data: Path) -> tuple[jem_tf.scoring.Summary, float, float]:
    """Return the summary, seconds without loading the model, and the peak of memory in MB."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_score, version, data).result()


def _score(version: Path, data: Path) -> tuple[jem_tf.scoring.Summary, float, float]:
    one = jem_tf.score(version.parent, np.zeros((1, *SHAPE), np.float32), data.parent / "1.csv")
    summary = jem_tf.score(version.parent, data, data.parent / f"{data.name}.parquet")
    (data.parent / "1.csv").unlink()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return summary, summary.seconds - one.seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--broken", type=float, default=0.01, help="share of files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        version = export_model(Path(name))
        print(f"bare graph: {bare_rate(version):.0f} rows/s")
        for rows in (arguments.rows // 10, arguments.rows):
            directory = Path(name) / str(rows)
            for data in write_images(directory, rows, arguments.broken):
                summary, seconds, peak = score_in_new_process(version, data)
                print(
                    f"{data.name}: {rows} rows, {summary.errors} errors, "
                    f"{rows / seconds:.0f} rows/s, peak of memory {peak:.0f} MB",
                    flush=True,
                )
        print(f"bare graph: {bare_rate(version):.0f} rows/s")


if __name__ == "__main__":
    main()

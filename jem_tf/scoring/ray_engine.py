"""Scores by several processes or machines: Ray Data hands out the parts.

Not here: how a part is scored (`batches.py`). A worker loads the model once, and writes each part
whole. If a worker dies, Ray starts another one, which scores its part again.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from jem_tf.scoring.parts import Parts
from jem_tf.scoring.scoring import Job, progress


class PartScorer:
    """A worker: opens the model and the rows of `job`, then scores one part after the other."""

    def __init__(self, job: Job, parts: Parts):
        self._job, self._parts = job, parts
        self._scorer, self._rows = job.open_scorer(), job.open_rows()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Score the parts with the numbers in `batch`; add the false alarm rate, or NaN."""
        from jem_tf.scoring.batches import score_batches

        for number in map(int, batch["item"]):
            bounds = self._parts.bounds(number)
            tables = score_batches(self._scorer, self._rows, *bounds, self._job.batch_size)
            self._parts.write_all(number, tables, lambda _: None)
        rate = self._scorer.false_alarm_rate or np.nan
        return {**batch, "rate": np.full(len(batch["item"]), rate)}


def score_parts(job: Job, parts: Parts, workers: int, address: str | None) -> float | None:
    """Score all missing parts with Ray; return the model's false alarm rate, if known.

    `address` None: on this machine.
    """
    import keras

    if isinstance(job.model, keras.Model):
        raise ValueError("Workers of Ray load the model themselves: pass a path or an address.")
    missing = parts.missing()
    if not missing:
        return None
    rate = np.nan
    with _connected(workers, address) as ray, progress(parts) as bar:
        tasks = ray.data.from_items(missing, override_num_blocks=len(missing))
        done = tasks.map_batches(
            PartScorer,
            fn_constructor_args=(job, parts),
            batch_size=1,
            concurrency=min(workers, len(missing)),
            num_cpus=1,
        )
        for row in done.iter_rows():
            begin, end = parts.bounds(int(row["item"]))
            bar.update(end - begin)
            rate = row["rate"]
    return None if np.isnan(rate) else float(rate)


@contextlib.contextmanager
def _connected(workers: int, address: str | None) -> Iterator[Any]:
    """Yield `ray`, connected to a cluster, or started here for the time of the block."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ValueError(f"{error}: --engine ray needs `pip install jem_tf[ray]`.") from error

    started = not ray.is_initialized()
    if started and address is None:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    elif started:
        ray.init(address, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()

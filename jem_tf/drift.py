"""Drift of a stream of inputs: one alarm with a known rate, from the p-values of its inputs.

Not here: the p-values (`detection/conformal.py`). Only NumPy: servers and clients use it.

    u_i = rank of input i among the calibration rows and the inputs before it, between 0 and 1
    M_i = mean over e of M_i(e),    M_i(e) = e u_i^(e - 1) (1 + M_{i-1}(e))

Without drift the u_i are independent and uniform, whatever the calibration rows are (Vovk et al.),
and each factor has the mean 1. So M is a Shiryaev-Roberts detector: the mean number of inputs
before it reaches c is at least c (Shin, Ramdas and Rinaldo). Unusual inputs make it grow.
"""

import math
from typing import Any

import numpy as np

EXPONENTS = (0.1, 0.3, 0.5, 0.7, 0.9)  # e; the smallest bets on very unusual inputs


class DriftMonitor:
    """Watches the p-values of a stream of inputs.

    ```python
    monitor = DriftMonitor(rows=5000)
    monitor.update([0.9, 0.2, 0.4])    # as from `model.p_value(x)`; the number of new alarms
    monitor.evidence                   # log10 M: an alarm is raised at 6
    ```

    After an alarm it starts again, so that drift which goes on raises another one.

    Args:
        rows: the number of calibration rows of the detector, `detector.rows` in `jem.json`. The
            rate of false alarms is exact for this number, and nearly so for smaller ones.
        inputs_per_false_alarm: without drift, there are on average at least so many inputs before
            an alarm.
        seed: of the order of inputs with equal p-values.
    """

    def __init__(self, rows: int, inputs_per_false_alarm: float = 1e6, seed: int = 0):
        if rows < 1:
            raise ValueError(f"`rows` must be a positive integer. Received: rows={rows!r}")
        if inputs_per_false_alarm <= 1:
            raise ValueError(
                "`inputs_per_false_alarm` must be greater than 1. "
                f"Received: inputs_per_false_alarm={inputs_per_false_alarm!r}"
            )
        self.rows, self.inputs_per_false_alarm = int(rows), float(inputs_per_false_alarm)
        self.alarms = 0
        self._rng = np.random.default_rng(seed)
        self._restart()

    @property
    def evidence(self) -> float:
        """log10 M."""
        mean = sum(self._m) / len(self._m)
        return math.log10(mean) if mean > 0.0 else -math.inf

    def update(self, p_values: Any) -> int:
        """Add the p-values `[n]` of inputs, in their order; return the number of new alarms."""
        before = self.alarms
        for p_value in np.atleast_1d(np.nan_to_num(p_values, nan=0.0)):
            self._add(float(p_value))
        return self.alarms - before

    def _restart(self) -> None:
        self._m = [0.0] * len(EXPONENTS)
        self._num_seen = 0
        self._seen = np.zeros(self.rows + 1, np.int64)  # inputs with k calibration rows below them

    def _rank(self, p_value: float) -> float:
        """u of the next input."""
        below = min(max(round(p_value * (self.rows + 1)) - 1, 0), self.rows)
        among_equals = self._rng.random() * (int(self._seen[below]) + 1)  # a random order
        rank = below + int(self._seen[:below].sum()) + among_equals
        self._seen[below] += 1
        self._num_seen += 1
        return rank / (self.rows + self._num_seen)

    def _add(self, p_value: float) -> None:
        u = max(self._rank(p_value), 1e-300)
        self._m = [e * u ** (e - 1.0) * (1.0 + m) for e, m in zip(EXPONENTS, self._m)]
        if sum(self._m) >= len(self._m) * self.inputs_per_false_alarm:
            self.alarms += 1
            self._restart()

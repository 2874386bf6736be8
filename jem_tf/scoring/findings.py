"""What stands out in a table of scores, gathered in one pass with constant memory.

Not here: the page about it (`report.py`).
"""

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LARGEST = 24  # inputs and label errors that are kept


@dataclass
class ClassFindings:
    """The rows of one predicted class."""

    rows: int = 0
    flagged: int = 0
    p_values: np.ndarray = field(default_factory=lambda: np.zeros(20, np.int64))  # histogram


class Findings:
    """Counts, the strangest rows, and likely label errors.

    ```python
    findings = Findings()
    findings.add(table)
    findings.flagged / findings.rows
    ```

    Attributes:
        strangest: `(ood_score, row, id, class)`, least like the training data first.
        label_errors: `(probability, row, id, class, label)` where class and label differ, most
            confident first.
    """

    def __init__(self) -> None:
        self.rows = self.errors = self.judged = self.flagged = self.labelled = self.agreeing = 0
        self.reasons: dict[str, int] = {}  # of errors, by message
        self.classes: dict[str, ClassFindings] = {}
        self._strangest: list[tuple[Any, ...]] = []  # heaps
        self._label_errors: list[tuple[Any, ...]] = []

    def add(self, table: Any) -> None:
        """Add the next rows, an Arrow table of scores."""
        columns = {name: table[name].to_pylist() for name in ("id", "class", "label", "error")}
        scores, p_values, probabilities, flags = (
            table[name].to_numpy().astype(float)
            for name in ("ood_score", "p_value", "probability", "is_ood")
        )
        judged = ~np.isnan(flags)  # rows with a verdict
        flags = flags == 1
        for i, error in enumerate(columns["error"]):
            row = self.rows + i
            if error is not None:
                self.errors += 1
                if len(self.reasons) < LARGEST or error in self.reasons:
                    self.reasons[error] = self.reasons.get(error, 0) + 1
                continue
            name, label = columns["class"][i], columns["label"][i]
            group = self.classes.setdefault(name, ClassFindings())
            group.rows += 1
            if judged[i]:
                self.judged += 1
                self.flagged += int(flags[i])
                group.flagged += int(flags[i])
                group.p_values[min(int(20 * p_values[i]), 19)] += 1
            _keep(self._strangest, (-scores[i], row, columns["id"][i], name))
            if label is None:
                continue
            self.labelled += 1
            self.agreeing += name == label
            if name != label and not flags[i]:
                entry = (probabilities[i], row, columns["id"][i], name, label)
                _keep(self._label_errors, entry)
        self.rows += len(table)

    @property
    def strangest(self) -> list[tuple[Any, ...]]:
        return [(-score, *rest) for score, *rest in sorted(self._strangest, reverse=True)]

    @property
    def label_errors(self) -> list[tuple[Any, ...]]:
        return sorted(self._label_errors, reverse=True)


def _keep(heap: list[tuple[Any, ...]], entry: tuple[Any, ...]) -> None:
    """Keep the largest entries."""
    (heapq.heappush if len(heap) < LARGEST else heapq.heappushpop)(heap, entry)

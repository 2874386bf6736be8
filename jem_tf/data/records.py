"""TFRecord files of `tf.train.Example` as rows: an encoded image, or a list of numbers.

Not here: TensorFlow Datasets, which know their features (`sources.py`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.data.rows import RowBatch, Rows

INPUTS = ("image/encoded", "image", "image_raw", "x", "inputs", "features")  # the first is taken
LABELS = ("label", "image/class/label", "y")


class RecordRows(Rows):
    """The records of a TFRecord file.

    ```python
    RecordRows(Path("photos.tfrecord"))
    ```
    """

    def __init__(self, path: Path):
        self.path, self.files = path, [str(path)]
        count = 0
        try:
            for record in self._records():
                if count == 0:
                    first = record
                count += 1
        except tf.errors.DataLossError as error:
            raise ValueError(f"Cannot read {str(path)!r}: {error.message}") from error
        if not count:
            raise ValueError(f"{str(path)!r} has no records.")
        self._count = count
        features = tf.train.Example.FromString(first).features.feature
        self._input = next((name for name in INPUTS if name in features), None)
        self._label = next((name for name in LABELS if name in features), None)
        if self._input is None:
            raise ValueError(
                f"The examples of {str(path)!r} must have one of the features "
                f"{', '.join(INPUTS)}. Received: {', '.join(sorted(features))}"
            )
        self.is_images = bool(features[self._input].bytes_list.value)

    def __len__(self) -> int:
        return self._count

    def _records(self, start: int = 0) -> Iterator[bytes]:
        return iter(tf.data.TFRecordDataset(str(self.path)).skip(start).as_numpy_iterator())

    def batches(self, start: int = 0, size: int = 256) -> Iterator[RowBatch]:
        dataset = tf.data.TFRecordDataset(str(self.path)).skip(start).batch(size)
        for records in dataset.as_numpy_iterator():
            examples = [tf.train.Example.FromString(record).features.feature for record in records]
            labels = [self._read_label(example) for example in examples]
            ids = [str(number) for number in range(start, start + len(records))]
            if self.is_images:
                contents = [(e[self._input].bytes_list.value or [b""])[0] for e in examples]
                yield RowBatch(ids, contents, labels)
            else:
                yield self._numbers(ids, [e[self._input] for e in examples], labels)
            start += len(records)

    def _read_label(self, example: Any) -> Any:
        if self._label is None:
            return None
        value = example[self._label]
        values = value.int64_list.value or [v.decode() for v in value.bytes_list.value]
        return values[0] if values else None

    def _numbers(self, ids: list[str], features: list[Any], labels: list[Any]) -> RowBatch:
        """Lists of numbers as one array; a list of another length is an error of its row."""
        lists = [list(f.float_list.value or f.int64_list.value) for f in features]
        length = max(map(len, lists))
        wrong = {i: f"{len(v)} values" for i, v in enumerate(lists) if len(v) != length}
        x = np.zeros((len(lists), length), np.float32)
        for index, values in enumerate(lists):
            if index not in wrong:
                x[index] = values
        return RowBatch(ids, x, labels, wrong)

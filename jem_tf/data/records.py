"""TFRecord files of `tf.train.Example` as rows: an encoded image, or a list of numbers.

Not here: TensorFlow Datasets, which know their features (`sources.py`).
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from jem_tf.data.rows import RowBatch, Rows, row_numbers

INPUTS = ("image/encoded", "image", "image_raw", "x", "inputs", "features")  # the first is taken
INSPECTED = 100  # records that decide what the others should be
LABELS = ("label", "image/class/label", "y")


class RecordRows(Rows):
    """The records of a TFRecord file.

    ```python
    RecordRows(Path("photos.tfrecord"))
    ```
    """

    def __init__(self, path: Path):
        self.path, self.files = path, [str(path)]
        first: list[bytes] = []
        count = 0
        try:
            for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                if count < INSPECTED:
                    first.append(record)
                count += 1
        except tf.errors.DataLossError as error:
            raise ValueError(f"Cannot read {str(path)!r}: {error.message}") from error
        if not count:
            raise ValueError(f"{str(path)!r} has no records.")
        self._count = count
        examples = [example for record in first if (example := _parse(record))]
        features = sorted({name for example in examples for name in example})
        self._input = next((name for name in INPUTS if name in features), None)
        self._label = next((name for name in LABELS if name in features), None)
        if self._input is None:
            raise ValueError(
                f"The examples of {str(path)!r} must have one of the features "
                f"{', '.join(INPUTS)}. Received: {', '.join(features) or 'no features'}"
            )
        values = [example[self._input] for example in examples if self._input in example]
        self.is_images = bool(values[0].bytes_list.value)
        self._length = Counter(len(_floats(value)) for value in values).most_common(1)[0][0]

    def __len__(self) -> int:
        return self._count

    def batches(self, start: int = 0, size: int = 256) -> Iterator[RowBatch]:
        dataset = tf.data.TFRecordDataset(str(self.path)).skip(start).batch(size)
        for records in dataset.as_numpy_iterator():
            examples = [_parse(record) for record in records]
            batch = RowBatch(row_numbers(start, len(records)), [], None, {})
            batch.labels = [self._read_label(example) for example in examples]
            inputs: list[Any] = []
            for index, example in enumerate(examples):
                if example is None or self._input not in example:
                    what = "no tf.train.Example" if example is None else f"no {self._input!r}"
                    batch.errors[index] = what
                    inputs.append(tf.train.Feature())
                else:
                    inputs.append(example[self._input])
            batch.x = self._read_files(inputs) if self.is_images else self._read(inputs, batch)
            yield batch
            start += len(records)

    def _read_label(self, example: Any) -> Any:
        if example is None or self._label is None or self._label not in example:
            return None
        value = example[self._label]
        texts = [text.decode(errors="replace") for text in value.bytes_list.value]
        values = value.int64_list.value or texts
        return values[0] if values else None

    def _read_files(self, inputs: list[Any]) -> list[bytes]:
        return [(value.bytes_list.value or [b""])[0] for value in inputs]

    def _read(self, inputs: list[Any], batch: RowBatch) -> np.ndarray:
        """Lists of numbers as one array; a list of another length is an error of its row."""
        x = np.zeros((len(inputs), self._length), np.float32)
        for index, value in enumerate(inputs):
            floats = _floats(value)
            if len(floats) == self._length:
                x[index] = floats
            else:
                text = f"{len(floats)} values; other records have {self._length}"
                batch.errors.setdefault(index, text)
        return x


def _parse(record: bytes) -> Any:
    """Return the features of a record by name; None if it is no `tf.train.Example`."""
    try:
        return tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return None


def _floats(value: Any) -> Any:
    return value.float_list.value or value.int64_list.value

"""Rows to score, from any source, in order and a batch at a time: constant memory.

Not here: splits and labels to train on (`sources.py`).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf.data import images, sources, tables
from jem_tf.data.dataset import SPLITS, Dataset

OTHER_SUFFIXES = (*tables.SUFFIXES, ".npz", ".tfrecord")  # files that are not images
ANY_SIZE = 32  # of images without a common size


@dataclass
class RowBatch:
    """Consecutive rows: `x` is an array `[n, ...]`, or the contents of image files.

    ```python
    for batch in open_rows("photos/").batches():
        batch.ids, batch.x
    ```

    `labels` are class names or numbers, None where unknown. Rows with an entry in `errors`, by
    index, have no valid `x`.
    """

    ids: list[str]
    x: np.ndarray | list[bytes]
    labels: list[Any] | None = None
    errors: dict[int, str] = field(default_factory=dict)


class Rows(ABC):
    """A source of rows; `len` is their number.

    ```python
    rows = open_rows("irises.csv", label="species")
    len(rows), rows.is_images
    ```
    """

    is_images: bool = False  # `x` of a batch are image files
    pixel_range: tuple[float, float] | None = None  # black and white in `x`; None: not known
    files: Sequence[str] | None = ()  # that hold the rows, if known; None for rows in memory
    labels_are_names: bool = False  # numbers among labels are names of classes, not indices

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batches(self, start: int = 0, size: int = 256) -> Iterator[RowBatch]:
        """Yield batches of up to `size` rows, from row `start` to the end."""

    def select(self, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Yield the rows with the ascending `numbers` and their `x`, in one pass over the data."""
        start, wanted = (numbers or [0])[0], deque(numbers)
        for batch in self.batches(start) if numbers else ():
            while wanted and wanted[0] < start + len(batch.ids):
                yield wanted[0], batch.x[wanted.popleft() - start]
            if not wanted:
                return
            start += len(batch.ids)

    def resized(self, shape: tuple[int, ...] | None) -> "Rows":
        """Return the rows with images of `shape`, if this source can resize them."""
        return self


def open_rows(
    data: Any,
    *,
    split: str = "test",
    label: str | None = None,
    row_id: str | None = None,
    columns: Sequence[str] | None = None,
    data_dir: str | None = None,
) -> Rows:
    """Open the rows of `data`.

    ```python
    open_rows("photos/")           # image files in any depth
    open_rows(["a.png", "b.jpg"])
    open_rows("irises.parquet", label="species")
    ```

    Args:
        data: a folder, an image file, a `.txt` file with a path in each line, or a list of these;
            an array, an `.npz`, `.csv`, `.parquet` or `.tfrecord` file, "digits", or the name of a
            set of TensorFlow Datasets.
        split: of an `.npz` file with several, of digits and of TensorFlow Datasets.
        label: the column of labels of a table.
        row_id: the column of a table that identifies a row.
        columns: the inputs of a table; by default all other columns.
        data_dir: the directory of TensorFlow Datasets.
    """
    if isinstance(data, np.ndarray):
        return ArrayRows(data)
    if isinstance(data, (list, tuple)) and len(data) > 1:
        return FileRows([file for path in data for file in _image_files(Path(path))])
    path = Path(data[0] if isinstance(data, (list, tuple)) else data)
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in (*images.SUFFIXES, ".txt"):
        return FileRows(_image_files(path))
    if suffix in OTHER_SUFFIXES and not path.is_file():
        raise ValueError(f"There is no file {str(path)!r}.")
    if suffix in tables.SUFFIXES:
        return TableRows(path, label, row_id, columns)
    if suffix == ".npz":
        from jem_tf.data.npz import NpzRows

        return NpzRows(path, split)
    if suffix == ".tfrecord":
        from jem_tf.data.records import RecordRows

        return RecordRows(path)
    if path.exists():
        raise ValueError(
            "Data to score must be a folder, image files, .txt, .npz, .csv, .parquet or .tfrecord, "
            f"or the name of a data set. Received: {str(data)!r}"
        )
    return DatasetRows(str(data), split, data_dir)


def _image_files(path: Path) -> list[str]:
    """The image files that `path` stands for: those of a folder or of a list, or itself."""
    if path.is_dir():
        files = (p for p in path.rglob("*") if p.suffix.lower() in images.SUFFIXES)
        return sorted(str(p) for p in files if p.is_file())
    suffix = path.suffix.lower()
    if suffix == ".txt":
        return path.read_text().splitlines()
    if suffix in OTHER_SUFFIXES or (suffix not in images.SUFFIXES and not path.is_file()):
        raise ValueError(
            "Several arguments must be image files, or folders of them: score tables and data "
            f"sets one at a time. Received: {str(path)!r}"
        )
    return [str(path)]


class FileRows(Rows):
    """Image files; the label of a file is the name of its folder.

    ```python
    FileRows(["cats/1.png", "dogs/1.png"])
    ```
    """

    is_images = True

    def __init__(self, paths: Sequence[str]):
        self.files = self.paths = [path for path in paths if path.strip()]
        if not self.paths:
            raise ValueError(f"There are no image files ({', '.join(images.SUFFIXES)}) to score.")

    def __len__(self) -> int:
        return len(self.paths)

    def batches(self, start: int = 0, size: int = 256) -> Iterator[RowBatch]:
        for begin in range(start, len(self.paths), size):
            paths = self.paths[begin : begin + size]
            labels = [Path(path).parent.name for path in paths]
            yield RowBatch(paths, [images.read_file(path) for path in paths], labels)

    def select(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        return ((number, images.read_file(self.paths[number])) for number in numbers)


class ArrayRows(Rows):
    """The rows of an array in memory; their ids are their numbers.

    ```python
    ArrayRows(x)
    ```
    """

    files = None

    def __init__(self, x: np.ndarray, labels: Sequence[Any] | None = None):
        self.x, self.labels = x, labels

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, start: int = 0, size: int = 256) -> Iterator[RowBatch]:
        for begin in range(start, len(self.x), size):
            rows = slice(begin, begin + size)
            x = self.x[rows]
            labels = None if self.labels is None else list(self.labels[rows])
            yield RowBatch(row_numbers(begin, len(x)), x, labels)


class TableRows(Rows):
    """The rows of a CSV or Parquet file.

    ```python
    TableRows(Path("irises.csv"), label="species", row_id="plant", columns=None)
    ```
    """

    labels_are_names = True

    def __init__(
        self, path: Path, label: str | None, row_id: str | None, columns: Sequence[str] | None
    ):
        self.path, self.files = path, [str(path)]
        self._names: dict[str, Any] = {"label": label, "row_id": row_id, "columns": columns}
        self.is_images = tables.is_images(path, **self._names)
        self._count = tables.count_rows(path)

    def __len__(self) -> int:
        return self._count

    def batches(self, start: int = 0, size: int = 256) -> Iterator[RowBatch]:
        batches = tables.read_table(self.path, **self._names, start=start, batch_size=size)
        for batch in batches:
            ids = row_numbers(start, len(batch.x))
            if batch.ids is not None:
                ids = [n if i is None else str(i) for i, n in zip(batch.ids, ids)]
            yield RowBatch(ids, batch.x, batch.labels, batch.errors)
            start += len(batch.x)


class DatasetRows(Rows):
    """A split of a data set that can be loaded by name.

    ```python
    DatasetRows("fashion_mnist", "test", data_dir="tfds")
    ```

    Images that differ in size are resized to `ANY_SIZE`, unless `resized` says otherwise.
    """

    def __init__(self, name: str, split: str, data_dir: str | None, image_size: int | None = None):
        if split not in SPLITS:
            raise ValueError(f"`split` must be one of {SPLITS}. Received: split={split!r}")
        self._source = name, split, data_dir
        dataset = _load(name, data_dir, image_size)
        self._rows, self._shape = getattr(dataset, split), dataset.shape
        self._names, self._count = dataset.class_names, len(self._rows)
        self.pixel_range = dataset.pixel_range

    def resized(self, shape: tuple[int, ...] | None) -> Rows:
        if shape is None or len(shape) != 3 or shape[0] != shape[1]:
            return self
        if shape[:2] == self._shape[:2] or not sources.resizes(self._source[0]):
            return self
        return DatasetRows(*self._source, shape[0])

    def __len__(self) -> int:
        return self._count

    def batches(self, start: int = 0, size: int = 256) -> Iterator[RowBatch]:
        for x, y in self._rows.skip(start).batch(size).as_numpy_iterator():
            labels = [self._names[i] if 0 <= i < len(self._names) else None for i in y]
            yield RowBatch(row_numbers(start, len(x)), x, labels)
            start += len(x)


def _load(name: str, data_dir: str | None, image_size: int | None) -> Dataset:
    try:
        return sources.load(name, data_dir, image_size, labelled=False)
    except sources.UnknownDataset:
        raise
    except ValueError:
        if image_size is not None or not sources.resizes(name):
            raise
        return _load(name, data_dir, ANY_SIZE)  # the images may differ in size


def row_numbers(start: int, count: int) -> list[str]:
    """The ids of `count` rows from number `start` on."""
    return [str(number) for number in range(start, start + count)]

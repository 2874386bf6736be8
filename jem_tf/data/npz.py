"""Arrays of `.npz` files as rows, read as a stream: the array need not fit into memory.

Not here: arrays in memory (`rows.py`), `.npz` files to train on (`sources.py`).
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf.data.rows import RowBatch, Rows, row_numbers


class NpzRows(Rows):
    """`x` of an `.npz` file, or `x_test` and so on, read without loading the array.

    ```python
    NpzRows(Path("table.npz"), split="test")
    ```
    """

    def __init__(self, path: Path, split: str):
        self.path, self.files = path, [str(path)]
        try:
            with zipfile.ZipFile(path) as file:
                names = {Path(name).stem for name in file.namelist()}
        except (OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"Cannot read {str(path)!r}: {error}") from error
        self._suffix = "" if "x" in names else f"_{split}"
        if f"x{self._suffix}" not in names:
            raise ValueError(
                f"{str(path)!r} must hold x, or x{self._suffix}. Received: {sorted(names)}"
            )
        with np.load(path, allow_pickle=False) as arrays:
            key = f"y{self._suffix}"
            self.labels = arrays[key] if key in names else None
        with self._open() as (_, shape, _):
            self._shape = shape

    def __len__(self) -> int:
        return self._shape[0]

    def _open(self) -> "_ArrayStream":
        return _ArrayStream(self.path, f"x{self._suffix}.npy")

    def batches(self, start: int = 0, size: int = 256) -> Iterator[RowBatch]:
        with self._open() as (file, shape, dtype):
            row_bytes = int(np.prod(shape[1:])) * dtype.itemsize
            file.seek(start * row_bytes, 1)
            for begin in range(start, shape[0], size):
                content = file.read(min(size, shape[0] - begin) * row_bytes)
                x = np.frombuffer(content, dtype).reshape(-1, *shape[1:])
                if x.dtype == np.uint8 and x.ndim == 3:
                    x = x[..., np.newaxis]
                labels = None if self.labels is None else list(self.labels[begin : begin + len(x)])
                yield RowBatch(row_numbers(begin, len(x)), x, labels)


class _ArrayStream:
    """An array inside an `.npz` file as a stream of bytes, with its shape and type."""

    def __init__(self, path: Path, name: str):
        self._archive = zipfile.ZipFile(path)
        self._file = self._archive.open(name)

    def __enter__(self) -> tuple[Any, tuple[int, ...], np.dtype]:
        version = np.lib.format.read_magic(self._file)
        read = np.lib.format.read_array_header_1_0
        read = read if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(self._file)
        if by_columns or dtype.hasobject:
            raise ValueError("`x` of an .npz file must be numbers in C order.")
        return self._file, shape, dtype

    def __exit__(self, *_: Any) -> None:
        self._file.close()
        self._archive.close()

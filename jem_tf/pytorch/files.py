"""PyTorch's checkpoint files, read and written without PyTorch.

Not here: what the tensors mean (`conversion.py`). A file is a pickle and the raw numbers of its
tensors: in a zip archive, or, before PyTorch 1.6, one after the other. Pickles are programs; the
unpickler here can build dicts, lists and tensors, and nothing else.
"""

import io
import math
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

LEGACY_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)  # the start of a file before 1.6
MAX_PICKLE_BYTES = 1 << 26  # the pickle of a WideResNet-28-10 has 20 000
STORAGE_DTYPES = {  # by PyTorch's names
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}
# What the parts of a damaged file raise.
READING_ERRORS = (
    *(zipfile.BadZipFile, pickle.UnpicklingError, EOFError, KeyError, IndexError),
    *(TypeError, ValueError, AttributeError, struct.error, OverflowError, MemoryError),
)

ReadStorage = Callable[[str, int], bytes]  # key and expected number of bytes to content


class _TensorInfo(NamedTuple):
    """The place of a tensor: a view of the storage `key`, which has `size` numbers of `dtype`."""

    key: str
    dtype: str
    size: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _ForbiddenGlobal(Exception):
    """A pickle refers to a class or function that is not part of tensors."""


def read(path: str | Path) -> Any:
    """Read what `torch.save` wrote to `path`, with arrays instead of tensors.

    ```python
    files.read("CIFAR10_MODEL.pt")["model_state_dict"]["f.conv1.weight"].shape
    ```

    Raises `ValueError` if the file is damaged, or holds anything but tensors, numbers, text,
    lists and dicts.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _read_zip(file) if zipfile.is_zipfile(file) else _read_legacy(file)
    except _ForbiddenGlobal as error:
        raise ValueError(
            f"{str(path)!r} was not read: it uses {error}, and files that can run code are "
            "refused. Save tensors only: `torch.save(model.state_dict(), ...)`."
        ) from error
    except READING_ERRORS as error:
        raise ValueError(
            f"{str(path)!r} is not a complete PyTorch checkpoint: {error or type(error).__name__}"
        ) from error


def write(path: str | Path, value: Any) -> None:
    """Write `value`, dicts of arrays, text and numbers, in the format of `torch.save`."""
    arrays: list[np.ndarray] = []
    pickled = pickle.PROTO + b"\x02" + _encode(value, arrays) + pickle.STOP
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for key, array in enumerate(arrays):
            archive.writestr(f"archive/data/{key}", array.tobytes())
        archive.writestr("archive/version", "3\n")


def _read_zip(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        (head,) = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")]
        folder = head.removesuffix("data.pkl")
        if archive.getinfo(head).file_size > MAX_PICKLE_BYTES:
            raise ValueError("the description of its tensors is too large")
        order = f"{folder}byteorder"
        if order in names and archive.read(order) != b"little":
            raise ValueError("it is from a big-endian machine")
        content = _unpickle(io.BytesIO(archive.read(head)))

        def read_storage(key: str, size: int) -> bytes:
            name = f"{folder}data/{key}"
            _check_size(key, size, archive.getinfo(name).file_size)
            return archive.read(name)

        return _fill_tensors(content, read_storage)


def _read_legacy(file: BinaryIO) -> Any:
    """Read a file from before PyTorch 1.6: four pickles, then keys and contents of storages."""
    file.seek(0)
    magic = file.read(len(LEGACY_MAGIC))
    if magic != LEGACY_MAGIC:
        raise ValueError(
            f"it begins with {magic!r}, neither as a zip archive nor as files from before "
            "PyTorch 1.6"
        )
    _unpickle(file)  # the version of the format
    if not _unpickle(file)["little_endian"]:
        raise ValueError("it is from a big-endian machine")
    content = _unpickle(file)
    keys = _unpickle(file)
    item_sizes = {t.key: np.dtype(t.dtype).itemsize for t in _find_tensors(content)}
    places = {}
    for key in keys:
        (count,) = struct.unpack("<q", file.read(8))
        length = count * item_sizes.get(key, 0)
        if key not in item_sizes or count < 0:
            raise ValueError(f"storage {key!r} belongs to no tensor")
        places[key] = (file.tell(), length)
        file.seek(length, io.SEEK_CUR)

    def read_storage(key: str, size: int) -> bytes:
        begin, length = places[key]
        _check_size(key, size, length)
        file.seek(begin)
        content = file.read(size)
        _check_size(key, size, len(content))
        return content

    return _fill_tensors(content, read_storage)


def _check_size(key: str, expected: int, actual: int) -> None:
    if actual != expected:
        raise ValueError(f"storage {key!r} is truncated: expected {expected} bytes, got {actual}")


def _make_tensor_info(
    storage: tuple[str, str, int],
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *_: Any,
) -> _TensorInfo:
    """Stand in for `torch._utils._rebuild_tensor_v2`; `ValueError` if a view is out of bounds."""
    key, dtype, size = storage
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    inside = math.prod(shape) <= size and offset + last < size
    if min((offset, *shape, *strides)) < 0 or not (inside or 0 in shape):
        raise ValueError(f"a tensor of shape {shape} is out of bounds of its storage of {size}")
    return _TensorInfo(key, dtype, size, offset, shape, strides)


def _unpickle(file: BinaryIO) -> Any:
    """Return the next pickle in `file`, with `_TensorInfo` for tensors."""

    # Defined here: a pickle can set attributes on it, which must not outlive this call.
    class NamedValues(dict):
        """Stands in for `OrderedDict`, on which PyTorch sets an attribute."""

    allowed: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): NamedValues,
        ("torch._utils", "_rebuild_tensor_v2"): lambda *args: _make_tensor_info(*args),
        ("torch._utils", "_rebuild_tensor"): lambda *args: _make_tensor_info(*args),
        ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
        **{("torch", name): dtype for name, dtype in STORAGE_DTYPES.items()},
    }

    class TensorUnpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) not in allowed:
                raise _ForbiddenGlobal(f"`{module}.{name}`")
            return allowed[module, name]

        def persistent_load(self, pid: Any) -> tuple[str, str, int]:
            kind, dtype, key, _, size, *view = pid
            if kind != "storage" or dtype not in STORAGE_DTYPES.values() or any(view):
                raise _ForbiddenGlobal(f"a storage of type {pid[:2]}")
            return str(key), dtype, int(size)

    return TensorUnpickler(file).load()


def _find_tensors(value: Any) -> list[_TensorInfo]:
    if isinstance(value, _TensorInfo):
        return [value]
    if not isinstance(value, (dict, list, tuple)):
        return []
    parts = value.values() if isinstance(value, dict) else value
    return [tensor for part in parts for tensor in _find_tensors(part)]


def _fill_tensors(value: Any, read_storage: ReadStorage) -> Any:
    """Return `value` with arrays instead of `_TensorInfo`."""
    if isinstance(value, _TensorInfo):
        dtype = np.dtype(value.dtype)
        content = read_storage(value.key, value.size * dtype.itemsize)
        flat = np.frombuffer(content, dtype)[value.offset :]
        strides = [dtype.itemsize * s for s in value.strides]
        view = np.lib.stride_tricks.as_strided(flat, value.shape, strides, writeable=False)
        return np.ascontiguousarray(view).reshape(value.shape)
    if isinstance(value, dict):
        return {key: _fill_tensors(part, read_storage) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fill_tensors(part, read_storage) for part in value)
    return value


def _encode(value: Any, arrays: list[np.ndarray]) -> bytes:
    """Return the opcodes that build `value`, and append its arrays to `arrays`.

    The opcodes are written out because Python's pickler can refer only to functions that it can
    import, and PyTorch may be missing.
    """
    if isinstance(value, dict):
        items = [_encode(v, arrays) for pair in value.items() for v in pair]
        return pickle.EMPTY_DICT + pickle.MARK + b"".join(items) + pickle.SETITEMS
    if not isinstance(value, np.ndarray):
        return pickle.dumps(value, protocol=2)[2:-1]  # without the protocol and the stop opcode
    array = np.ascontiguousarray(value).reshape(value.shape)
    array = array.astype(array.dtype.newbyteorder("<"))
    names = {np.dtype(dtype): name for name, dtype in STORAGE_DTYPES.items()}
    key, strides = str(len(arrays)), [s // array.itemsize for s in array.strides]
    arrays.append(array)
    parts = [
        _encode_global("torch._utils", "_rebuild_tensor_v2"),
        pickle.MARK,
        *(pickle.MARK, _encode("storage", arrays), _encode_global("torch", names[array.dtype])),
        *(_encode(part, arrays) for part in (key, "cpu", array.size)),
        *(pickle.TUPLE, pickle.BINPERSID),
        *(_encode(part, arrays) for part in (0, array.shape, tuple(strides), False)),
        *(_encode_global("collections", "OrderedDict"), pickle.EMPTY_TUPLE, pickle.REDUCE),
        *(pickle.TUPLE, pickle.REDUCE),
    ]
    return b"".join(parts)


def _encode_global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()

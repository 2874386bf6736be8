"""PyTorch's checkpoint files, read and written without PyTorch.

Not here: what is in them (`layout.py`). A file is a pickle beside raw numbers: a zip archive, or,
from before PyTorch 1.6, one pickle after the other. Pickles are programs; the one here may build
dicts, lists and tensors and nothing else.
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

MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)  # begins the older kind of file
PICKLE_LIMIT = 1 << 26  # bytes; that of a WideResNet-28-10 has 20 thousand
KINDS = {  # of storage, by PyTorch's names
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


class _Tensor(NamedTuple):
    """Where a tensor lies: in the storage `key` of `size` numbers of a kind."""

    key: str
    kind: str
    size: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(path: str | Path) -> Any:
    """What `torch.save` wrote to `path`, with arrays for tensors; `ValueError` unless that is made
    of tensors, numbers, text, lists and dicts only."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _zipped(file) if zipfile.is_zipfile(file) else _older(file)
    except _Foreign as error:
        raise ValueError(
            f"{str(path)!r} was not read: it asks for {error}, and files that run code are "
            "refused. A checkpoint of tensors, `torch.save(model.state_dict(), ...)`, has nothing "
            "of the kind."
        ) from error
    except (
        *(zipfile.BadZipFile, pickle.UnpicklingError, EOFError, KeyError, IndexError),
        *(TypeError, ValueError, AttributeError, struct.error, OverflowError, MemoryError),
    ) as error:
        raise ValueError(
            f"{str(path)!r} is not a whole PyTorch checkpoint: {error or type(error).__name__}"
        ) from error


def _zipped(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        (head,) = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith("/data.pkl")]
        folder = head.removesuffix("data.pkl")
        if archive.getinfo(head).file_size > PICKLE_LIMIT:
            raise ValueError("the description of its tensors is too large")
        order = f"{folder}byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise ValueError("it is from a big-endian machine")
        described = _unpickled(io.BytesIO(archive.read(head)))

        def storage(key: str, size: int) -> bytes:
            if archive.getinfo(f"{folder}data/{key}").file_size != size:
                raise ValueError(f"storage {key!r} has not the {size} bytes it should have")
            return archive.read(f"{folder}data/{key}")

        return _filled(described, storage)


def _older(file: BinaryIO) -> Any:
    file.seek(0)
    begin = file.read(len(MAGIC))
    if begin != MAGIC:
        raise ValueError(
            f"it begins with {begin!r}, and neither as a zip archive nor as files from before "
            "PyTorch 1.6"
        )
    _unpickled(file)  # the version of this format
    if not _unpickled(file)["little_endian"]:
        raise ValueError("it is from a big-endian machine")
    described = _unpickled(file)
    places, length = {}, file.seek(0, 1)
    keys = _unpickled(file)
    sizes = {tensor.key: np.dtype(tensor.kind).itemsize for tensor in _tensors(described)}
    for key in keys:
        (count,) = struct.unpack("<q", file.read(8))
        length = count * sizes.get(key, 0)
        if key not in sizes or count < 0:
            raise ValueError(f"storage {key!r} belongs to no tensor")
        places[key] = (file.tell(), length)
        file.seek(length, 1)

    def storage(key: str, size: int) -> bytes:
        place, length = places[key]
        file.seek(place)
        content = file.read(size)
        if length != size or len(content) != size:
            raise ValueError(f"storage {key!r} has not the {size} bytes it should have")
        return content

    return _filled(described, storage)


class _Foreign(Exception):
    """A pickle that wants more than tensors."""


def _unpickled(file: BinaryIO) -> Any:
    """The next pickle in `file`, with `_Tensor` for tensors."""

    class Named(dict):
        """For `OrderedDict`, on which PyTorch puts an attribute."""

    def tensor(storage: tuple, offset: int, shape: tuple, strides: tuple, *_: Any) -> _Tensor:
        key, kind, size = storage
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        inside = math.prod(shape) <= size and offset + last < size
        if min((offset, *shape, *strides)) < 0 or not (inside or 0 in shape):
            raise ValueError(f"a tensor {shape} reaches out of its storage of {size}")
        return _Tensor(key, kind, size, offset, shape, strides)

    known: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): Named,
        ("torch._utils", "_rebuild_tensor_v2"): tensor,
        ("torch._utils", "_rebuild_tensor"): tensor,
        ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
        **{("torch", name): kind for name, kind in KINDS.items()},
    }

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) not in known:
                raise _Foreign(f"`{module}.{name}`")
            return known[module, name]

        def persistent_load(self, pid: Any) -> tuple[str, str, int]:
            what, kind, key, _, size, *view = pid
            if what != "storage" or kind not in KINDS.values() or any(view):
                raise _Foreign(f"a storage of kind {pid[:2]}")
            return str(key), kind, int(size)

    return Reader(file).load()


def _tensors(value: Any) -> list[_Tensor]:
    if isinstance(value, _Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [t for v in parts for t in _tensors(v)] if isinstance(value, (dict, list, tuple)) else []


def _filled(value: Any, storage: Callable[[str, int], bytes]) -> Any:
    """`value` with arrays for tensors."""
    if isinstance(value, _Tensor):
        kind = np.dtype(value.kind)
        flat = np.frombuffer(storage(value.key, value.size * kind.itemsize), kind)[value.offset :]
        strides = [kind.itemsize * s for s in value.strides]
        view = np.lib.stride_tricks.as_strided(flat, value.shape, strides, writeable=False)
        return np.ascontiguousarray(view).reshape(value.shape)
    if isinstance(value, dict):
        return {key: _filled(part, storage) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(part, storage) for part in value)
    return value


def write(path: str | Path, value: Any) -> None:
    """Write `value`, dicts of arrays, text and numbers, as `torch.save` would its tensors."""
    arrays: list[np.ndarray] = []
    pickled = pickle.PROTO + b"\x02" + _pickled(value, arrays) + pickle.STOP
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for key, array in enumerate(arrays):
            archive.writestr(f"archive/data/{key}", array.tobytes())
        archive.writestr("archive/version", "3\n")


def _pickled(value: Any, arrays: list[np.ndarray]) -> bytes:
    """The opcodes that build `value`; its arrays are added to `arrays`. Written out, because
    Python's pickler only names what it can import."""
    if isinstance(value, dict):
        items = [_pickled(v, arrays) for pair in value.items() for v in pair]
        return pickle.EMPTY_DICT + pickle.MARK + b"".join(items) + pickle.SETITEMS
    if not isinstance(value, np.ndarray):
        return pickle.dumps(value, protocol=2)[2:-1]  # without its beginning and its end
    array = np.ascontiguousarray(value).reshape(value.shape)
    array = array.astype(array.dtype.newbyteorder("<"))
    names = {np.dtype(kind): name for name, kind in KINDS.items()}
    key, strides = str(len(arrays)), [s // array.itemsize for s in array.strides]
    arrays.append(array)
    parts = [
        _called("torch._utils", "_rebuild_tensor_v2"),
        pickle.MARK,
        *(pickle.MARK, _pickled("storage", arrays), _called("torch", names[array.dtype])),
        *(_pickled(part, arrays) for part in (key, "cpu", array.size)),
        *(pickle.TUPLE, pickle.BINPERSID),
        *(_pickled(part, arrays) for part in (0, array.shape, tuple(strides), False)),
        *(_called("collections", "OrderedDict"), pickle.EMPTY_TUPLE, pickle.REDUCE),
        *(pickle.TUPLE, pickle.REDUCE),
    ]
    return b"".join(parts)


def _called(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()

"""What every transport of the client does: call a signature, tell what there is.

Not here: gRPC (`grpc_wire.py`), REST (`rest_wire.py`).
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


class Signature(NamedTuple):
    """Names, NumPy types and shapes (None: any size) of what a signature takes and returns."""

    inputs: dict[str, tuple[str, tuple[int | None, ...] | None]]
    outputs: dict[str, tuple[str, tuple[int | None, ...] | None]]


class Failed(Exception):
    """A request was not answered; `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


class Wire(ABC):
    """A transport to one model."""

    def __init__(
        self,
        scheme: str,
        host: str,
        model: str,
        version: int | None,
        label: str | None,
        secrets: dict[str, bytes | None],
    ):
        self.model, self.version, self.label = model, version, label
        self.connect(scheme, host, secrets)

    @abstractmethod
    def connect(self, scheme: str, host: str, secrets: dict[str, bytes | None]) -> None: ...

    @abstractmethod
    def call(self, signature: str, inputs: Arrays, seconds: float, client: Any) -> Arrays: ...

    @abstractmethod
    def signatures(self, seconds: float) -> dict[str, Signature]: ...

    @abstractmethod
    def status(self, seconds: float) -> dict[int, str]: ...

    @abstractmethod
    def close(self) -> None: ...


def shape_of(unknown: bool, sizes: list[int]) -> tuple[int | None, ...] | None:
    return None if unknown else tuple(None if size < 0 else size for size in sizes)


def objects(values: list[bytes]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array

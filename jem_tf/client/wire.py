"""What the transports of the client have in common.

Not here: gRPC (`grpc_wire.py`), REST (`rest_wire.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
Shape = tuple[int | None, ...]
INIT_SIGNATURE = "__saved_model_init_op"  # in the metadata of a model, but not for clients


class Signature(NamedTuple):
    """NumPy type and shape of each input and output of a signature, by name.

    A size of None is free; a shape of None has any rank.
    """

    inputs: dict[str, tuple[str, Shape | None]]
    outputs: dict[str, tuple[str, Shape | None]]


class WireError(Exception):
    """A request that failed; `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


class Wire(ABC):
    """A transport to one model; its methods raise `WireError` if a request fails.

    Args:
        scheme: grpc, grpcs, http or https.
        host: `host:port`.
        model: its name on the server.
        version, label: which version of it; both None: the newest.
        tls: PEM files by the names ca, certificate, key; None: not given.
    """

    def __init__(
        self,
        scheme: str,
        host: str,
        model: str,
        version: int | None,
        label: str | None,
        tls: dict[str, bytes | None],
    ):
        self.model, self.version, self.label = model, version, label
        self.connect(scheme, host, tls)

    @abstractmethod
    def connect(self, scheme: str, host: str, tls: dict[str, bytes | None]) -> None:
        """Prepare the connection; it may be opened by the first request."""

    @abstractmethod
    def call(
        self,
        signature: str,
        inputs: Arrays,
        seconds: float,
        get_signatures: Callable[[bool], dict[str, Signature]],
    ) -> Arrays:
        """Return all outputs of a signature.

        `get_signatures(refresh)` returns the signatures of the model, from a cache or from the
        server.
        """

    @abstractmethod
    def signatures(self, seconds: float) -> dict[str, Signature]:
        """Return the signatures of the model."""

    @abstractmethod
    def status(self, seconds: float) -> dict[int, str]:
        """Return the state of each version."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


def to_shape(unknown_rank: bool, sizes: list[int]) -> Shape | None:
    """Return the shape of a `TensorShapeProto`, where a size of -1 is free."""
    return None if unknown_rank else tuple(None if size < 0 else size for size in sizes)


def bytes_array(values: list[bytes]) -> np.ndarray:
    """Return `values` as an array of objects, which keeps trailing zero bytes."""
    array = np.empty(len(values), object)
    array[:] = values
    return array

"""What the transports of the client have in common.

Not here: gRPC (`grpc_wire.py`), REST (`rest_wire.py`). A transport turns calls into requests and
responses into results; the client sends them, with or without `await`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

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


class StaleSignaturesError(Exception):
    """A response does not fit the signatures: a new version of the model has others."""


class Endpoint(NamedTuple):
    """Where a model is served.

    Args:
        scheme: grpc, grpcs, http or https.
        host: `host:port`.
        model: its name on the server.
        version, label: which version of it; both None: the newest.
        tls: PEM files by the names ca, certificate, key; None: not given.
        token: bearer token; "": none.
        retries: how often a request is sent again if the server is unavailable.
    """

    scheme: str
    host: str
    model: str
    version: int | None
    label: str | None
    tls: dict[str, bytes | None]
    token: str
    retries: int


class Exchange(NamedTuple):
    """A request, and how its response becomes a result.

    `parse` takes the response, and for calls the signatures of the model.
    """

    request: Any
    parse: Callable[..., Any]


class Wire(ABC):
    """A transport to one model, for coroutines if `is_async`.

    `send` raises `WireError` if a request fails, and `asend` is `send` for coroutines.
    """

    retries_itself = False  # whether the transport sends requests again
    needs_signatures = False  # to parse the responses of calls

    def __init__(self, endpoint: Endpoint, is_async: bool):
        self.endpoint = endpoint
        self.connect(is_async)

    @abstractmethod
    def connect(self, is_async: bool) -> None:
        """Prepare the connection; it may be opened by the first request."""

    @abstractmethod
    def call(self, signature: str, inputs: Arrays) -> Exchange:
        """Return the exchange for all outputs of a signature."""

    @abstractmethod
    def signatures(self) -> Exchange:
        """Return the exchange for the signatures of the model."""

    @abstractmethod
    def status(self) -> Exchange:
        """Return the exchange for the state of each version."""

    @abstractmethod
    def send(self, request: Any, seconds: float) -> Any:
        """Return the response to a request."""

    @abstractmethod
    async def asend(self, request: Any, seconds: float) -> Any:
        """Return the response to a request."""

    @abstractmethod
    def close(self) -> Any:
        """Close the connection; a coroutine if the wire is for coroutines."""


def to_shape(unknown_rank: bool, sizes: list[int]) -> Shape | None:
    """Return the shape of a `TensorShapeProto`, where a size of -1 is free."""
    return None if unknown_rank else tuple(None if size < 0 else size for size in sizes)


def bytes_array(values: list[bytes]) -> np.ndarray:
    """Return `values` as an array of objects, which keeps trailing zero bytes."""
    array = np.empty(len(values), object)
    array[:] = values
    return array

"""Errors of requests, with the status codes that gRPC and TF Serving share.

Not here: how a transport reports them (`grpc_api.py`, `rest_api.py`).
"""

import re

import tensorflow as tf

HTTP_STATUS = {  # TF Serving's mapping
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "UNAUTHENTICATED": 401,
}
_FUNCTION_PREFIX = re.compile(r"^(\{\{function_node [^}]*\}\} )+")
_PYTHON_SUFFIX = re.compile(r" \[Op:\w+\][^]]*$")


class RequestError(Exception):
    """A request that cannot be answered.

    ```python
    RequestError("NOT_FOUND", "There is no such model.").http_status  # 404
    ```

    Args:
        code: the name of a gRPC status.
        message: what the client reads.
        http_status: by default that of the code.
    """

    def __init__(self, code: str, message: str, http_status: int | None = None):
        super().__init__(message)
        self.code, self.message = code, message
        self.http_status = http_status or HTTP_STATUS.get(code, 500)


def invalid(message: str) -> RequestError:
    """Return a `RequestError` with the code INVALID_ARGUMENT."""
    return RequestError("INVALID_ARGUMENT", message)


def not_found(message: str) -> RequestError:
    """Return a `RequestError` with the code NOT_FOUND."""
    return RequestError("NOT_FOUND", message)


def from_tensorflow(error: tf.errors.OpError) -> RequestError:
    """Return the `RequestError` for an error of a graph operation, with the same code.

    The message is the kernel's, as TF Serving gives it, without what Python adds around it.
    """
    names = {value: name for name, value in vars(tf.errors).items() if isinstance(value, int)}
    message = _PYTHON_SUFFIX.sub("", _FUNCTION_PREFIX.sub("", error.message))
    return RequestError(names.get(error.error_code, "UNKNOWN"), message)

"""Errors of requests, by the codes that gRPC and TF Serving share.

Not here: how a transport tells them (`grpc_api.py`, `rest_api.py`).
"""

import tensorflow as tf

HTTP = {  # as TF Serving maps them
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


class RequestError(Exception):
    """A request that cannot be answered: `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code, self.message = code, message

    @property
    def http(self) -> int:
        return HTTP.get(self.code, 500)


def invalid(message: str) -> RequestError:
    return RequestError("INVALID_ARGUMENT", message)


def not_found(message: str) -> RequestError:
    return RequestError("NOT_FOUND", message)


def of_tensorflow(error: tf.errors.OpError) -> RequestError:
    """What an operation of the graph had to say, with its code."""
    names = {value: name for name, value in vars(tf.errors).items() if isinstance(value, int)}
    return RequestError(names.get(error.error_code, "UNKNOWN"), error.message)

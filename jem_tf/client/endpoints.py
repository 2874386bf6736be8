"""Addresses of served models, such as `grpc://localhost:8500/digits`."""

from typing import Any
from urllib.parse import urlparse

from jem_tf.client.base import SCHEMES
from jem_tf.client.client import JEMClient


def open_endpoint(address: str, **options: Any) -> JEMClient:
    """Return a client of the model at `address`; `options` are those of `JEMClient`.

    ```python
    open_endpoint("grpc://localhost:8500/digits", timeout=5.0)
    open_endpoint("http://localhost:8501/digits/2")  # version 2
    ```
    """
    parsed = urlparse(address)
    model, *version = parsed.path.strip("/").split("/")
    if parsed.scheme not in SCHEMES or not parsed.netloc or not model or len(version) > 1:
        raise ValueError(
            "An endpoint must be grpc://host:port/model (or grpcs, http, https), or with "
            f"/version after it. Received: {address!r}"
        )
    if version and not version[0].isdigit():
        raise ValueError(f"The version must be a number. Received: {address!r}")
    number = int(version[0]) if version else None
    return JEMClient(f"{parsed.scheme}://{parsed.netloc}", model, number, **options)


def is_endpoint(target: object) -> bool:
    """Whether `target` is the address of a served model."""
    return urlparse(str(target)).scheme in SCHEMES

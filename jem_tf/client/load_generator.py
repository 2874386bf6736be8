"""A load generator: concurrent clients that send the next request as soon as one is answered.

Not here: a client for applications (`client.py`). Each message is built once and sent as bytes, so
that the measurement is mostly the server's work.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np

from jem_tf.client.client import JEMClient
from jem_tf.client.grpc_wire import channel_options
from jem_tf.client.wire import Arrays, Signature

Send = Callable[[], Awaitable[None]]
TIMEOUT = 60.0  # seconds for a response


class FailedRequest(Exception):
    """A request without a valid response; the text of the exception is a status."""


@dataclass
class LoadResult:
    """The requests of all clients.

    ```python
    result = generate_load("localhost:8500", "digits")
    result.per_second, result.milliseconds(0.99), result.failures
    ```

    Attributes:
        seconds: how long the clients ran.
        latencies: seconds of each successful request.
        failures: number of failed requests by status.
    """

    seconds: float
    latencies: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def per_second(self) -> float:
        """Successful requests per second."""
        return len(self.latencies) / self.seconds

    def milliseconds(self, quantile: float) -> float:
        """Return a quantile of the latencies; NaN if no request succeeded."""
        return 1e3 * float(np.quantile(self.latencies, quantile)) if self.latencies else np.nan


def generate_load(
    address: str,
    model: str,
    signature: str = "serving_default",
    clients: int = 32,
    seconds: float = 10.0,
    rows: int = 1,
) -> LoadResult:
    """Send random inputs to a signature and return what the clients measured.

    ```python
    generate_load("localhost:8500", "digits", "ood_score", clients=8).per_second
    ```

    Args:
        address: `host:port` or `grpc://…`, or `http://…`.
        model: its name on the server.
        signature: a signature with numeric inputs of known shape.
        clients: requests in progress at a time.
        seconds: how long to send.
        rows: per request.
    """
    with JEMClient(address, model) as client:
        signatures, full_address = client.signatures(), client.address
    if signature not in signatures:
        names = ", ".join(sorted(signatures))
        raise ValueError(f"{full_address} has the signatures {names}. Received: {signature!r}")
    inputs = _random_inputs(signatures[signature], rows)
    scheme, host = full_address.removesuffix(f"/{model}").split("://")
    if scheme == "grpc":
        return asyncio.run(_run_grpc_clients(host, model, signature, inputs, clients, seconds))
    if scheme != "http":
        raise ValueError(f"Load is sent over grpc:// or http://. Received: {address!r}")
    body = {"signature_name": signature, "inputs": {k: v.tolist() for k, v in inputs.items()}}
    path = f"/v1/models/{quote(model, safe='')}:predict"
    return asyncio.run(run_clients(lambda: JsonPoster(host, path, body).send, clients, seconds))


async def run_clients(make_client: Callable[[], Send], clients: int, seconds: float) -> LoadResult:
    """Send requests from `clients` concurrent tasks for `seconds`.

    `make_client` returns the coroutine function that sends one request of a client and raises
    `FailedRequest` if it fails.
    """
    start = time.perf_counter()
    result, end = LoadResult(seconds), start + seconds

    async def send_until_end(send: Send) -> None:
        while (sent := time.perf_counter()) < end:
            try:
                async with asyncio.timeout(TIMEOUT):
                    await send()
                result.latencies.append(time.perf_counter() - sent)
            except TimeoutError:
                result.failures[f"no response in {TIMEOUT:.0f} s"] += 1
            except FailedRequest as error:
                result.failures[str(error)] += 1
                await asyncio.sleep(0.01)

    await asyncio.gather(*(send_until_end(make_client()) for _ in range(clients)))
    result.seconds = time.perf_counter() - start  # the last responses arrive after `end`
    return result


def _random_inputs(signature: Signature, rows: int) -> Arrays:
    """Return inputs in [-1, 1] for `signature`; integer inputs are zero."""
    rng, inputs = np.random.default_rng(0), {}
    for name, (dtype, shape) in signature.inputs.items():
        if dtype not in ("float32", "float64", "int32", "int64") or not shape or None in shape[1:]:
            raise ValueError(
                f"Random inputs need a numeric type and a known shape. Received: {name!r} of type "
                f"{dtype}, shape {shape}"
            )
        sizes = [rows, *(size or 1 for size in shape[1:])]
        inputs[name] = (rng.integers(-7, 8, sizes) / 8).astype(dtype)
    return inputs


async def _run_grpc_clients(
    host: str, model: str, signature: str, inputs: Arrays, clients: int, seconds: float
) -> LoadResult:
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    message = request.SerializeToString()
    async with grpc.aio.insecure_channel(host, channel_options()) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

        async def send() -> None:
            try:
                await call(message)
            except grpc.aio.AioRpcError as error:
                raise FailedRequest(error.code().name) from error

        return await run_clients(lambda: send, clients, seconds)


class JsonPoster:
    """Posts the same JSON over one connection, which stays open as long as the server keeps it.

    ```python
    poster = JsonPoster("localhost:8501", "/v1/models/digits:predict", {"instances": x.tolist()})
    await poster.send()
    ```
    """

    def __init__(self, host: str, path: str, body: Any):
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        self._message = head.encode() + content
        self._host, _, self._port = host.rpartition(":")
        self._streams: Any = None

    async def send(self) -> None:
        """Send the request and read the response; raise `FailedRequest` if it is not 200."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._host, int(self._port))
            reader, writer = self._streams
            writer.write(self._message)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b"content-length:" not in head:
                raise FailedRequest("a response without Content-Length")
            await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        except (OSError, EOFError) as error:
            self._streams = None
            raise FailedRequest(type(error).__name__) from error
        except BaseException:  # part of a response may be left in the connection
            if self._streams is not None:
                self._streams[1].close()
            self._streams = None
            raise
        if b"connection: close" in head:
            writer.close()
            self._streams = None
        status = head.split(b" ", 2)[1].decode()
        if status != "200":
            raise FailedRequest(f"HTTP {status}")

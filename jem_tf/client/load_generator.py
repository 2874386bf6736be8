"""How much a served model can take: clients that ask as fast as they are answered.

Not here: a client to use (`client.py`). Messages are made once and sent as bytes, so that what is
measured is the server's work and little of ours.
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
from jem_tf.client.grpc_wire import MESSAGE_BYTES

Send = Callable[[], Awaitable[None]]
TIMEOUT = 60.0  # seconds for an answer


class Refused(Exception):
    """An answer that is an error; its text is a status."""


@dataclass
class Load:
    """What clients saw."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def milliseconds(self, quantile: float) -> float:
        return 1e3 * float(np.quantile(self.latencies, quantile)) if self.latencies else np.nan


def load(
    address: str,
    model: str,
    signature: str = "serving_default",
    clients: int = 32,
    seconds: float = 10.0,
    rows: int = 1,
) -> Load:
    """Ask `signature` with random inputs of its own shape.

    ```python
    found = load("localhost:8500", "digits", "ood_score", clients=8)
    found.per_second, found.milliseconds(0.99), found.failures
    ```
    """
    with JEMClient(address, model) as client:
        known, where = client.signatures(), client.address
    if signature not in known:
        raise ValueError(
            f"{where} has the signatures {', '.join(sorted(known))}. Received: {signature!r}"
        )
    rng, inputs = np.random.default_rng(0), {}
    for name, (dtype, shape) in known[signature].inputs.items():
        if dtype not in ("float32", "float64", "int32", "int64") or not shape or None in shape[1:]:
            raise ValueError(f"No inputs can be made up for {name!r}: {dtype}, shape {shape}.")
        sizes = [rows, *(size or 1 for size in shape[1:])]
        inputs[name] = (rng.integers(-7, 8, sizes) / 8).astype(dtype)  # integers: zeros
    scheme, host = where.removesuffix(f"/{model}").split("://")
    if scheme == "grpc":
        return asyncio.run(_ask_grpc(host, model, signature, inputs, clients, seconds))
    if scheme != "http":
        raise ValueError(f"Load comes over grpc:// or http://. Received: {address!r}")
    body = {"signature_name": signature, "inputs": {k: v.tolist() for k, v in inputs.items()}}
    path = f"/v1/models/{quote(model, safe='')}:predict"
    return asyncio.run(ask(lambda: Poster(host, path, body).send, clients, seconds))


async def ask(client: Callable[[], Send], clients: int, seconds: float) -> Load:
    """Let `clients` send, each what `client()` sends, until `seconds` are over."""
    begin = time.perf_counter()
    found, end = Load(seconds), begin + seconds

    async def go_on(send: Send) -> None:
        while (sent := time.perf_counter()) < end:
            try:
                async with asyncio.timeout(TIMEOUT):
                    await send()
                found.latencies.append(time.perf_counter() - sent)
            except TimeoutError:
                found.failures[f"no answer in {TIMEOUT:.0f} s"] += 1
            except Refused as error:
                found.failures[str(error)] += 1
                await asyncio.sleep(0.01)

    await asyncio.gather(*(go_on(client()) for _ in range(clients)))
    found.seconds = time.perf_counter() - begin  # the last answers come later
    return found


async def _ask_grpc(
    host: str, model: str, signature: str, inputs: dict[str, Any], clients: int, seconds: float
) -> Load:
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    message = request.SerializeToString()
    sizes = [(f"grpc.max_{way}_message_length", MESSAGE_BYTES) for way in ("send", "receive")]
    async with grpc.aio.insecure_channel(host, sizes) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

        async def send() -> None:
            try:
                await call(message)
            except grpc.aio.AioRpcError as error:
                raise Refused(error.code().name) from error

        return await ask(lambda: send, clients, seconds)


class Poster:
    """Posts the same JSON over one connection, kept while the server keeps it."""

    def __init__(self, host: str, path: str, body: Any):
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        self._message = head.encode() + content
        self._name, _, self._port = host.rpartition(":")
        self._streams: Any = None

    async def send(self) -> None:
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._name, int(self._port))
            reader, writer = self._streams
            writer.write(self._message)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b"content-length:" not in head:
                raise Refused("an answer without its length")
            await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        except (OSError, EOFError) as error:
            self._streams = None
            raise Refused(type(error).__name__) from error
        except BaseException:  # half an answer may be left in the connection
            if self._streams is not None:
                self._streams[1].close()
            self._streams = None
            raise
        if b"connection: close" in head:
            writer.close()
            self._streams = None
        status = head.split(b" ", 2)[1].decode()
        if status != "200":
            raise Refused(f"HTTP {status}")

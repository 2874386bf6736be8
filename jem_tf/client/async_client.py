"""The client for coroutines, by `grpc.aio` and `httpx.AsyncClient`.

Not here: arguments and predictions (`base.py`), threads (`client.py`).
"""

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf.client.base import (
    ClientBase,
    Predictions,
    as_inputs,
    concatenate,
    read_images,
    sample_inputs,
    to_predictions,
)
from jem_tf.client.wire import Arrays, Exchange, Signature, StaleSignaturesError, WireError


class AsyncJEMClient(ClientBase):
    """`JEMClient` for coroutines; create it in the event loop that uses it.

    ```python
    async with AsyncJEMClient("localhost:8500", "digits") as client:
        predictions = await client.predict(x)
    ```

    Args:
        address: as for `JEMClient`.
        model: as for `JEMClient`.
        concurrency: requests at a time.
        **options: further arguments of `JEMClient`; `parallel` has no effect.
    """

    is_async = True

    def __init__(self, address: str, model: str, concurrency: int = 32, **options: Any):
        super().__init__(address, model, **options)
        self._slots = asyncio.Semaphore(concurrency)

    async def predict(self, x: Any) -> Predictions:
        """As `JEMClient.predict`."""
        outputs = await self.call("serving_default", inputs=as_inputs(x))
        return to_predictions(outputs)

    async def predict_images(self, images: Iterable[bytes | str | Path]) -> Predictions:
        """As `JEMClient.predict_images`."""
        files = await asyncio.to_thread(read_images, images)
        return to_predictions(await self.call("serving_default_bytes", image_bytes=files))

    async def logits(self, x: Any) -> np.ndarray:
        """As `JEMClient.logits`."""
        return (await self.call("logits", inputs=as_inputs(x)))["logits"]

    async def energy(self, x: Any) -> np.ndarray:
        """As `JEMClient.energy`."""
        return (await self.call("energy", inputs=as_inputs(x)))["energy"]

    async def ood_score(self, x: Any) -> Arrays:
        """As `JEMClient.ood_score`."""
        return await self.call("ood_score", inputs=as_inputs(x))

    async def sample(self, labels: Sequence[int], seed: int = 0) -> np.ndarray:
        """As `JEMClient.sample`."""
        return (await self.call("sample", **sample_inputs(labels, seed)))["samples"]

    async def call(self, signature: str, **inputs: np.ndarray) -> Arrays:
        """As `JEMClient.call`."""
        parts = self._split(inputs)
        return concatenate(await asyncio.gather(*(self._call(signature, part) for part in parts)))

    async def _call(self, signature: str, inputs: Arrays) -> Arrays:
        signatures = await self.signatures() if self._wire.needs_signatures else {}
        exchange = self._wire.call(signature, inputs)
        response = await self._send(exchange)
        try:
            return exchange.parse(response, signatures)
        except StaleSignaturesError:
            return exchange.parse(response, await self.signatures(refresh=True))

    async def signatures(self, refresh: bool = False) -> dict[str, Signature]:
        """As `JEMClient.signatures`."""
        if self._signatures is None or refresh:
            exchange = self._wire.signatures()
            self._signatures = exchange.parse(await self._send(exchange))
        return self._signatures

    async def status(self) -> dict[int, str]:
        """As `JEMClient.status`."""
        exchange = self._wire.status()
        return exchange.parse(await self._send(exchange))

    async def close(self) -> None:
        """Close the connection."""
        await self._wire.close()

    async def __aenter__(self) -> "AsyncJEMClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _send(self, exchange: Exchange) -> Any:
        deadline = time.monotonic() + self.timeout
        for attempt in itertools.count():
            try:
                async with self._slots:
                    return await self._wire.asend(exchange.request, deadline - time.monotonic())
            except WireError as error:
                await asyncio.sleep(self._pause(error, attempt, deadline))

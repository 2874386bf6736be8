"""Health checks over gRPC, by the state of the models.

Not here: `/health` over HTTP (`web.py`).
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

NAME = health.SERVICE_NAME
HEALTH_SECONDS = 1.0  # between two looks at the models, for clients that watch the health
MAX_WATCHERS = 256  # streams of `Watch`


class Health(health.aio.HealthServicer):
    """Says NOT_SERVING while a model has no available version.

    ```python
    Health(["tensorflow.serving.PredictionService"], lambda: manager.ready).handlers()
    ```
    """

    def __init__(self, names: list[str], is_ready: Callable[[], bool]):
        super().__init__()
        self._names, self._is_ready, self._num_watchers = names, is_ready, 0

    def handlers(self) -> dict[str, Any]:
        """Return the handlers of the service by method."""
        coders = (
            health_pb2.HealthCheckRequest.FromString,
            health_pb2.HealthCheckResponse.SerializeToString,
        )
        return {
            "Check": grpc.unary_unary_rpc_method_handler(self.Check, *coders),
            "Watch": grpc.unary_stream_rpc_method_handler(self.Watch, *coders),
        }

    async def watch_models(self) -> None:
        """Tell clients that watch the health about changes, until cancelled."""
        while True:
            await self._update()
            await asyncio.sleep(HEALTH_SECONDS)

    async def Check(self, request: Any, context: Any) -> Any:
        """Answer a `HealthCheckRequest`."""
        await self._update()
        return await super().Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:
        """Answer a `HealthCheckRequest` with a stream of changes."""
        if self._num_watchers >= MAX_WATCHERS:
            text = f"There are already {MAX_WATCHERS} watchers."
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._num_watchers += 1
        try:
            await super().Watch(request, context)
        finally:
            self._num_watchers -= 1

    async def _update(self) -> None:
        response = health_pb2.HealthCheckResponse
        status = response.SERVING if self._is_ready() else response.NOT_SERVING
        for name in ("", *self._names):
            await self.set(name, status)

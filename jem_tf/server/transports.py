"""gRPC and REST in one event loop, which runs in a thread of its own.

Not here: the services (`grpc_api.py`, `web.py`), the models and signals (`serving.py`).
"""

import asyncio
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

import uvicorn

from jem_tf.server import configuration
from jem_tf.server.flags import Options
from jem_tf.server.grpc_api import GrpcServer
from jem_tf.server.http_connections import Connections, HttpConnection
from jem_tf.server.service import Service
from jem_tf.server.sockets import bind_socket
from jem_tf.server.web import make_app
from jem_tf.server.workers import Workers


class Transports:
    """Listens for requests to a `Service` at the ports of `options`.

    ```python
    transports = Transports(service, options)
    transports.start()
    ```
    """

    def __init__(self, service: Service, options: Options):
        self._options = options
        for port in filter(None, (options.port, options.rest_api_port)):
            bind_socket(options.host, port).close()  # fails before models are loaded
        self._workers = Workers(
            options.grpc_max_threads, options.max_concurrent_requests, options.max_memory_bytes
        )
        self._grpc = GrpcServer(service, self._workers, options)
        tls = configuration.read_tls(options)
        context = None if tls is None else tls.ssl_context()
        self._config = uvicorn.Config(
            make_app(service, self._workers, options),
            ssl_context_factory=None if context is None else lambda *_: context,
            **uvicorn_options(options, options.drain_seconds),
        )

    def start(self) -> None:
        """Listen; raise `OSError` if an address is taken."""
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="transports", daemon=True
        )
        self._thread.start()
        started.result()

    def stop(self) -> None:
        """Refuse new requests, and wait up to `drain_seconds` for those in progress."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(self._options.drain_seconds + 5.0)

    def _run(self, started: "Future[None]") -> None:
        with asyncio.Runner(loop_factory=self._config.get_loop_factory()) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve(started))

    async def _serve(self, started: "Future[None]") -> None:
        self._stopping, rest, options = asyncio.Event(), None, self._options
        try:
            if options.port:
                await self._grpc.start()
            if options.rest_api_port:
                rest = await self._start_rest()
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result(None)
        await self._stopping.wait()
        async with asyncio.TaskGroup() as group:
            if options.port:
                group.create_task(self._grpc.stop(options.drain_seconds))
            if rest is not None:
                self._rest.should_exit = True
                await rest
        self._workers.shutdown()

    async def _start_rest(self) -> "asyncio.Task[None]":
        socket = bind_socket(self._options.host, self._options.rest_api_port)
        socket.listen(1024)
        self._rest = uvicorn.Server(self._config)
        task = asyncio.create_task(self._rest.serve(sockets=[socket]))
        while not self._rest.started:
            if task.done():
                raise OSError("The REST API did not start.")
            await asyncio.sleep(0.01)
        return task


def uvicorn_options(options: Options, drain_seconds: float) -> dict[str, Any]:
    """Return the settings of an HTTP server with limited connections."""
    connections = Connections(
        options.max_connections,
        options.max_connections_per_client,
        options.header_timeout_seconds,
    )
    return {
        "http": partial(HttpConnection, connections),
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "timeout_keep_alive": int(options.idle_timeout_seconds),
        "timeout_graceful_shutdown": int(drain_seconds),
    }

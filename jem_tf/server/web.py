"""The HTTP side of a server: routes of the REST APIs, metrics, health and the inspector.

Not here: the REST APIs themselves (`rest_api.py`, `v2_rest.py`), the pages (`pages.py`), access
(`access.py`).
"""

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from jem_tf.server import access, configuration, metrics, pages
from jem_tf.server.flags import Options
from jem_tf.server.rest_api import RestApi
from jem_tf.server.service import Service
from jem_tf.server.v2_rest import RestV2
from jem_tf.server.workers import Workers


def make_app(service: Service, workers: Workers, options: Options) -> Starlette:
    """Return the ASGI application for a `Service`.

    ```python
    uvicorn.run(make_app(service, Workers(64, 256, 2**28), Options()))
    ```
    """
    metrics_path = configuration.read_metrics_path(options)
    api: Any = RestApi(service, workers, options)
    v2: Any = RestV2(service, workers, options)

    async def get_health(_: Request) -> Response:
        ready = service.manager.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    def get_metrics(_: Request) -> Response:
        page = service.metrics.render(service.manager.servables())
        return Response(page, media_type=metrics.CONTENT_TYPE)

    routes = [Route("/health", get_health)]
    if metrics_path is not None:
        routes.append(Route(metrics_path, get_metrics))
    if options.inspector:
        routes += pages.Inspector(service.manager, metrics_path).routes()
    routes += [Route("/v2", v2), Route("/v2/{path:path}", v2), Route("/{path:path}", api)]
    return Starlette(routes=routes, middleware=make_middleware(options))


def make_middleware(options: Options) -> list[Middleware]:
    """Return what requests pass before the routes: CORS if it is on, and access control.

    Outside of both, requests that are cancelled after the drain time are answered.
    """
    cors = options.rest_api_enable_cors_support
    control = Middleware(
        access.AccessControl,
        hosts=[host for host in (options.host, *options.allowed_hosts.split(",")) if host],
        token=access.read_token(options.auth_token_file),
        cross_site=cors,
    )
    if not cors:
        return [Middleware(AnswerCancelled), control]
    headers = ["Content-Type", "Content-Encoding", "Authorization"]
    methods = ["GET", "POST"]
    shared = Middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=methods, allow_headers=headers
    )
    return [Middleware(AnswerCancelled), shared, control]


class AnswerCancelled:
    """ASGI middleware that answers requests which uvicorn cancels at the end of the drain time.

    Otherwise uvicorn logs a traceback for each of them.
    """

    def __init__(self, app: Any):
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            response = JSONResponse({"error": "The server is shutting down."}, 503)
            await response(scope, receive, send)

"""Who may send requests: hosts, origins of web pages, and a bearer token.

Not here: connections (`http_connections.py`), TLS (`configuration.py`), CORS (`web.py`).

A web page of another site can post to a server on this machine, and, by DNS rebinding, read the
responses. The browser then sends the name of that site as `Host` or as `Origin`.
"""

import hmac
import ipaddress
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

LOCAL_HOSTS = ("localhost",)
_JSON = "application/json"


class AccessControl:
    """ASGI middleware that refuses foreign hosts and origins, and requests without the token.

    ```python
    Middleware(AccessControl, hosts=["models.example.com"], token="", cross_site=False)
    ```

    Args:
        app: the application to protect.
        hosts: names of this server besides localhost; `*.example.com` stands for all below, and
            `*` for any. IP addresses are accepted: they cannot be rebound.
        token: what requests must have as bearer token; empty: nothing.
        cross_site: whether pages of other sites may send requests, with JSON only.
    """

    def __init__(self, app: Any, hosts: Collection[str], token: str, cross_site: bool):
        self._app, self._token, self._cross_site = app, token, cross_site
        self._hosts = {host.lower() for host in (*LOCAL_HOSTS, *hosts)}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            status, text = refusal
            challenge = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            await JSONResponse({"error": text}, status, challenge)(scope, receive, send)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        """Return status and text for a request that is refused; None: it is not."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = (_split(f"//{host}").hostname or "").lower()
        if not self._is_allowed(name):
            return 403, f"The host {name!r} is not allowed. Start the server with --allowed-hosts."
        if _is_foreign(scope["method"], headers, host):
            origin = headers.get("origin", "")
            if not self._cross_site:
                return 403, (
                    f"Requests of pages of {origin!r} are not allowed. Start the server with "
                    "--rest-api-enable-cors-support."
                )
            content_type = headers.get("content-type", "")
            if scope["method"] == "POST" and content_type.split(";")[0].strip() != _JSON:
                return 415, f"The content type must be {_JSON}. Received: {content_type!r}"
        if self._token and not is_authorized(headers.get("authorization", ""), self._token):
            return 401, "The request needs the bearer token of this server."
        return None

    def _is_allowed(self, name: str) -> bool:
        parents = {"*." + name[i + 1 :] for i, c in enumerate(name) if c == "."}
        return not self._hosts.isdisjoint({name, "*"} | parents) or _is_ip_address(name)


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuses gRPC calls without the bearer token.

    ```python
    grpc.aio.server(interceptors=[TokenInterceptor("secret")])
    ```
    """

    def __init__(self, token: str):
        self._token = token

        async def refuse(_: Any, context: Any) -> None:
            text = "The call needs the bearer token of this server."
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, text)

        self._refuse = grpc.stream_unary_rpc_method_handler(refuse)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return the handler of a call that has the token, or one that refuses it."""
        header = dict(details.invocation_metadata or ()).get("authorization", "")
        if is_authorized(header, self._token):
            return await continuation(details)
        return self._refuse


def is_authorized(header: str | bytes, token: str) -> bool:
    """Return whether an `Authorization` header holds the bearer token."""
    header = header.encode() if isinstance(header, str) else header
    scheme, _, received = header.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(received.strip(), token.encode())


def read_token(file: str) -> str:
    """Return the token in a file; "" if `file` is empty, `ValueError` if there is none in it."""
    if not file:
        return ""
    try:
        token = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"The token cannot be read from {file!r}: {error}") from error
    if not token or not token.isascii() or len(token.split()) > 1:
        raise ValueError(f"{file!r} must hold a token: one word of ASCII characters.")
    return token


def _is_foreign(method: str, headers: Headers, host: str) -> bool:
    """Return whether a page of another site sends the request."""
    origin = headers.get("origin")
    if origin is not None:
        return _split(origin).netloc.lower() != host.lower()
    site = headers.get("sec-fetch-site", "none")
    return method not in ("GET", "HEAD") and site not in ("none", "same-origin")


def _split(url: str) -> Any:
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

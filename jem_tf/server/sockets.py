"""Sockets that servers listen at."""

import socket


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to `host:port`; raise `OSError` naming both if that fails.

    The protocol is IPPROTO_TCP and not 0: asyncio sets TCP_NODELAY only then, and without
    TCP_NODELAY responses wait for acknowledgements.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise OSError(f"Cannot listen at {host}:{port}: {error}") from error
    return bound

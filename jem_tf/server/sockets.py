"""Addresses and sockets that servers listen at."""

import socket

UNREAD_MILLISECONDS = 60_000


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to `host:port`; raise `OSError` naming both if that fails.

    The protocol is IPPROTO_TCP and not 0: asyncio sets TCP_NODELAY only then, and without
    TCP_NODELAY responses wait for acknowledgements.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"A port must be between 0 and {2**16 - 1}. Received: {port}")
    try:
        family, *_, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # for clients that do not read responses
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
        bound.bind(address)
    except OSError as error:
        raise OSError(f"Cannot listen at {format_address(host, port)}: {error}") from error
    return bound

"""Fixtures of the client's tests."""

from server.fixtures import judge, plain, rules, serve, shared_servers

__all__ = ["judge", "plain", "rules", "serve", "shared_servers"]

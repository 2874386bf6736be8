"""Fixtures of the server's tests."""

from .fixtures import batching, judge, plain, rules, serve, served, shared_servers
from .inspector_models import digits, inspector_server, page, renamed, tables

__all__ = ["batching", "judge", "plain", "rules", "serve", "served", "shared_servers"]
__all__ += ["digits", "inspector_server", "page", "renamed", "tables"]

"""Fixtures of the server's tests."""

from .fixtures import batching, judge, plain, rules, serve, served, shared_servers
from .inspector_models import digits, inspector, page, renamed, tables

__all__ = ["batching", "judge", "plain", "rules", "serve", "served", "shared_servers"]
__all__ += ["digits", "inspector", "page", "renamed", "tables"]

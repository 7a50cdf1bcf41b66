"""Serves a worker's REST API in a test."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.connect.runtime.rest_access import RestAccess

if TYPE_CHECKING:
    from ottla.connect.runtime.rest import ConnectApi
    from ottla.http.host import HttpHost


def serve(host: HttpHost, api: ConnectApi) -> None:
    """Serve it for this machine, without a login."""
    rules = RestAccess(None, frozenset(), is_local=True, internal_is_signed=True)
    host.start(partial(api.pages, rules))
    host.begin()

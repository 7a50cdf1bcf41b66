"""What the short ways of requests have in common: clients that no quota concerns, and samples.

Kafka: ClientQuotaManager, which asks for each request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.server.requests.context import ANONYMOUS

if TYPE_CHECKING:
    from ottla.quota.quotas import Quotas
    from ottla.server.broker.broker import Broker

VERSION_POSITION: Final = 3
"""Where a request's version stands in its frame: the lower byte."""
_MAX_REMEMBERED: Final = 4096


class UnlimitedClients:
    """Client ids, as they stand in requests, for as long as the quotas stay as they are."""

    __slots__ = ("_quotas", "known", "version")

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self.known: set[bytes] = set()
        self.version = -1
        """Of the quotas under which they are known."""

    def learn(self, client_id: bytes) -> bool:
        """Return whether no quota concerns a client, and remember it then."""
        version = self._quotas.version
        if self._quotas.concerns(ANONYMOUS, str(client_id, "utf-8", "replace")):
            return False
        if version != self.version or len(self.known) >= _MAX_REMEMBERED:
            self.version = version
            self.known.clear()
        self.known.add(client_id)
        return True


class Lane:
    """The short way of one API for the clients of one dispatcher."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unlimited = UnlimitedClients(broker.quotas)
        self.samples: list[list[float]] | None = None
        """By version: the seconds that each request took; None where nobody counts."""

"""Which clients no quota concerns, remembered for the short ways.

Kafka: ClientQuotaManager, which asks for each request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.server.context import ANONYMOUS

if TYPE_CHECKING:
    from ottla.quota.quotas import Quotas

_MOST_REMEMBERED: Final = 4096


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
        if version != self.version or len(self.known) >= _MOST_REMEMBERED:
            self.version = version
            self.known.clear()
        self.known.add(client_id)
        return True

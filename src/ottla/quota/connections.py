"""Limits of the connection creation rate: of the node, of a listener, of an address.

Kafka: kafka.network.ConnectionQuotas (KIP-402, KIP-612).
"""

from __future__ import annotations

import logging
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from ottla.metadata.resources import IP
from ottla.metrics.sampled_stat import SampledStat
from ottla.quota.meters import IDLE_MS, MAX_METERS
from ottla.quota.rates import over_rate_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.resources import QuotaEntity
    from ottla.metrics.ledger import Ledger
    from ottla.metrics.sampled_stat import SampleWindow

log = logging.getLogger("ottla.quota")
UNLIMITED: Final = 2**31 - 1
_ADDRESS_BYTES: Final = 1024


class ConnectionRates:
    """Counts new connections. Beyond the rate of the node or listener they are accepted late.

    Beyond the rate of its address a connection is refused: closed after a delay, without a read.
    """

    def __init__(self, window: SampleWindow, *, protected_listener: str = "") -> None:
        """`protected_listener` is the inter-broker listener, exempt from the node's rate."""
        self._window = window
        self._protected_listener = protected_listener
        self._node_limit = UNLIMITED
        self._node = SampledStat(window)
        self._listener_limits: dict[str, int] = {}
        self._listeners: dict[str, SampledStat] = {}
        self._default_limit = UNLIMITED
        self._address_limits: dict[str, int] = {}
        self._addresses: dict[str, tuple[SampledStat, int]] = {}
        self._swept_ms = 0

    def set_node_limits(self, node: int, listeners: Mapping[str, int]) -> None:
        """Set max.connection.creation.rate of the node and of single listeners."""
        self._node_limit = node
        self._listener_limits = dict(listeners)

    def set_limit(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set or remove the limit of an address, or the default of all addresses."""
        names = dict(entity)
        if IP not in names:
            return
        name = names[IP]
        if name is None:
            self._default_limit = UNLIMITED if limit is None else int(limit)
            return
        try:
            address = plain_address(name)
        except ValueError:  # Kafka also stores host names
            extra = {"event": "quota.unreadable"}
            text = "the quota of host %s has no effect; set it for its IP address"
            log.warning(text, name, extra=extra)
            return
        if limit is None:
            self._address_limits.pop(address, None)
        else:
            self._address_limits[address] = int(limit)

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Count a connection; return the delay of this one and of later ones."""
        waits = [0]
        if listener != self._protected_listener:
            waits.append(self._over_ms(self._node, self._node_limit, now_ms))
        rate = self._listeners.setdefault(listener, SampledStat(self._window))
        limit = self._listener_limits.get(listener, self._node_limit)
        waits.append(self._over_ms(rate, limit, now_ms))
        return max(waits)

    def refuse_ms(self, address: str, now_ms: int) -> int:
        """Count a connection; return 0 when its address is within its limit.

        Otherwise it is not counted; return the delay before it is closed.
        """
        limit = self._address_limits.get(address, self._default_limit)
        if limit == UNLIMITED:
            return 0
        found = self._addresses.get(address)
        if found is None:
            self._forget_idle(now_ms)
        rate = SampledStat(self._window) if found is None else found[0]
        self._addresses[address] = (rate, now_ms)
        over_ms = self._over_ms(rate, limit, now_ms)
        if over_ms:
            rate.record(-1, now_ms)
        return over_ms

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        ledger.register("quota_addresses", MAX_METERS * _ADDRESS_BYTES, self._measure)

    def _measure(self) -> tuple[int, int]:
        return len(self._addresses), len(self._addresses) * _ADDRESS_BYTES

    def _forget_idle(self, now_ms: int) -> None:
        """Drop addresses unused for an hour, or all when there are too many."""
        if len(self._addresses) >= MAX_METERS:
            self._addresses.clear()
        elif now_ms - self._swept_ms >= IDLE_MS:
            self._swept_ms = now_ms
            self._addresses = {
                address: (rate, used_ms)
                for address, (rate, used_ms) in self._addresses.items()
                if now_ms - used_ms <= IDLE_MS
            }

    def _over_ms(self, rate: SampledStat, limit: int, now_ms: int) -> int:
        """Count one; return the time until the rate falls to the limit, at most one sample."""
        rate.record(1, now_ms)
        measured = rate.rate(now_ms)
        if measured <= limit:
            return 0
        max_delay_ms = self._window.sample_ms
        if limit == 0:
            return max_delay_ms
        return min(over_rate_ms(measured, limit, rate.window_ms(now_ms)), max_delay_ms)


def plain_address(name: str | bytes) -> str:
    """Return an address in the form of connections: IPv4-mapped IPv6 becomes IPv4."""
    address = ip_address(name)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)

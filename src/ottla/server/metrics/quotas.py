"""Metrics of quotas: rate of use and throttle time of clients, rates of throttled replication.

Clients without a quota are not measured, as in Kafka. An empty label stands for all users or client
ids that share the limit.

Kafka: ClientQuotaManager, kafka.server:type={Produce,Fetch,Request},user=…,client-id=….
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ottla.metrics.families import Family, Series, client_gauge, label_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clock import Clock
    from ottla.quota.quotas import Quotas
    from ottla.quota.rates import ClientUse, RateQuota

_A_SLICE = 100
"""Clients between two turns of the loop."""
_THROTTLE_TIME = "Mean throttle time of throttled requests over the window, in milliseconds."


class _Kind(NamedTuple):
    """The families of one kind of quota."""

    use: Family
    throttle_time: Family


_PRODUCE = _Kind(
    client_gauge("Produce", "byte-rate", "Bytes a second that limited clients produce."),
    client_gauge("Produce", "throttle-time", _THROTTLE_TIME),
)
_FETCH = _Kind(
    client_gauge("Fetch", "byte-rate", "Bytes a second that limited clients fetch."),
    client_gauge("Fetch", "throttle-time", _THROTTLE_TIME),
)
_REQUEST = _Kind(
    client_gauge("Request", "request-time", "Share of the loop's time, in percent."),
    client_gauge("Request", "throttle-time", _THROTTLE_TIME),
)
_LEADER = client_gauge(
    "LeaderReplication", "byte-rate", "Bytes a second sent to followers, of listed replicas."
)
_FOLLOWER = client_gauge(
    "FollowerReplication", "byte-rate", "Bytes a second fetched from leaders, of listed replicas."
)
_DIRECTORIES = client_gauge(
    "AlterLogDirsReplication", "byte-rate", "Bytes a second copied between log directories."
)


class QuotaMetrics:
    """The metrics of a node's quotas."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._clock = clock
        self._replication = (
            (_LEADER, quotas.replication.leader),
            (_FOLLOWER, quotas.replication.follower),
            (_DIRECTORIES, quotas.replication.directories),
        )
        self._kinds = (
            (_PRODUCE, quotas.produced),
            (_FETCH, quotas.fetched),
            (_REQUEST, quotas.requests),
        )

    def collect(self) -> Iterator[Series | None]:
        """Yield rates and throttle times by client, and None where the loop may take a turn."""
        for kind, quota in self._kinds:
            yield from self._of_one(kind, quota)
        for family, limit in self._replication:
            if limit.is_on or limit.is_used:
                rate = round(limit.rate(self._clock.monotonic_ms()), 3)
                yield Series(family, [""], [rate])

    def _of_one(self, kind: _Kind, quota: RateQuota) -> Iterator[Series | None]:
        uses = quota.uses(self._clock.monotonic_ms())
        found: list[ClientUse] = []
        while some := list(islice(uses, _A_SLICE)):
            found += some
            yield None
        labels = [label_text(user=one.entity.user, client_id=one.entity.client_id) for one in found]
        if labels:
            yield Series(kind.use, labels, [round(one.rate, 3) for one in found])
            yield Series(
                kind.throttle_time, labels, [round(one.throttle_time_ms, 3) for one in found]
            )

"""Events of the group coordinator: rebalances by kind of group, committed and removed offsets.

A count begins again where a shard moves to another broker; the rate is that of the last minute.

Kafka: org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metrics.families import Family, Series, client_gauge
from ottla.metrics.sampled_stat import SampledStat, SampleWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.clock import Clock
    from ottla.coordinator.group.shard import GroupShard

_ONE: Final = ("",)
_GROUP: Final = "group-coordinator-metrics"
_WINDOW: Final = SampleWindow(2, 30_000)


class _Event(NamedTuple):
    """An event, and where a shard counts it."""

    name: str
    text: str
    count: Callable[[GroupShard], int]


_EVENTS: Final = (
    _Event(
        "group-completed-rebalance",
        "Completed rebalances of classic groups",
        lambda shard: shard.classic.rebalances,
    ),
    _Event(
        "consumer-group-rebalance",
        "Raised consumer group epochs",
        lambda shard: shard.consumer.rebalances,
    ),
    _Event(
        "share-group-rebalance",
        "Raised share group epochs",
        lambda shard: shard.share.rebalances,
    ),
    _Event(
        "streams-group-rebalance",
        "Raised streams group epochs",
        lambda shard: shard.streams.rebalances,
    ),
    _Event("offset-commit", "Committed offsets", lambda shard: shard.offsets.commits),
    _Event("offset-deletion", "Deleted offsets", lambda shard: shard.offsets.deletions),
    _Event("offset-expiration", "Expired offsets", lambda shard: shard.offsets.expirations),
)


def _family(name: str, text: str) -> Family:
    found = client_gauge(_GROUP, name, text)
    return found._replace(classic=found.reporter)


_COUNTS: Final = [_family(f"{one.name}-count", f"{one.text}.") for one in _EVENTS]
_RATES: Final = [_family(f"{one.name}-rate", f"{one.text} a second.") for one in _EVENTS]


class GroupEvents:
    """The counts and rates of all shards that are loaded."""

    def __init__(self, shards: Callable[[], list[GroupShard]], clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._counts = [0] * len(_EVENTS)
        self._rates = [SampledStat(_WINDOW) for _ in _EVENTS]

    def tick(self) -> None:
        """Sample the counters."""
        shards = self._shards()
        now_ms = self._clock.monotonic_ms()
        for position, event in enumerate(_EVENTS):
            count = sum(map(event.count, shards))
            increase = count - self._counts[position]
            self._counts[position] = count
            if increase > 0:  # the count of a shard that moves away is gone
                self._rates[position].record(increase, now_ms)

    def collect(self) -> Iterator[Series]:
        """Yield all series."""
        self.tick()
        now_ms = self._clock.monotonic_ms()
        for position, count in enumerate(self._counts):
            yield Series(_COUNTS[position], _ONE, (count,))
            yield Series(_RATES[position], _ONE, (self._rates[position].rate(now_ms),))

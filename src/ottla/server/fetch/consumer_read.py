"""A fetch by a consumer: up to the high watermark or the last stable offset, from any replica.

Kafka: ReplicaManager.readFromLog with FetchParams.isFromConsumer. Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.replication.partition import NO_EPOCH
from ottla.security.acl import Operation, ResourceType
from ottla.server.fetch.read import FetchRead
from ottla.storage.log.append_info import FetchIsolation

if TYPE_CHECKING:
    from ottla.protocol.fetch_values import FetchValues, PartitionFetch, PartitionKey
    from ottla.replication.fetch_session import CachedPartition, FetchSession
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.storage.log.reads import Found

_FOLLOWERS_FROM: Final = 11
_IDS_FROM: Final = 13
"""From this version on consumers may read from any replica (KIP-392)."""
_COMMITTED: Final = FetchIsolation.TXN_COMMITTED  # an enum's members are found slowly
_UNCOMMITTED: Final = FetchIsolation.HIGH_WATERMARK


class ConsumerRead(FetchRead):
    """Reads committed records; refers the client to a nearer replica where there is one."""

    __slots__ = ("_rack_id",)

    def __init__(self, ctx: Context, request: FetchValues, session: FetchSession | None) -> None:
        self._rack_id = rack_id = request[11]
        is_checked = ctx.api_version < _FOLLOWERS_FROM or (
            ctx.broker.replica_selector is not None and len(rack_id) > 0
        )
        isolation = _COMMITTED if request[6] else _UNCOMMITTED
        FetchRead.__init__(self, ctx, request, session, isolation, is_checked)

    def _session_fetched(self, _session: FetchSession) -> None:
        """Record nothing: only the fetches of followers matter for the ISR."""

    def _is_unchanged(self, cached: CachedPartition) -> bool:
        return cached.is_unchanged()

    def _lacks_right(self, key: PartitionKey) -> bool:
        """Whether the client may not read a topic; an unknown topic id is an error of the read."""
        ctx = self._ctx
        name: str | None = key[0]
        if not name and ctx.api_version >= _IDS_FROM:
            name = ctx.broker.topic_name(key[1])
        return name is not None and not ctx.authorize(Operation.READ, ResourceType.TOPIC, name)

    def _read_checked(
        self, key: PartitionKey, replica: Partition, requested: PartitionFetch, max_bytes: int
    ) -> Found | None:
        """Read for a client that sends its last fetched epoch, an old version, or a rack.

        None where the answer is the diverging epoch (KIP-595) or a nearer replica (KIP-392).
        """
        epoch, offset, last_fetched_epoch, _, _ = requested
        if self._prefers_other(key, replica, epoch, offset):
            return None
        if self._ctx.api_version < _FOLLOWERS_FROM:
            replica.check_leader(max(NO_EPOCH, epoch))  # all negative epochs mean none
        if last_fetched_epoch >= 0:
            replica.check_epoch(max(NO_EPOCH, epoch))
            diverging = replica.diverging_epoch(last_fetched_epoch, offset)
            if diverging is not None:
                self._add_diverging(key, replica, diverging)
                return None
        return replica.read(offset, max_bytes, self.isolation, epoch, not self.size_bytes)

    def _prefers_other(
        self, key: PartitionKey, replica: Partition, epoch: int, offset: int
    ) -> bool:
        """Whether another replica is nearer; it is then the answer."""
        broker = self._ctx.broker
        selector = broker.replica_selector
        if selector is None or not self._rack_id or self._ctx.api_version < _FOLLOWERS_FROM:
            return False
        listener, now_ms = self._ctx.listener_name, broker.clock.monotonic_ms()
        preferred = selector.select(replica, self._rack_id, listener, offset, now_ms)
        if preferred < 0:
            return False
        replica.check_epoch(max(NO_EPOCH, epoch))
        self._has_error = True  # the answer must not wait
        self._add(key, replica, None, b"", 0, None, preferred)
        return True

    def _count_sent(self) -> None:
        for fetched, replica in zip(self._results, self._replicas, strict=True):
            if replica is not None:
                replica.bytes_out += fetched.size_bytes

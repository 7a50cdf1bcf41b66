"""A fetch by a follower: up to the log end; its offset is the follower's position.

Kafka: ReplicaManager.readFromLog with FetchParams.isFromFollower, Partition.fetchRecords.
Hot path: benchmarks/against_kafka/replicated.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaError
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.fetch.read import FetchRead
from ottla.storage.log.append_info import FetchIsolation

if TYPE_CHECKING:
    from ottla.protocol.fetch_values import FetchValues, PartitionFetch, PartitionKey
    from ottla.quota.replication import ReplicationQuota
    from ottla.replication.fetch_session import CachedPartition, FetchSession
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.storage.log.reads import Found

_LOG_END: Final = FetchIsolation.LOG_END  # an enum's members are found slowly
_SMALL_BYTES: Final = 64 * 1024


class FollowerRead(FetchRead):
    """Reads up to the log end, unless throttled, and records the follower's position."""

    __slots__ = ("_limit", "_replica_epoch", "_replica_id")

    def __init__(self, ctx: Context, request: FetchValues, session: FetchSession | None) -> None:
        self._replica_id = request[1]
        self._replica_epoch = request[2]
        quota = ctx.broker.quotas.replication.leader
        self._limit = quota if quota.is_on else None
        """The throttle of followers out of sync."""
        FetchRead.__init__(self, ctx, request, session, _LOG_END, True)

    @property
    def may_grow(self) -> bool:
        """Whether the response is so small that the next records should be added to it."""
        return 0 < self.size_bytes < _SMALL_BYTES and self._max_wait_ms > 0 and not self._has_error

    @property
    def _may_skip(self) -> bool:
        return True

    def positions(self) -> dict[Partition, int]:
        """Return what is watched, without throttled partitions."""
        found = FetchRead.positions(self)
        if self._limit is not None:
            found = {one: offset for one, offset in found.items() if not self._is_throttled(one)}
        return found

    def _session_fetched(self, session: FetchSession) -> None:
        """Record the time for idle partitions; all are read after a change of incarnation."""
        replica_id, epoch = self._replica_id, self._replica_epoch
        environment = self._ctx.broker.replicas.environment
        if (
            replica_id != session.replica_id
            or epoch != session.replica_epoch
            or (environment is not None and environment.is_stale(replica_id, epoch))
        ):
            session.activate_all()
            session.replica_id, session.replica_epoch = replica_id, epoch
        session.last_fetch_ms = self._ctx.broker.clock.monotonic_ms()

    def _is_unchanged(self, cached: CachedPartition) -> bool:
        """Return whether a follower in sync needs no read of a partition; record its fetch."""
        replica = cached.replica
        if replica is None or replica.leading is None:
            return False
        epoch, offset, last_fetched_epoch, log_start_offset, _ = cached.requested
        log = replica.log
        return (
            offset == log.log_end_offset
            and log.failure is None
            and cached.high_watermark == log.high_watermark
            and cached.log_start_offset == log.log_start_offset
            and epoch == replica.leader_epoch
            and (last_fetched_epoch == log.latest_epoch or _agrees(replica, cached.requested))
            and replica.leading.stayed(
                self._replica_id,
                self._replica_epoch,
                offset,
                log_start_offset,
                self._ctx.broker.clock.monotonic_ms(),
            )
        )

    def _lacks_right(self, _key: PartitionKey) -> bool:
        """Whether CLUSTER_ACTION is missing: a replica id proves nothing (CVE-2018-1288)."""
        return not self._ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def _read_checked(
        self, key: PartitionKey, replica: Partition, requested: PartitionFetch, max_bytes: int
    ) -> Found | None:
        """Read to the log end; None where the follower's log diverges."""
        data, diverging = replica.read_for_follower(
            self._replica_id,
            self._replica_epoch,
            requested,
            max_bytes,
            now_ms=self._ctx.broker.clock.monotonic_ms(),
            min_one_message=not self.size_bytes,
            is_repeated=self._was_known,
        )
        if diverging is not None:
            self._add_diverging(key, replica, diverging)
            return None
        if data is not None and self._limit is not None and self._is_throttled(replica):
            return b"", data[1]
        return data

    def _is_throttled(self, replica: Partition) -> bool:
        """Whether a follower is out of sync, listed, and the limit of its leader exceeded."""
        limit = self._limit
        return (
            limit is not None
            and self._replica_id not in replica.isr
            and limit.is_listed(replica.topic_partition)
            and limit.is_exceeded(self._ctx.broker.clock.monotonic_ms())
        )

    def _count_sent(self) -> None:
        traffic = self._ctx.broker.replicas.traffic
        traffic.bytes_out += self.size_bytes
        for fetched, replica in zip(self._results, self._replicas, strict=True):
            if replica is not None and self._replica_id in replica.adding:
                traffic.moved_bytes_out += fetched.size_bytes
        if self._limit is not None:
            self._record(self._limit)

    def _record(self, limit: ReplicationQuota) -> None:
        """Record the bytes of listed partitions, those of followers in sync included."""
        size_bytes = sum(
            fetched.size_bytes
            for fetched, replica in zip(self._results, self._replicas, strict=True)
            if replica is not None and limit.is_listed(replica.topic_partition)
        )
        if size_bytes:
            limit.record(size_bytes, self._ctx.broker.clock.monotonic_ms())


def _agrees(replica: Partition, requested: PartitionFetch) -> bool:
    """Return whether the follower's log is a prefix of ours; newer epochs may begin after it."""
    _, offset, last_fetched_epoch, _, _ = requested
    if last_fetched_epoch < 0:
        return True
    try:
        return replica.diverging_epoch(last_fetched_epoch, offset) is None
    except KafkaError:
        return False

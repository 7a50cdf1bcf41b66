"""One replica of one partition on this broker: role, epochs, in-sync set and high watermark.

Kafka: kafka.cluster.Partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.leader_state import LeaderState
from ottla.replication.log_copy import append_copied, follow_offsets
from ottla.storage.log.append_info import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.fetch_values import PartitionFetch
    from ottla.replication.leader_state import LeaderEnvironment
    from ottla.storage.log.append_info import AppendInfo
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.reads import Found
    from ottla.types import Buffer, TopicPartition, Uuid

ACKS_ALL = -1
_LOG_END: Final = FetchIsolation.LOG_END  # access to the members of an enum is slow
NO_EPOCH = -1
"""The client does not know the leader epoch."""


class PartitionWatcher(Protocol):
    """A fetch session, which caches what it has returned of a partition."""

    def replica_changed(self, cached: Any, /) -> None:
        """Examine the partition with the next fetch."""


class Partition:
    """Leads or follows; what is appended without other replicas is committed.

    `leading` is the leader state, present while the partition has followers.
    """

    __slots__ = (
        "_watching",
        "adding",
        "append_count",
        "bytes_in",
        "bytes_out",
        "environment",
        "failed_append_count",
        "is_internal",
        "is_leader",
        "is_reassigning",
        "isr",
        "leader_epoch",
        "leader_id",
        "leading",
        "log",
        "messages_in",
        "min_insync_replicas",
        "on_commit",
        "partition_epoch",
        "read_count",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: PartitionLog,
        *,
        is_internal: bool = False,
        environment: LeaderEnvironment | None = None,
    ) -> None:
        """Take the log; clients may not write to internal partitions.

        Without an environment it can only lead alone.
        """
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.is_internal = is_internal
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        """Replicas that a reassignment adds; set from the metadata, for metrics."""
        self.is_reassigning = False
        self.min_insync_replicas = 1
        self.append_count = self.failed_append_count = self.read_count = 0
        self.messages_in = self.bytes_in = self.bytes_out = 0
        """Counted since the node started, for metrics."""
        self.on_commit: Callable[[Partition], None] | None = None
        self.environment = environment
        self.leading: LeaderState | None = None
        self._watching: dict[object, PartitionWatcher] | None = None

    def watch(self, cached: object, watcher: PartitionWatcher) -> None:
        """Report the next change to a session that has cached the partition, once."""
        if self._watching is None:
            self._watching = {}
            self.log.notify_start_moved(self.changed)
        self._watching[cached] = watcher

    def stop_watching(self, cached: object) -> None:
        """Do not report the next change."""
        if self._watching is not None:
            self._watching.pop(cached, None)

    def changed(self) -> None:
        """Notify fetch sessions that the log, the leader or the replicas have changed.

        Call it before waiting fetches are tried: they read the partitions active in their session.
        """
        if self._watching is not None:
            watching, self._watching = self._watching, None
            self.log.notify_start_moved(None)
            for cached, watcher in watching.items():
                watcher.replica_changed(cached)

    def assign(self, replicas: tuple[int, ...], isr: tuple[int, ...], partition_epoch: int) -> bool:
        """Take replicas and in-sync set from the metadata; False when they are known or older.

        A leader may know them from the controller's response before the metadata arrives. Applying
        known metadata again would drop a proposal whose outcome is open.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.replicas, self.isr, self.partition_epoch = replicas, isr, partition_epoch
        return True

    def reconfigure(self, min_insync_replicas: int) -> None:
        """Apply the topic's settings."""
        self.min_insync_replicas = min_insync_replicas

    def become_leader(
        self,
        leader_id: int,
        leader_epoch: int,
        on_commit: Callable[[Partition], None] | None = None,
        *,
        now_ms: int = 0,
    ) -> None:
        """Lead from this epoch on; call it again when the replicas or the in-sync set change.

        on_commit(partition) is called when the high watermark has moved; a coordinator sets it.
        """
        self.changed()
        self.on_commit = on_commit
        if leader_epoch > self.leader_epoch:
            self.log.assign_epoch(leader_epoch, self.log.log_end_offset)
            self._end_leading()
        self.leader_id, self.leader_epoch, self.is_leader = leader_id, leader_epoch, True
        if self.environment is not None and len(self.replicas) > 1:
            if self.leading is None:
                self.leading = LeaderState(self, self.environment)
            self.leading.assigned(now_ms)
            return
        if self.leading is not None:  # the other replicas are gone
            self.leading.assigned(now_ms)
            self._end_leading()
        self.log.update_high_watermark(self.log.log_end_offset)

    def resign(
        self,
        leader_id: int,
        leader_epoch: int,
        code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ) -> None:
        """Stop leading; requests that wait for replication are answered with the code."""
        self.changed()
        self.leader_id, self.leader_epoch, self.is_leader = leader_id, leader_epoch, False
        self._end_leading(code)

    def restore(self, log: PartitionLog) -> None:
        """Begin again with the log as it was read from a directory that was offline."""
        self.resign(-1, -1)
        self.log = log
        self.partition_epoch = -1

    def _end_leading(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        leading, self.leading = self.leading, None
        if leading is not None:
            leading.end(code)

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise the error for a failed disk, a wrong leader or a wrong epoch.

        Another broker may lead after a disk has failed: as in Kafka that stays the answer here.
        """
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_epoch(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise the error for a wrong epoch, or for a failed disk."""
        if self.log.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            stale = current_leader_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if stale else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(code)

    @property
    def effective_min_isr(self) -> int:
        """In-sync replicas that acks=all requires: never more than there are replicas."""
        return min(self.min_insync_replicas, len(self.replicas))

    def check_writable(self, required_acks: int) -> None:
        """Raise the error of a produce request: not the leader, or too few in-sync replicas."""
        if not self.is_leader:
            self.check_leader()
        if required_acks == ACKS_ALL and len(self.isr) < self.effective_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.isr)} is insufficient to satisfy the "
                f"min.isr requirement of {self.effective_min_isr} for partition "
                f"{self.topic_partition}",
            )

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than acks=all requires."""
        return len(self.isr) < self.effective_min_isr

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        isolation: FetchIsolation,
        current_leader_epoch: int,
        min_one_message: bool,  # noqa: FBT001 - keywords cost much per call
    ) -> Found:
        """Read for a consumer; raises KafkaError for a wrong epoch or an offset out of range.

        A negative epoch stands for none. A follower serves consumers too (KIP-392), up to the high
        watermark that it knows.
        """
        self.read_count += 1
        log = self.log
        if log.failure is not None or (
            current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch
        ):
            self.check_epoch(max(NO_EPOCH, current_leader_epoch))
        return log.reads.find(fetch_offset, max_bytes, isolation, min_one_message)

    def read_for_follower(
        self,
        broker_id: int,
        broker_epoch: int,
        requested: PartitionFetch,
        max_bytes: int,
        *,
        now_ms: int,
        min_one_message: bool = False,
        is_repeated: bool = False,
    ) -> tuple[Found | None, tuple[int, int] | None]:
        """Read to the log end for a follower, and record its position.

        Return the batches, or the leader epoch with its end offset where the follower's log
        diverges: its position is not recorded then, it has to truncate first. is_repeated: the
        same fetch has waited for records, and was recorded before. Raises KafkaError as `read`, for
        a broker that is no follower and for a former incarnation of one.
        """
        self.read_count += 1
        epoch, fetch_offset, last_fetched_epoch, log_start_offset, _ = requested
        log = self.log
        if not self.is_leader or log.failure is not None or 0 <= epoch != self.leader_epoch:
            self.check_leader(max(NO_EPOCH, epoch))
        if self.leading is None:
            known = epoch >= 0
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code)
        follower = self.leading.check_follower(broker_id, broker_epoch, knows_epoch=epoch >= 0)
        is_within = log.log_start_offset <= fetch_offset <= log.log_end_offset
        if last_fetched_epoch >= 0 and not (is_within and last_fetched_epoch == log.latest_epoch):
            diverging = self.diverging_epoch(last_fetched_epoch, fetch_offset)
            if diverging is not None:
                return None, diverging
        data = log.reads.find(fetch_offset, max_bytes, _LOG_END, min_one_message)
        if not is_repeated:
            self.leading.fetched(follower, fetch_offset, log_start_offset, now_ms, broker_epoch)
        return data, None

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Return (epoch, end offset) where a log with this end diverges (KIP-595), else None.

        OFFSET_OUT_OF_RANGE below the log start, whatever the epochs (KAFKA-12996), and for an
        epoch that is not known.
        """
        end_offset, epoch = self.log.epoch_end_offset(last_fetched_epoch)
        if epoch < 0 or end_offset < 0 or fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def append_fetched(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        high_watermark: int,
        log_start_offset: int,
        now_ms: int,
    ) -> AppendInfo | None:
        """Append the leader's whole batches in an epoch; adopt its high watermark and log start.

        CorruptMessage for batches that are damaged or of an older epoch than the log's last,
        UnexpectedAppendOffset for those below its end, KAFKA_STORAGE_ERROR when the disk fails.
        """
        info = None
        if len(records):
            info = append_copied(self.log, records, leader_epoch=leader_epoch, now_ms=now_ms)
        follow_offsets(self.log, high_watermark, log_start_offset)
        return info

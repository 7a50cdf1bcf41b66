"""One replica of one partition on this broker: role, epochs, in-sync set and high watermark.

Kafka: kafka.cluster.Partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.append_info import FetchIsolation
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log.reads import Found
    from ottla.types import TopicPartition, Uuid

ACKS_ALL = -1
NO_EPOCH = -1
"""The client does not know which leader it asks."""


class Partition:
    """Leads or follows; with the leader alone in the in-sync set, what is appended is committed."""

    __slots__ = (
        "append_count",
        "bytes_in",
        "bytes_out",
        "failed_append_count",
        "is_internal",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
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
    ) -> None:
        """Take the log; clients may not write to internal partitions."""
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
        self.min_insync_replicas = 1
        self.append_count = self.failed_append_count = self.read_count = 0
        self.bytes_in = self.bytes_out = 0
        """Counted since the node started, for metrics."""
        self.on_commit: Callable[[Partition], None] | None = None

    def assign(self, replicas: tuple[int, ...], isr: tuple[int, ...], partition_epoch: int) -> None:
        """Take replicas and in-sync set from the metadata."""
        self.replicas, self.isr, self.partition_epoch = replicas, isr, partition_epoch

    def reconfigure(self, min_insync_replicas: int) -> None:
        """Take the topic's settings."""
        self.min_insync_replicas = min_insync_replicas

    def become_leader(
        self,
        leader_id: int,
        leader_epoch: int,
        on_commit: Callable[[Partition], None] | None = None,
    ) -> None:
        """Lead from this epoch on; the sole in-sync replica's whole log is committed.

        on_commit(partition) is called when the high watermark has moved: for the partitions of a
        coordinator.
        """
        self.on_commit = on_commit
        if leader_epoch > self.leader_epoch:
            self.log.assign_epoch(leader_epoch, self.log.log_end_offset)
        self.leader_id, self.leader_epoch, self.is_leader = leader_id, leader_epoch, True
        self._advance_high_watermark()

    def resign(self, leader_id: int, leader_epoch: int) -> None:
        """Stop leading."""
        self.leader_id, self.leader_epoch, self.is_leader = leader_id, leader_epoch, False

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise the error for a wrong leader or epoch, or for a failed disk."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.check_epoch(current_leader_epoch)

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
        """In-sync replicas that acks=all asks for: never more than there are replicas."""
        return min(self.min_insync_replicas, len(self.replicas))

    def check_writable(self, required_acks: int) -> None:
        """Raise what a producer is answered: not the leader, or too few in-sync replicas."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == ACKS_ALL and len(self.isr) < self.effective_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.isr)} is insufficient to satisfy the "
                f"min.isr requirement of {self.effective_min_isr} for partition "
                f"{self.topic_partition}",
            )

    def _advance_high_watermark(self) -> None:
        if len(self.isr) <= 1:
            self.log.update_high_watermark(self.log.log_end_offset)

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        isolation: FetchIsolation,
        current_leader_epoch: int,
        min_one_message: bool,  # noqa: FBT001 - keywords cost much per call
    ) -> Found:
        """Read for a consumer; raises KafkaError for a wrong epoch or an offset out of range.

        A negative epoch stands for none.
        """
        self.read_count += 1
        log = self.log
        if (
            not self.is_leader
            or log.failure is not None
            or (current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch)
        ):
            self.check_leader(max(NO_EPOCH, current_leader_epoch))
        return log.reads.find(fetch_offset, max_bytes, isolation, min_one_message)

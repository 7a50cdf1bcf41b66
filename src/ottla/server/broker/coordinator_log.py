"""The coordinators' view of an internal topic: its partitions as logs.

Kafka: org.apache.kafka.coordinator.common.runtime.PartitionWriter, CoordinatorPartitionWriter.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from ottla.coordinator.transaction.decisions import ProducerKey
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.records.batch import NO_SEQUENCE
from ottla.records.validator import AppendOrigin
from ottla.server.broker.internal_topics import OFFSETS_TOPIC
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.producers.append import TRANSACTION_VERSION_UNKNOWN, TransactionAppend
from ottla.types import FileSlice

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.coordinator.runtime.log import TransactionSupport
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.transaction_verification import TransactionVerification
    from ottla.storage.producers.append import Verification
    from ottla.types import Buffer

log = logging.getLogger("ottla.node")
_ACKS_ALL = -1


class TopicLog:
    """Implements coordinator.runtime.CoordinatorLog over the partitions of one topic."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaSet,
        clock: Clock,
        verification: TransactionVerification,
    ) -> None:
        self._topic = topic
        self._verification = verification
        self._replicas = replicas
        self._clock = clock

    def _partition(self, partition: int) -> Partition:
        found = self._replicas.find(self._topic, partition)
        if found is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return found

    def append(
        self,
        partition: int,
        batch: bytearray,
        leader_epoch: int,
        *,
        verification: object = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> int:
        """Append as the leader of this epoch; return the offset behind the batch."""
        replica = self._partition(partition)
        replica.check_leader(leader_epoch)
        version = transaction_version
        appended = self._replicas.append(
            replica,
            memoryview(batch),
            required_acks=_ACKS_ALL,
            now_ms=self._clock.now_ms(),
            origin=AppendOrigin.COORDINATOR,
            transaction=TransactionAppend(cast("Verification | None", verification), version),
        )
        return appended.info.last_offset + 1

    def verify_transaction(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        support: TransactionSupport,
    ) -> Pending[object]:
        """Return the verification to append a transaction's batch with."""
        producer = ProducerKey(producer_id, producer_epoch)
        try:
            verified = self._verification.begin(
                self._partition(partition), transactional_id, producer, NO_SEQUENCE, support
            )
        except KafkaError as error:
            return Pending.failed(error)
        if verified is None:
            return Pending.of(None)
        self._verification.send()
        return cast("Pending[object]", verified)

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Return batches from offset on, the last one cut after max_bytes."""
        log = self._partition(partition).log
        records = log.reads.read(
            offset, max_bytes, isolation=FetchIsolation.LOG_END, min_one_message=True
        ).records
        return records.read() if isinstance(records, FileSlice) else records

    def max_batch_bytes(self, partition: int) -> int:
        """Return the topic's max.message.bytes, or the size of its segments if that is less."""
        config = self._partition(partition).log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def start_offset(self, partition: int) -> int:
        """Return the log start offset."""
        return self._partition(partition).log.log_start_offset

    def end_offset(self, partition: int) -> int:
        """Return the log end offset."""
        return self._partition(partition).log.log_end_offset

    def high_watermark(self, partition: int) -> int:
        """Return the high watermark."""
        return self._partition(partition).log.high_watermark

    def first_unstable_offset(self, partition: int) -> int:
        """Return where the first open transaction begins; the log end offset without one."""
        log = self._partition(partition).log
        unstable = log.first_unstable_offset
        return log.log_end_offset if unstable is None else unstable


def log_fault(error: Exception) -> None:
    """Report what a coordinator did not expect."""
    if isinstance(error, CorruptMessage):
        text = "%s: its groups are not served: %s; stop the node and run ottla log-repair"
        log.error(text, OFFSETS_TOPIC, error.message, extra={"event": "partition.broken"})
        return
    text = "coordinator fault: a group's request failed; report this traceback as a bug of Ottla"
    log.error(text, exc_info=error, extra={"event": "coordinator.fault"})

"""The topic __remote_log_metadata inside a broker: its records, written and read back.

A broker reads those partitions of the topic of which it has a replica, from the beginning at each
start. A write is complete when the broker itself has read it, so that what follows is decided on a
table that has it.

Kafka: org.apache.kafka.server.log.remote.metadata.storage.{TopicBasedRemoteLogMetadataManager,
ConsumerTask, ProducerManager}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError, UnsupportedVersion
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.purgatory.pending import Pending
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.records.validator import AppendOrigin
from ottla.replication.partition import ACKS_ALL
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.remote.partition_segments import PartitionSegments
from ottla.storage.remote.records import (
    decode_remote_metadata,
    encode_remote_metadata,
    metadata_partition,
)
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ottla.purgatory.loop import Loop
    from ottla.purgatory.work import Work
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.controller.channel import ControllerChannel
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.remote.segment import RemoteSegment, SegmentUpdate
    from ottla.types import Uuid

log = logging.getLogger("ottla.remote")
METADATA_TOPIC: Final = "__remote_log_metadata"
READ_BYTES: Final = 1 << 18
"""Read at once: some thousand records, which are applied in turns."""
_NO_SEGMENTS: Final = PartitionSegments()
"""The table of each partition without segments; no record is applied to it."""


class _Reading:
    """How far one partition of the topic is read."""

    __slots__ = ("end_offset", "is_ready", "position", "waiting")

    def __init__(self, end_offset: int) -> None:
        self.position = 0
        self.end_offset = end_offset
        """Where the partition ended when reading began."""
        self.is_ready = False
        self.waiting: list[tuple[int, Pending[None]]] = []
        """Writes that are not read back, by offset."""


class RemoteMetadataTopic:
    """The tables of all partitions whose records this broker has."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        replicas: ReplicaSet,
        controller: ControllerChannel,
        loop: Loop,
        run_on_volume: RunOnVolume,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._controller = controller
        self._loop = loop
        self._run_on_volume = run_on_volume
        self._tables: dict[tuple[Uuid, int], PartitionSegments] = {}
        self._readings: dict[int, _Reading] = {}
        self._awaited: dict[int, None] = {}
        """Partitions with writes that are not read back."""
        self._is_creating = False
        self._wait_ms = metadata.config.remote_metadata.remote_log_metadata_consume_wait_ms
        replicas.on_high_watermark(self._committed, self._awaited)

    def table(self, partition: tuple[Uuid, int]) -> PartitionSegments:
        """Return the segments of a partition by its topic's id; empty without any."""
        return self._tables.get(partition, _NO_SEGMENTS)

    def is_ready(self, partition: tuple[Uuid, int]) -> bool:
        """Whether the records of a partition are known, up to where they ended at the start."""
        index = self._index_of(*partition)
        reading = None if index is None else self._readings.get(index)
        return reading is not None and reading.is_ready

    def _index_of(self, topic_id: Uuid, partition: int) -> int | None:
        count = self._metadata.partition_count(METADATA_TOPIC)
        return None if count is None else metadata_partition(topic_id, partition, count)

    def refresh(self) -> None:
        """Make the topic where it is missing, and read what other brokers wrote."""
        count = self._metadata.partition_count(METADATA_TOPIC)
        if count is None:
            self._create()
            return
        for index in range(count):
            if self._replicas.find(METADATA_TOPIC, index) is not None:
                self._read_on(index)

    def _create(self) -> None:
        if self._is_creating:
            return
        self._is_creating = True
        topic = CreateTopicsRequest.CreatableTopic
        config = self._metadata.config
        settings = config.remote_metadata
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(settings.remote_log_metadata_topic_retention_ms),
            "remote.storage.enable": "false",
            "min.insync.replicas": str(settings.remote_log_metadata_topic_min_isr),
        }
        request = CreateTopicsRequest(
            topics=[
                topic(
                    name=METADATA_TOPIC,
                    num_partitions=settings.remote_log_metadata_topic_num_partitions,
                    replication_factor=settings.remote_log_metadata_topic_replication_factor,
                    assignments=[],
                    configs=[
                        topic.CreatableTopicConfig(name=name, value=value)
                        for name, value in configs.items()
                    ],
                )
            ],
            timeout_ms=config.request_timeout_ms,
        )
        self._controller.send(request, None).on_done(self._created)

    def _created(self, done: Pending[object]) -> None:
        self._is_creating = False
        topics = [] if done.error is not None else done.value.topics  # type: ignore[attr-defined]
        codes = [ErrorCode(topic.error_code) for topic in topics]
        if done.error is not None or codes[0] not in (
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ):
            reason = done.error or f"{codes[0].name}: {topics[0].error_message}"
            text = (
                "%s is not created: %s; set rlmm.config.remote.log.metadata.topic."
                "replication.factor to the number of brokers, unless they are still starting"
            )
            log.warning(text, METADATA_TOPIC, reason, extra={"event": "topic.not_created"})

    # Writes

    def write(self, record: RemoteSegment | SegmentUpdate) -> Pending[None]:
        """Append a record; the result is complete when it is read back.

        It fails with KafkaError: NOT_LEADER_OR_FOLLOWER where another broker leads the partition,
        REQUEST_TIMED_OUT after remote.log.metadata.consume.wait.ms.
        """
        index = self._index_of(record.topic_id, record.partition)
        partition = None if index is None else self._replicas.find(METADATA_TOPIC, index)
        if partition is None or index is None:
            return Pending.failed(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        now_ms = self._loop.clock.now_ms()
        batch = encode_batch([(now_ms, None, encode_remote_metadata(record), ())])
        try:
            appended = self._replicas.append(
                partition, memoryview(batch), ACKS_ALL, now_ms, AppendOrigin.COORDINATOR
            )
        except KafkaError as error:
            return Pending.failed(error)
        written: Pending[None] = Pending()
        reading = self._reading_of(index, partition)
        reading.waiting.append((appended.info.last_offset, written))
        self._awaited[index] = None
        deadline_ms = self._loop.clock.monotonic_ms() + self._wait_ms

        def time_out(_now_ms: int) -> None:
            written.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

        def stop_timer(_done: Pending[None]) -> None:
            timeout.cancel()

        timeout = self._loop.timer.add(deadline_ms, time_out)
        written.on_done(stop_timer)
        self._read_on(index)
        return written

    # Reads

    def _committed(self, partition: Partition) -> None:
        topic, index = partition.topic_partition
        if topic == METADATA_TOPIC and index in self._awaited:
            self._read_on(index)

    def _reading_of(self, index: int, partition: Partition) -> _Reading:
        reading = self._readings.get(index)
        if reading is None:
            reading = self._readings[index] = _Reading(partition.log.log_end_offset)
        return reading

    def _read_on(self, index: int) -> None:
        self._loop.worker.begin(self._read(index), (METADATA_TOPIC, index)).on_done(
            lambda done: self._ended(index, done)
        )

    def _ended(self, index: int, done: Pending[None]) -> None:
        if done.error is not None:
            text = "%s-%d is not read: %s; its partitions are neither copied nor read remotely"
            extra = {"event": "remote.metadata_failed"}
            log.error(text, METADATA_TOPIC, index, done.error, extra=extra)

    def _read(self, index: int) -> Work[None]:
        """Apply what is committed of a partition."""
        while (partition := self._replicas.find(METADATA_TOPIC, index)) is not None:
            reading = self._reading_of(index, partition)
            partition_log = partition.log
            reading.position = max(reading.position, partition_log.log_start_offset)
            if reading.position >= partition_log.high_watermark:
                reading.is_ready |= reading.position >= reading.end_offset
                return
            found = partition_log.reads.read(
                reading.position, READ_BYTES, FetchIsolation.HIGH_WATERMARK
            ).records
            volume = partition_log.directory.volume
            data = (yield self._content(volume, found)) if isinstance(found, FileSlice) else found
            before = reading.position
            for batch in iterate_batches(data, partial_tail=True):
                batch.check_crc()
                for record in () if batch.is_control else batch.records():
                    if record.offset >= reading.position and record.value is not None:
                        self._apply(index, record.offset, record.value)
                reading.position = batch.next_offset
                yield
            if reading.position == before:
                raise CorruptMessage(f"no batch at offset {before}")
            self._complete(index, reading)

    def _content(self, volume: Hashable, found: FileSlice) -> Pending[bytes]:
        """Read in a worker; the file stays open until then."""
        found.file.pin()
        content: Pending[bytes] = Pending()
        content.on_done(lambda _done: found.file.unpin())
        self._run_on_volume(volume, found.read, content.job_done)
        return content

    def _apply(self, index: int, offset: int, value: bytes | memoryview) -> None:
        extra = {"event": "remote.metadata_skipped"}
        try:
            record = decode_remote_metadata(value)
        except (CorruptMessage, UnsupportedVersion) as error:
            text = "%s-%d has no record at offset %d that can be read: %s; it is skipped"
            log.error(text, METADATA_TOPIC, index, offset, error, extra=extra)  # noqa: TRY400
            return
        if record is None:
            return
        key = record.topic_id, record.partition
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = PartitionSegments()
        if not table.apply(record):
            text = "%s-%d has at offset %d the state %s of segment %s, which cannot follow; skipped"
            log.warning(
                text,
                METADATA_TOPIC,
                index,
                offset,
                record.state.name,
                record.segment_id,
                extra=extra,
            )
        if not len(table):
            del self._tables[key]

    def _complete(self, index: int, reading: _Reading) -> None:
        waiting, reading.waiting = reading.waiting, []
        for offset, written in waiting:
            if offset < reading.position:
                written.complete(None)
            elif not written.done:
                reading.waiting.append((offset, written))
        if not reading.waiting:
            self._awaited.pop(index, None)

"""What a follower takes from the tier to begin behind the records that only the tier has (KIP-405).

Those are the leader epochs of the log up to there and its producers. Of the producers Kafka 4.3.0
loads the snapshot and then deletes it: a producer whose last records are in the tier is not known
to its followers. Here it is: state that was recovered equals that of the leader.

Kafka: org.apache.kafka.server.TierStateMachine.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.offset_timestamps import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
)
from ottla.purgatory.pending import Pending
from ottla.replication.log_copy import Cut
from ottla.storage.log.leader_epochs import decode_leader_epochs
from ottla.storage.log.truncation import RemoteState, write_remote_state
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.storage.remote.storage_manager import IndexKind, RemoteStorageError

if TYPE_CHECKING:
    from collections import defaultdict

    from ottla.purgatory.work import Work
    from ottla.replication.partition import Partition
    from ottla.server.broker.broker_channel import BrokerChannel
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.remote.figures import RemoteCounts
    from ottla.server.remote.log_manager import Tier
    from ottla.server.remote.metadata_topic import RemoteMetadataTopic
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.log.leader_epochs import LeaderEpochs
    from ottla.storage.remote.segment import RemoteSegment

MAX_BYTES: Final = 1 << 28
"""Of an index that is read whole: a snapshot of some two million producers."""


class RemoteStateBuilder:
    """Builds the state of followers whose leaders have the next record in the tier alone."""

    def __init__(
        self,
        topic: RemoteMetadataTopic,
        tier: Tier,
        channel: BrokerChannel,
        metadata: BrokerMetadata,
        counts: defaultdict[str, RemoteCounts],
        *,
        run_on_volume: RunOnVolume,
    ) -> None:
        self._run_on_volume = run_on_volume
        self._metadata = metadata
        self._topic = topic
        self._storage = tier.storage
        self._channel = channel
        self._calls = tier.followers
        self._counts = counts

    def build(
        self, partition: Partition, leader_id: int, leader_epoch: int, leader_start_offset: int
    ) -> Work[Cut]:
        """Return the cut with which the log begins where the leader's local log does.

        Epochs and snapshot lie durably in the log's directory then. KafkaError for an answer of
        the leader, RemoteStorageError for the tier, CorruptMessage for what the tier has, OSError.
        """
        counts = self._counts[partition.topic_partition.topic]
        counts.build_count += 1
        try:
            return (yield from self._build(partition, leader_id, leader_epoch, leader_start_offset))
        except Exception:
            counts.failed_build_count += 1
            raise

    def _build(
        self, partition: Partition, leader_id: int, leader_epoch: int, leader_start_offset: int
    ) -> Work[Cut]:
        topic, index = partition.topic_partition
        key = partition.topic_id, index
        start_offset, epoch = yield from self._local_start(partition, leader_id, leader_epoch)
        if epoch > 0:
            epoch = yield from self._epoch_before(
                partition, leader_id, leader_epoch, start_offset, epoch
            )
        yield from self._topic.catch_up(key)
        segment = self._topic.table(key).segment_at(epoch, start_offset - 1)
        if segment is None:
            raise RemoteStorageError(
                f"remote storage has no segment with offset {start_offset - 1} of epoch {epoch} "
                f"of {topic}-{index}"
            )
        log, end_offset = partition.log, partition.log.log_end_offset
        read: Pending[tuple[RemoteState, bytes, LeaderEpochs]] = Pending()
        job = partial(self._read, segment, leader_start_offset)
        self._calls.run(job, read.job_done, f"the read of the state of {topic}-{index}")
        state, snapshot, epochs = yield read
        if (
            partition.log is not log
            or partition.leader_epoch != leader_epoch
            or log.log_end_offset != end_offset
        ):  # the call took long: the files are those of a log that goes on
            raise RemoteStorageError(f"{topic}-{index} has another leader or other records now")
        held = log.directory.open_directory(log.name)
        written: Pending[None] = Pending()
        written.on_done(lambda _done: held.close())
        write = partial(write_remote_state, held, segment.end_offset + 1, snapshot, epochs)
        self._run_on_volume(log.directory.volume, write, written.job_done)
        yield written
        return Cut(segment.end_offset + 1, is_restart=True, before=state)

    def _local_start(
        self, partition: Partition, leader_id: int, leader_epoch: int
    ) -> Work[tuple[int, int]]:
        """Ask the leader where its local log begins, and in which epoch.

        With KIP-1023 an empty log begins after the last offset of the tier instead.
        """
        name, index = partition.topic_partition
        is_empty = partition.log.log_end_offset == partition.log.local_log_start_offset
        is_after_tier = is_empty and self._metadata.config.follower_fetch_last_tiered_offset_enable
        topic = ListOffsetsRequest.ListOffsetsTopic
        asked = topic.ListOffsetsPartition(
            partition_index=index,
            current_leader_epoch=leader_epoch,
            timestamp=(
                EARLIEST_PENDING_UPLOAD_TIMESTAMP if is_after_tier else EARLIEST_LOCAL_TIMESTAMP
            ),
        )
        request = ListOffsetsRequest(
            replica_id=self._metadata.config.node_id,
            isolation_level=0,
            topics=[topic(name=name, partitions=[asked])],
        )
        response = yield self._channel.send(leader_id, request)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        if answer.offset <= 0:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the leader has no local start")
        return answer.offset, answer.leader_epoch

    def _epoch_before(
        self, partition: Partition, leader_id: int, leader_epoch: int, offset: int, epoch: int
    ) -> Work[int]:
        """Return the epoch of the record before offset, where this epoch is that of offset."""
        name, index = partition.topic_partition
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = topic.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=leader_epoch, leader_epoch=epoch - 1
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._metadata.config.node_id, topics=[topic(topic=name, partitions=[asked])]
        )
        response = yield self._channel.send(leader_id, request)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        earlier_epoch: int = answer.leader_epoch
        return earlier_epoch if answer.end_offset >= offset else epoch

    def _read(
        self, segment: RemoteSegment, start_offset: int
    ) -> tuple[RemoteState, bytes, LeaderEpochs]:
        """Read the state at a segment's end, with the files' content; in a worker."""
        epochs = decode_leader_epochs(self._index(segment, IndexKind.LEADER_EPOCH))
        epochs.truncate_from_end(segment.end_offset + 1)
        if not epochs.entries:
            raise CorruptMessage(f"segment {segment.segment_id} has no leader epochs")
        start_offset = max(start_offset, epochs.entries[0].start_offset)
        snapshot = self._index(segment, IndexKind.PRODUCER_SNAPSHOT)
        producers = decode_snapshot(snapshot)
        state = RemoteState(start_offset, epochs.entries, producers, is_written=True)
        return state, snapshot, epochs

    def _index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        with closing(self._storage.read_index(segment, kind)) as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise CorruptMessage(f"{kind.name} of segment {segment.segment_id} is too large")
        return data

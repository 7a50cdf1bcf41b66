"""The flat reader and writer of Fetch agree with the codec, in every version."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import CorruptMessage
from ottla.protocol import codec, frames
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.fetch_values import FetchAnswer, FetchedPartition, read_fetch, write_fetch
from ottla.protocol.flat import reader_over
from ottla.types import ZERO_UUID, FileSlice, Node, Uuid
from tests.network.open_file import OpenFile
from tests.protocol.messages import random_message

if TYPE_CHECKING:
    from ottla.protocol.fetch_values import PartitionKey
    from ottla.types import SendItem

VERSIONS = range(FetchRequest.versions.lowest, FetchRequest.versions.highest + 1)
TopicResponse = FetchResponse.FetchableTopicResponse
PartitionData = TopicResponse.PartitionData


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_by_the_codec(version: int) -> None:
    """Random requests, with tagged fields, give what the codec gives."""
    rng = Random(version)
    for _ in range(100):
        message = random_message(FetchRequest, version, rng)
        data = memoryview(bytearray(b"xyz" + codec.to_bytes(message, version)))
        known: Any = codec.decode_at(FetchRequest, version, data, 3)[0]
        values = read_fetch(reader_over(data, 3), version)
        replica_id = known.replica_id if version < 15 else known.replica_state.replica_id
        assert values[:3] == (known.cluster_id, replica_id, known.replica_state.replica_epoch)
        assert values[3:9] == (
            known.max_wait_ms,
            known.min_bytes,
            known.max_bytes,
            known.isolation_level,
            known.session_id,
            known.session_epoch,
        )
        expected = {
            (topic.topic, topic.topic_id, one.partition): (
                one.current_leader_epoch,
                one.fetch_offset,
                one.last_fetched_epoch,
                one.log_start_offset,
                one.partition_max_bytes,
            )
            for topic in known.topics
            for one in topic.partitions
        }
        assert list(values.partitions.items()) == list(expected.items())
        assert values.forgotten == [
            (topic.topic, topic.topic_id, partition)
            for topic in known.forgotten_topics_data
            for partition in topic.partitions
        ]
        assert values.rack_id == known.rack_id


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_refused(version: int) -> None:
    """A request that is cut short or changed gives values or CorruptMessage, and nothing else."""
    rng = Random(version)
    for _ in range(40):
        data = bytearray(codec.to_bytes(random_message(FetchRequest, version, rng), version))
        for cut in range(len(data)):
            with pytest.raises(CorruptMessage):
                read_fetch(reader_over(memoryview(data[:cut]), 0), version)
        for _ in range(20):
            damaged = bytearray(data)
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                read_fetch(reader_over(memoryview(damaged), 0), version)
            except CorruptMessage:
                continue


def response_of(answer: FetchAnswer, version: int, throttle: int) -> FetchResponse:
    """Return the message that an answer stands for."""
    topics: list[Any] = []
    last: tuple[str, bytes] | None = None
    for one in answer.partitions:
        topic, topic_id, _ = one.key
        if last != (topic, topic_id):
            last = topic, topic_id
            topics.append(TopicResponse(topic=last[0], topic_id=Uuid(last[1]), partitions=[]))
        topics[-1].partitions.append(data_of(one, version))
    return FetchResponse(
        throttle_time_ms=throttle,
        error_code=answer.error_code,
        session_id=answer.session_id,
        responses=topics,
        node_endpoints=[
            FetchResponse.NodeEndpoint(
                node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in answer.node_endpoints
        ]
        if version >= 16
        else [],
    )


def data_of(one: FetchedPartition, version: int) -> PartitionData:
    """Return the message of one partition."""
    data = PartitionData(
        partition_index=one.key[2],
        error_code=one.error_code,
        high_watermark=one.high_watermark,
        last_stable_offset=one.last_stable_offset,
        log_start_offset=one.log_start_offset,
        aborted_transactions=None
        if one.aborted is None
        else [
            PartitionData.AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first in one.aborted
        ],
        records=one.records,
    )
    if version >= 11:
        data.preferred_read_replica = one.preferred_replica
    if version >= 12 and one.diverging is not None:
        epoch, end = one.diverging
        data.diverging_epoch = PartitionData.EpochEndOffset(epoch=epoch, end_offset=end)
    if version >= 12 and one.leader is not None:
        leader_id, epoch = one.leader
        leaders = PartitionData.LeaderIdAndEpoch
        data.current_leader = leaders(leader_id=leader_id, leader_epoch=epoch)
    return data


def random_fetched(rng: Random, key: PartitionKey, file: OpenFile) -> FetchedPartition:
    """Return a partition with records of some kind."""
    size = rng.choice((0, 10, 5000))
    records: SendItem = rng.choice((rng.randbytes(size), FileSlice(file, 3, size)))
    return FetchedPartition(
        key,
        rng.choice((0, 0, 6)),
        rng.randrange(-1, 1 << 60),
        rng.randrange(-1, 1 << 60),
        rng.randrange(-1, 1 << 60),
        rng.choice((None, [], [(1, 2), (3, 4)])),
        records,
        size,
        rng.choice((None, None, (3, 44))),
        rng.choice((None, None, (1, 5))),
        rng.choice((-1, -1, 7)),
    )


def joined(items: list[SendItem]) -> bytes:
    """Return a frame's bytes."""
    return b"".join(one.read() if isinstance(one, FileSlice) else one for one in items)


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_by_the_codec(version: int) -> None:
    """Answers with buffers, slices, aborts, leaders and errors are the codec's bytes."""
    rng = Random(version)
    file = OpenFile(rng.randbytes(6000))
    nodes = (Node(1, "a", 9092, None), Node(2, "host-b", 9093, "rack"))
    for count in (0, 1, 1, 2, 5, 40, 200):
        keys: list[PartitionKey] = [
            ("", Uuid(bytes([number % 3 + 1] * 16)), number)
            if version >= 13
            else (f"topic{number % 3}", ZERO_UUID, number)
            for number in range(count)
        ]
        partitions = [random_fetched(rng, key, file) for key in keys]
        answer = FetchAnswer(
            0 if version < 7 else rng.choice((0, 70)),
            0 if version < 7 else rng.randrange(1 << 31),
            partitions,
            rng.choice(((), nodes)),
        )
        throttle = rng.choice((0, 250))
        expected = frames.encode_response(7, 1, version, response_of(answer, version, throttle))
        assert joined(write_fetch(answer, 7, version, throttle)) == joined(expected)
    file.close()

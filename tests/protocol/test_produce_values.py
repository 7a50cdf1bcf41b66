"""The flat reader and writer of Produce agree with the codec, in every version."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import CorruptMessage
from ottla.protocol import codec, frames
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.protocol.flat import reader_over
from ottla.protocol.produce_values import read_produce, write_produce
from ottla.types import Node, Uuid
from tests.protocol.messages import random_message

if TYPE_CHECKING:
    from ottla.protocol.produce_values import PartitionAnswer

VERSIONS = range(ProduceRequest.versions.lowest, ProduceRequest.versions.highest + 1)
PartitionResponse = ProduceResponse.TopicProduceResponse.PartitionProduceResponse


def body_of(message: Any, version: int) -> bytes:
    """Return a message's bytes."""
    return codec.to_bytes(message, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_by_the_codec(version: int) -> None:
    """Random requests, with unknown tagged fields, give what the codec gives."""
    rng = Random(version)
    for _ in range(100):
        message = random_message(ProduceRequest, version, rng)
        data = memoryview(bytearray(b"xyz" + body_of(message, version)))
        known: Any = codec.decode_at(ProduceRequest, version, data, 3)[0]
        values = read_produce(reader_over(data, 3), version)
        assert values[:3] == (known.transactional_id, known.acks, known.timeout_ms)
        expected = [
            (topic.topic_id if version >= 13 else topic.name, one.index, one.records)
            for topic in known.topic_data
            for one in topic.partition_data
        ]
        assert values.partitions == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_refused(version: int) -> None:
    """A request that is cut short or changed gives values or CorruptMessage, and nothing else."""
    rng = Random(version)
    for _ in range(60):
        data = bytearray(body_of(random_message(ProduceRequest, version, rng), version))
        for cut in range(len(data)):
            with pytest.raises(CorruptMessage):
                read_produce(reader_over(memoryview(data[:cut]), 0), version)
        for _ in range(20):
            damaged = bytearray(data)
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                read_produce(reader_over(memoryview(damaged), 0), version)
            except CorruptMessage:
                continue


def response_of(answers: list[PartitionAnswer], version: int, throttle: int) -> ProduceResponse:
    """Return the message that the answers stand for."""
    topics: list[Any] = []
    last: str | bytes | None = None
    nodes: dict[int, Any] = {}
    for answer in answers:
        topic, index, code, base_offset, append_time_ms, log_start, errors, message, leader = answer
        if topic != last:
            named = {"topic_id": topic} if version >= 13 else {"name": topic}
            topics.append(
                ProduceResponse.TopicProduceResponse(**named, partition_responses=[])  # type: ignore[arg-type]
            )
            last = topic
        topics[-1].partition_responses.append(
            PartitionResponse(
                index=index,
                error_code=code,
                base_offset=base_offset,
                log_append_time_ms=append_time_ms,
                log_start_offset=log_start,
                record_errors=[
                    PartitionResponse.BatchIndexAndErrorMessage(
                        batch_index=number, batch_index_error_message=text
                    )
                    for number, text in errors
                ],
                error_message=message,
            )
        )
        if leader is not None and version >= 10:
            leader_id, epoch, node = leader
            known = PartitionResponse.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
            topics[-1].partition_responses[-1].current_leader = known
            if node is not None:
                nodes[leader_id] = ProduceResponse.NodeEndpoint(**node._asdict())
    endpoints = [nodes[leader_id] for leader_id in sorted(nodes)]
    return ProduceResponse(responses=topics, throttle_time_ms=throttle, node_endpoints=endpoints)


def random_answer(rng: Random, topic: str | Uuid) -> PartitionAnswer:
    """Return an answer, with occasional errors."""
    node_id = rng.randrange(4)
    node = Node(node_id, f"host-{node_id}", 9092 + node_id, None if node_id & 1 else "rack")
    leader = node_id, rng.randrange(1 << 31), rng.choice((None, node))
    errors = [(n, rng.choice((None, "bad key é"))) for n in range(rng.choice((0, 0, 2)))]
    return (
        topic,
        rng.randrange(1 << 31),
        rng.choice((0, 0, 87)),
        rng.randrange(-1, 1 << 60),
        rng.choice((-1, 1 << 41)),
        rng.randrange(-1, 1 << 50),
        errors,
        rng.choice((None, None, "why" * 90)),
        rng.choice((None, leader)),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_by_the_codec(version: int) -> None:
    """Answers of several topics and partitions are the codec's bytes."""
    rng = Random(version)
    for count in (0, 1, 1, 2, 3, 9, 200):
        topics: list[Any] = [
            codec_id(rng) if version >= 13 else f"topic-{n}" * (1 + 20 * (n == 2)) for n in range(4)
        ]
        chosen = [topics[number * 4 // max(1, count)] for number in range(count)]
        answers = [random_answer(rng, topic) for topic in chosen]
        throttle = rng.choice((0, 250))
        expected = frames.encode_response(7, 0, version, response_of(answers, version, throttle))
        assert [write_produce(answers, 7, version, throttle)] == expected


def codec_id(rng: Random) -> Uuid:
    """Return a random topic id."""
    return Uuid(rng.randbytes(16))

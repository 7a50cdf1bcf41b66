"""Questions about partitions to real Kafka 4.3.0 and to Ottla: the same answers, every version.

Kafka: KafkaApis.handleListOffsetRequest, handleOffsetForLeaderEpochRequest,
handleDescribeTopicPartitionsRequest, handleDescribeProducersRequest, handleDeleteRecordsRequest.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_records import DeleteRecordsRequest
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.builder import encode_batch
from tests.conformance.applied import LIMIT_S, wait_until_applied
from tests.conformance.pair import Conversation, Pair, Speaker, running_pair
from tests.controller.harness import topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
DEEP, WIDE, EMPTY, CUT = "deep", "wide", "empty", "cut"
SPECIAL = (-1, -2, -3, -4, -5, -6, -7, 0, 1_000, 1_015, 1_020, 1_021, 10**15)


@pytest.fixture(scope="module")
def pair(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run both with the same four topics, one of them with known records."""
    with running_pair(kafka, tmp_path_factory.mktemp("partitions")) as pair:
        forever = {"retention_ms": "-1", "message_timestamp_after_max_ms": str(2**63 - 1)}
        topics = [topic(DEEP, 2, 1, **forever), topic(WIDE, 7), topic(EMPTY)]
        topics.append(topic(CUT, 1, 1, **forever))
        for one in pair.ask(CreateTopicsRequest(topics=topics)):
            assert [result.error_code for result in one.topics] == [0] * len(topics)
        wait_until_applied(pair.theirs.ask)
        for speaker in (pair.theirs, pair.ours):
            _fill(speaker, DEEP)
            _fill(speaker, CUT)
        yield pair


def _fill(speaker: Speaker | Conversation, name: str) -> None:
    """Write 30 records in three batches by an idempotent producer; the newest is not the last."""
    requested = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
    answer: Any = speaker.ask(requested)
    for number, base_ms in enumerate((1_000, 1_020, 1_010)):
        batch = encode_batch(
            [(base_ms + step, b"k", b"v", ()) for step in range(10)],
            producer_id=4000,
            producer_epoch=3,
            base_sequence=number * 10,
        )
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                data(
                    topic_id=answer.topics[0].topic_id,
                    partition_data=[data.PartitionProduceData(index=0, records=batch)],
                )
            ],
        )
        produced: Any = speaker.ask(request)
        assert produced.responses[0].partition_responses[0].error_code == 0


def _offsets(name: str, index: int, timestamp: int, *, epoch: int = -1, level: int = 0) -> Any:
    struct = ListOffsetsRequest.ListOffsetsTopic
    partition = struct.ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    requested = struct(name=name, partitions=[partition])
    return ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[requested])


@pytest.mark.parametrize("timestamp", SPECIAL)
def test_offsets_for_times(pair: Pair, timestamp: int) -> None:
    """Times, and the special ones, of a full and an empty log in every version."""
    versions = ListOffsetsRequest.versions
    for name in (DEEP, EMPTY):
        request = _offsets(name, 0, timestamp)
        pair.compare(request, versions=range(versions.lowest, versions.highest + 1))


def test_offsets_with_errors(pair: Pair) -> None:
    """Unknown topics and partitions, wrong epochs, other isolation, the same partition twice."""
    twice: Any = _offsets(DEEP, 0, -1)
    twice.topics[0].partitions *= 2
    twice.topics += _offsets(DEEP, 1, -1).topics
    pair.compare(
        _offsets("nosuch", 0, -1),
        _offsets(DEEP, 9, -1),
        _offsets(DEEP, -1, -1),
        _offsets(DEEP, 0, -1, epoch=0),
        _offsets(DEEP, 0, -1, epoch=7),
        _offsets(DEEP, 0, -2, level=1),
        _offsets(DEEP, 0, -3, level=1),
        _offsets(DEEP, 0, -1, level=1),
        _offsets("bad*name", 0, -1),
        twice,
        ListOffsetsRequest(replica_id=-1, topics=[]),
    )


def _epochs(name: str, index: int, epoch: int, *, current: int = -1) -> Request:
    struct = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = struct.OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current, leader_epoch=epoch
    )
    return OffsetForLeaderEpochRequest(
        replica_id=-2, topics=[struct(topic=name, partitions=[partition])]
    )


def test_ends_of_epochs(pair: Pair) -> None:
    """Known, older and unknown epochs; wrong current ones; partitions that are not there."""
    requests = [_epochs(DEEP, 0, epoch) for epoch in (-1, 0, 1, 9)]
    requests += [_epochs(EMPTY, 0, epoch) for epoch in (-1, 0, 1)]
    requests += [_epochs(DEEP, 0, 0, current=current) for current in (0, 5)]
    requests += [_epochs("nosuch", 0, 0), _epochs(DEEP, 9, 0)]
    pair.compare(*requests, versions=range(2, 5))


def _pages(
    names: list[str], limit: int, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    struct = DescribeTopicPartitionsRequest
    return struct(
        topics=[struct.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else struct.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def test_topics_page_by_page(pair: Pair) -> None:
    """Limits, cursors inside, after and past topics, unknown and repeated names."""
    both = [WIDE, DEEP]
    pair.compare(
        _pages([], 2000),
        _pages([], 3),
        _pages([], 1),
        _pages([], 0),
        _pages([], -1),
        _pages(both, 4),
        _pages(both, 2),
        _pages(both, 9),
        _pages([WIDE], 7),
        _pages([WIDE, WIDE], 3),
        _pages([WIDE], 3, (WIDE, 3)),
        _pages([WIDE], 3, (WIDE, 6)),
        _pages([WIDE], 3, (WIDE, 7)),
        _pages([WIDE], 3, (WIDE, 99)),
        _pages([WIDE], 3, (WIDE, -1)),
        _pages(both, 4, (DEEP, 1)),
        _pages(both, 4, ("dz", 5)),
        _pages(both, 4, ("zz", 0)),
        _pages([], 4, (DEEP, 1)),
        _pages([], 4, ("nosuch", 0)),
        _pages(["nosuch"], 4),
        _pages(["nosuch", WIDE], 4),
        _pages(["nosuch", WIDE], 4, ("nosuch", 0)),
        _pages(["bad*name"], 4),
        _pages([""], 4),
        _pages(["bad*name", WIDE, "a"], 4),
        _pages(["", WIDE], 4),
        _pages([], 3, (WIDE, -1)),
        _pages(["zzz", WIDE], 7),
    )


def _producers(name: str, *indexes: int) -> Request:
    struct = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[struct(name=name, partition_indexes=list(indexes))])


def test_producers_of_partitions(pair: Pair) -> None:
    """One producer's state, none, and partitions that are not there."""
    pair.compare(
        _producers(DEEP, 0),
        _producers(DEEP, 0, 1, 5),
        _producers(EMPTY, 0),
        _producers("nosuch", 0),
        _producers("bad*name", 0),
        _producers(DEEP, -1),
        DescribeProducersRequest(topics=[]),
    )


def _metadata(*names: str, create: bool = False) -> MetadataRequest:
    struct = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[struct(name=name) for name in names], allow_auto_topic_creation=create
    )


def _topics_only(answer: Any) -> Any:
    return [(one.name, one.error_code, one.is_internal, one.partitions) for one in answer.topics]


def test_metadata_of_topics(pair: Pair) -> None:
    """Known and unknown topics in every version, in the order of Kafka's answer."""
    for version in range(14):
        # before 4 there is no field to say that nothing may be created
        requests = [_metadata(DEEP, WIDE, create=version < 4)]
        if version >= 4:
            requests += [_metadata("nosuch", DEEP), _metadata("bad*name"), _metadata(DEEP, DEEP)]
        for request in requests:
            theirs, ours = pair.ask(request, version)
            assert _topics_only(ours) == _topics_only(theirs), (version, request)


def test_topics_made_on_demand(pair: Pair) -> None:
    """Metadata creates what it may: the first answer says not yet, a later one has the topic."""
    for name in (
        "fresh",
        "bad*name",
        "",
        "x" * 250,
        "fresh.one",
        "fresh_one",
        "..",
        "__consumer_offsets",
    ):
        theirs, ours = pair.ask(_metadata(name, create=True), 12)
        assert _topics_only(ours) == _topics_only(theirs), name
    for name in ("fresh", "fresh.one", "__consumer_offsets"):
        theirs, ours = (_until_there(one, name) for one in (pair.theirs, pair.ours))
        assert _topics_only(ours) == _topics_only(theirs), name


def _until_there(speaker: Speaker | Conversation, name: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while True:
        answer: Any = speaker.ask(_metadata(name), 12)
        if not answer.topics[0].error_code and all(
            one.leader_id == 1 for one in answer.topics[0].partitions
        ):
            return answer
        assert time.monotonic() < deadline, f"{name} was not created"
        time.sleep(0.02)


def _delete(name: str, index: int, offset: int) -> DeleteRecordsRequest:
    struct = DeleteRecordsRequest.DeleteRecordsTopic
    partition = struct.DeleteRecordsPartition(partition_index=index, offset=offset)
    return DeleteRecordsRequest(topics=[struct(name=name, partitions=[partition])], timeout_ms=5000)


def test_records_deleted_up_to_an_offset(pair: Pair) -> None:
    """Offsets within, before and past the log; internal and unknown topics; then its new start."""
    pair.compare(
        _delete(CUT, 0, 5),
        _delete(CUT, 0, 3),
        _delete(CUT, 0, 31),
        _delete(CUT, 0, -2),
        _delete(CUT, 9, 1),
        _delete("nosuch", 0, 1),
        _delete(CUT, 0, -1),
        _delete(EMPTY, 0, -1),
        _offsets(CUT, 0, -2),
        _offsets(CUT, 0, -3),
        _offsets(CUT, 0, 1000),
        _producers(CUT, 0),
    )


def test_internal_records_stay(pair: Pair) -> None:
    """Records of an internal topic cannot be deleted; before it exists it is only unknown."""
    request = _delete("__share_group_state", 0, 0)
    pair.compare(request)
    pair.ask(_metadata("__consumer_offsets", create=True), 12)
    for speaker in (pair.theirs, pair.ours):
        _until_there(speaker, "__consumer_offsets")
    pair.compare(_delete("__consumer_offsets", 0, 0))


def test_operations_of_a_caller(pair: Pair) -> None:
    """Without an authorizer everything is allowed; the operations are absent unless requested."""
    for version in range(8, 11):
        request = _metadata(DEEP, "nosuch")
        request.include_cluster_authorized_operations = True
        request.include_topic_authorized_operations = True
        for theirs, ours in [pair.ask(request, version)]:
            assert ours.cluster_authorized_operations == theirs.cluster_authorized_operations
            assert [one.topic_authorized_operations for one in ours.topics] == [
                one.topic_authorized_operations for one in theirs.topics
            ]
    for requested in (True, False):
        theirs, ours = pair.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=requested)
        )
        assert ours.cluster_authorized_operations == theirs.cluster_authorized_operations

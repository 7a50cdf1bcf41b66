"""Questions that no client of ours asks: a live node answers them as Kafka does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin
from ottla.errors import ErrorCode
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.delete_records import DeleteRecordsRequest
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest
from ottla.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.server.requests import rights
from ottla.testing.cluster import Cluster
from ottla.types import ZERO_UUID, Uuid
from tests.server.requests.untrusted_clients import Peer, create_topic, produce
from tests.server.system.test_disk_faults import batch

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_TOPIC = Uuid(b"no such topic id")
SMALL = {"num.partitions": "3", "replication.factor": "1", "min.isr": "1"}
FENCED = ErrorCode.FENCED_LEADER_EPOCH


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    """Connect to a node with two topics that hold records, and an empty one."""
    with Cluster() as cluster:
        assert create_topic(cluster, "t", "u", "read") == [0, 0, 0]
        one = Peer(cluster.bootstrap)
        assert {produce(one, name, batch()) for name in ("t", "read")} == {0}
        yield one
        one.close()


def metadata(peer: Peer, *topics: tuple[Uuid, str | None]) -> Any:
    """Ask for topics by id and name, and for what may be done to them."""
    wanted = [MetadataRequest.MetadataRequestTopic(topic_id=one, name=name) for one, name in topics]
    request = MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )
    return peer.ask(request, 13).topics


def topic_id(peer: Peer, name: str) -> Uuid:
    """Return a topic's id."""
    found: Uuid = metadata(peer, (ZERO_UUID, name))[0].topic_id
    return found


def test_an_epoch_below_minus_one_is_an_old_one(peer: Peer) -> None:
    """Only -1 says that the client knows no leader; but in a Fetch every negative one does."""
    epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=-2, leader_epoch=0)
    answer = peer.ask(
        OffsetForLeaderEpochRequest(replica_id=-1, topics=[epochs(topic="t", partitions=[asked])]),
        4,
    )
    assert answer.topics[0].partitions[0].error_code == FENCED
    fetched = FetchRequest.FetchTopic
    wanted = fetched.FetchPartition(
        partition=0, fetch_offset=0, current_leader_epoch=-2, partition_max_bytes=1000
    )
    topics = [fetched(topic_id=topic_id(peer, "read"), partitions=[wanted])]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=topics, forgotten_topics_data=[]
    )
    for version in (13, 17):
        (found,) = peer.ask(request, version).responses[0].partitions
        assert (found.error_code, len(found.records) > 0) == (0, True)
    wanted.last_fetched_epoch = 0
    (found,) = peer.ask(request, 17).responses[0].partitions
    assert (found.error_code, len(found.records) > 0) == (0, True)


def test_a_session_that_goes_on_in_an_older_version_cannot_be_told_of_divergence(
    peer: Peer,
) -> None:
    """Versions before 12 have no field for it: the whole Fetch is refused, the session stays."""
    fetched = FetchRequest.FetchTopic
    wanted = fetched.FetchPartition(
        partition=0, fetch_offset=7, last_fetched_epoch=0, partition_max_bytes=1000
    )
    topics = [fetched(topic="read", partitions=[wanted])]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, session_epoch=0, topics=topics, forgotten_topics_data=[]
    )
    begun = peer.ask(request, 12)
    assert begun.responses[0].partitions[0].diverging_epoch.end_offset == 2
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, session_epoch=1, session_id=begun.session_id,
        topics=[], forgotten_topics_data=[],
    )  # fmt: skip
    answer = peer.ask(request, 9)
    assert (answer.error_code, answer.session_id, answer.responses) == (
        ErrorCode.UNSUPPORTED_VERSION,
        begun.session_id,
        [],
    )


def test_a_topic_without_partitions_has_no_offsets(peer: Peer) -> None:
    """ListOffsets does not name it."""
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[]) for name in "tx"]
    assert peer.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics == []


def test_ids_go_before_names(peer: Peer) -> None:
    """Where one topic is named by its id, those that have a name alone are passed over."""
    own = topic_id(peer, "t")
    found = metadata(peer, (ZERO_UUID, "u"), (own, "x"), (NO_TOPIC, None), (own, None))
    assert [(one.name, one.topic_id, one.error_code) for one in found] == [
        ("t", own, 0),
        (None, NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert [one.topic_authorized_operations for one in found] == [
        0b110111111000,
        rights.OMITTED,
    ]


def test_records_are_deleted_once(peer: Peer) -> None:
    """What is said last of a partition counts: nothing before it is deleted for ever."""
    asked = DeleteRecordsRequest.DeleteRecordsTopic

    def deleted(*topics: tuple[str, list[tuple[int, int]]]) -> list[tuple[str, int, int, int]]:
        wanted = [
            asked(
                name=name,
                partitions=[
                    asked.DeleteRecordsPartition(partition_index=index, offset=offset)
                    for index, offset in partitions
                ],
            )
            for name, partitions in topics
        ]
        answer = peer.ask(DeleteRecordsRequest(topics=wanted, timeout_ms=5000), 2)
        return [
            (topic.name, one.partition_index, one.low_watermark, one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        ]

    assert deleted(("t", [(0, 2), (0, 1)]), ("u", [])) == [("t", 0, 1, 0)]
    assert deleted(("t", [(0, 2)]), ("u", [(0, 0)]), ("t", [(0, 1)])) == [
        ("t", 0, 1, 0),
        ("u", 0, 0, 0),
    ]
    assert deleted(("__consumer_offsets", [(99, 0)])) == [("__consumer_offsets", 99, -1, 3)]


def test_a_topic_without_a_name_among_pages(peer: Peer) -> None:
    """Kafka trips over it on the first page alone: on later ones it is an invalid topic."""
    asked = DescribeTopicPartitionsRequest
    topics = [asked.TopicRequest(name=name) for name in ("", "t")]

    def codes(cursor: str | None) -> list[tuple[str, int]]:
        start = None if cursor is None else asked.Cursor(topic_name=cursor, partition_index=0)
        answer = peer.ask(asked(topics=topics, response_partition_limit=9, cursor=start), 0)
        return [(one.name, one.error_code) for one in answer.topics]

    unknown, invalid = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes(None) == [("", unknown), ("t", unknown)]
    assert codes("") == [("", invalid), ("t", 0)]
    assert codes("t") == [("t", 0)]
    assert {code for _, code in codes("x")} == {ErrorCode.INVALID_REQUEST}


def test_a_group_is_described_as_often_as_it_is_named(peer: Peer) -> None:
    """The answer has an element for each of the request."""
    answer = peer.ask(DescribeGroupsRequest(groups=["g", "g"]), 5)
    assert [one.group_id for one in answer.groups] == ["g", "g"]


def test_topics_of_coordinators_to_come_are_made_as_kafka_makes_them() -> None:
    """Who asks for their metadata first does not decide that they forget after a week."""
    names = ["__transaction_state", "__share_group_state"]
    keys = ("transaction.state.log", "share.coordinator.state.topic")
    own = {f"{key}.{what}": number for key in keys for what, number in SMALL.items()}
    with Cluster(config=own) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        admin.request(MetadataRequest(topics=topics, allow_auto_topic_creation=True))
        admin.create_topics(["t"])  # decided behind them
        found = cluster.run(
            lambda node: [
                (
                    len(node.broker.image.topics.by_name[name].partitions),
                    dict(node.broker.image.configs.of(ConfigResourceType.TOPIC, name)),
                )
                for name in names
            ]
        )
    same = {"min.insync.replicas": "1", "segment.bytes": "104857600"}
    assert found == [
        (
            3,
            same
            | {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
            },
        ),
        (
            3,
            same
            | {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        ),
    ]

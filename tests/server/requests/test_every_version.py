"""Each API in each version that the node advertises, with real content: old clients live on.

A field that an old version cannot say, and that may not be left out, would close the connection.
"""

from __future__ import annotations

import itertools
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, request_class, response_class, response_header_version
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.alter_configs import AlterConfigsRequest
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.delete_records import DeleteRecordsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
from ottla.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.apis.push_telemetry import PushTelemetryRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.apis.share_fetch import ShareFetchRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.frames import ResponseHeader
from ottla.records.builder import encode_batch
from ottla.server.requests.api import served_apis
from ottla.testing.cluster import Cluster
from ottla.types import ZERO_UUID, FileSlice, Uuid
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request, Response

TOPIC, ABSENT = "every-version", "absent"
NUMBERS = itertools.count(1)
TOPIC_RESOURCE = 2


class Speaker:
    """One client that speaks versions of its choice, each request on a connection of its own."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._address = (host, int(port))
        self.topic_id = ZERO_UUID

    def ask(self, request: Request, version: int) -> Any:
        """Return the answer; AssertionError when there is none, or it is not whole."""
        key = ApiKey(request.message_key)
        parts = frames.encode_request(request, version, 7, "speaker")
        frame = b"".join(part for part in parts if not isinstance(part, FileSlice))
        with socket.create_connection(self._address, timeout=WAIT_S) as connection:
            connection.sendall(frame)
            with connection.makefile("rb") as stream:
                size = stream.read(4)
                assert size, f"{key.name} {version}: the node hung up"
                body = memoryview(stream.read(int.from_bytes(size, "big")))
        header = response_header_version(key, version)
        position = codec.decode_at(ResponseHeader, header, body, 0)[1]
        response, position = codec.decode_at(response_class(key), version, body, position)
        assert position == len(body)
        return response


@pytest.fixture(scope="module")
def speaker() -> Iterator[Speaker]:
    """Run a node with one topic of one record, and speak to it."""
    with Cluster() as cluster:
        speaking = Speaker(cluster.bootstrap)
        _new_topic(speaking, TOPIC)
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        speaking.topic_id = speaking.ask(wanted, 13).topics[0].topic_id
        speaking.ask(produce(speaking, 13, TOPIC), 13)
        _await_coordinator(speaking)
        yield speaking


def _new_topic(speaker: Speaker, name: str) -> None:
    one = CreateTopicsRequest.CreatableTopic
    forever = one.CreatableTopicConfig(name="retention.ms", value="-1")
    topic = one(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[forever]
    )
    assert speaker.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def _await_coordinator(speaker: Speaker) -> None:
    """Wait until groups are served: the topic behind them is made on demand."""
    deadline = time.monotonic() + 60
    while errors_in(speaker.ask(offset_commit(speaker, 9, TOPIC), 9)) != {0}:
        speaker.ask(find_coordinator(speaker, 3, f"group-{TOPIC}"), 3)
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _fresh(prefix: str) -> str:
    return f"{prefix}-{next(NUMBERS)}"


def _id_of(speaker: Speaker, topic: str) -> Uuid:
    return speaker.topic_id if topic == TOPIC else Uuid(b"no such topic id")


# One request of each API, as a client of that version would send it about that topic.


def produce(speaker: Speaker, version: int, topic: str) -> Request:
    batch = encode_batch([(1, b"key", b"value", ())])
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)
    data = ProduceRequest.TopicProduceData(
        name=topic, topic_id=_id_of(speaker, topic), partition_data=[partition]
    )
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])


def fetch(speaker: Speaker, version: int, topic: str) -> Request:
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1000
    )
    data = FetchRequest.FetchTopic(
        topic=topic, topic_id=_id_of(speaker, topic), partitions=[partition]
    )
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[data])


def list_offsets(speaker: Speaker, version: int, topic: str) -> Request:
    one = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    asked = [one(partition_index=0, timestamp=0)]
    data = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked)
    return ListOffsetsRequest(replica_id=-1, topics=[data])


def metadata(speaker: Speaker, version: int, topic: str) -> Request:
    asked = MetadataRequest.MetadataRequestTopic(name=topic)
    return MetadataRequest(topics=[asked], allow_auto_topic_creation=version < 4)


def offset_commit(speaker: Speaker, version: int, topic: str) -> Request:
    one = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = one.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="note"
    )
    data = one(name=topic, topic_id=_id_of(speaker, topic), partitions=[partition])
    return OffsetCommitRequest(group_id=f"group-{topic}", member_id="", topics=[data])


def offset_fetch(speaker: Speaker, version: int, topic: str) -> Request:
    speaker.ask(offset_commit(speaker, 9, TOPIC), 9)
    if version < 8:
        single = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        return OffsetFetchRequest(group_id=f"group-{topic}", topics=[single])
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    data = group.OffsetFetchRequestTopics(
        name=topic, topic_id=_id_of(speaker, topic), partition_indexes=[0]
    )
    return OffsetFetchRequest(groups=[group(group_id=f"group-{topic}", topics=[data])])


def find_coordinator(speaker: Speaker, version: int, topic: str) -> Request:
    if version < 4:
        return FindCoordinatorRequest(key=topic)
    return FindCoordinatorRequest(coordinator_keys=[topic])


def _protocols() -> list[Any]:
    return [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"anything")]


def join_group(speaker: Speaker, version: int, topic: str) -> Request:
    return JoinGroupRequest(
        group_id=_fresh("join"),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000 if version else -1,
        member_id="",
        protocol_type="consumer",
        protocols=_protocols(),
    )


def _member(speaker: Speaker) -> tuple[str, str]:
    """Join a new group in a version that asks for no second round; return group and member."""
    request = join_group(speaker, 3, TOPIC)
    joined = speaker.ask(request, 3)
    assert joined.generation_id == 1
    return request.group_id, joined.member_id  # type: ignore[attr-defined] # a JoinGroupRequest


def sync_group(speaker: Speaker, version: int, topic: str) -> Request:
    group, member = _member(speaker)
    mine = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"all")
    return SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[mine],
    )


def heartbeat(speaker: Speaker, version: int, topic: str) -> Request:
    request = sync_group(speaker, 3, topic)
    assert isinstance(request, SyncGroupRequest)
    speaker.ask(request, 3)
    return HeartbeatRequest(group_id=request.group_id, generation_id=1, member_id=request.member_id)


def consumer_group_heartbeat(speaker: Speaker, version: int, topic: str) -> Request:
    return ConsumerGroupHeartbeatRequest(
        group_id=f"consumers-{version}-{topic}",
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )


def consumer_group_describe(speaker: Speaker, version: int, topic: str) -> Request:
    request = consumer_group_heartbeat(speaker, version, topic)
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    if topic == TOPIC:
        speaker.ask(request, version)
    return ConsumerGroupDescribeRequest(
        group_ids=[request.group_id], include_authorized_operations=True
    )


def share_group_heartbeat(_speaker: Speaker, version: int, topic: str) -> Request:
    return ShareGroupHeartbeatRequest(
        group_id=f"shares-{version}-{topic}",
        member_id="member",
        member_epoch=0,
        subscribed_topic_names=[topic],
    )


def share_fetch(_speaker: Speaker, version: int, topic: str) -> Request:
    return ShareFetchRequest(
        group_id=f"shares-{version}-{topic}",
        member_id="member",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_records=1,
        batch_size=1,
        topics=[],
        forgotten_topics_data=[],
    )


def share_acknowledge(_speaker: Speaker, version: int, topic: str) -> Request:
    return ShareAcknowledgeRequest(
        group_id=f"shares-{version}-{topic}",
        member_id="member",
        share_session_epoch=1,
        topics=[],
    )


def leave_group(speaker: Speaker, version: int, topic: str) -> Request:
    group, member = _member(speaker)
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id=member)
    return LeaveGroupRequest(
        group_id=group, members=[LeaveGroupRequest.MemberIdentity(member_id=member)]
    )


def describe_groups(speaker: Speaker, version: int, topic: str) -> Request:
    return DescribeGroupsRequest(groups=[_member(speaker)[0]])


def list_groups(speaker: Speaker, version: int, topic: str) -> Request:
    _member(speaker)
    return ListGroupsRequest()


def delete_groups(speaker: Speaker, version: int, topic: str) -> Request:
    speaker.ask(offset_commit(speaker, 9, TOPIC), 9)
    return DeleteGroupsRequest(groups_names=[f"group-{topic}"])


def offset_delete(speaker: Speaker, version: int, topic: str) -> Request:
    speaker.ask(offset_commit(speaker, 9, TOPIC), 9)
    one = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = one.OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(
        group_id=f"group-{topic}", topics=[one(name=topic, partitions=[partition])]
    )


def api_versions(speaker: Speaker, version: int, topic: str) -> Request:
    return ApiVersionsRequest(client_software_name="old", client_software_version="1")


def create_topics(speaker: Speaker, version: int, topic: str) -> Request:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=_fresh("created"),
        num_partitions=1,
        replication_factor=1 if topic == TOPIC else 9,
        assignments=[],
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name="retention.ms", value="5")
        ],
    )
    return CreateTopicsRequest(topics=[wanted])


def delete_topics(speaker: Speaker, version: int, topic: str) -> Request:
    name = _fresh("deleted") if topic == TOPIC else topic
    if topic == TOPIC:
        _new_topic(speaker, name)
    if version < 6:
        return DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)],
        timeout_ms=5000,
    )


def delete_records(speaker: Speaker, version: int, topic: str) -> Request:
    one = DeleteRecordsRequest.DeleteRecordsTopic
    partition = one.DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(topics=[one(name=topic, partitions=[partition])], timeout_ms=5000)


def create_partitions(speaker: Speaker, version: int, topic: str) -> Request:
    name = _fresh("grown") if topic == TOPIC else topic
    if topic == TOPIC:
        _new_topic(speaker, name)
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3, assignments=None)
    return CreatePartitionsRequest(topics=[wanted], timeout_ms=5000, validate_only=False)


def init_producer_id(speaker: Speaker, version: int, topic: str) -> Request:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=5000)


def offset_for_leader_epoch(speaker: Speaker, version: int, topic: str) -> Request:
    one = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = one.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[one(topic=topic, partitions=[partition])]
    )


def describe_configs(speaker: Speaker, version: int, topic: str) -> Request:
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[wanted], include_synonyms=True)


def alter_configs(speaker: Speaker, version: int, topic: str) -> Request:
    one = AlterConfigsRequest.AlterConfigsResource
    change = one.AlterableConfig(name="retention.ms", value="-1")
    resource = one(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def incremental_alter_configs(speaker: Speaker, version: int, topic: str) -> Request:
    one = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = one.AlterableConfig(name="retention.ms", config_operation=0, value="-1")
    resource = one(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def describe_cluster(speaker: Speaker, version: int, topic: str) -> Request:
    return DescribeClusterRequest(include_cluster_authorized_operations=False)


def describe_topic_partitions(speaker: Speaker, version: int, topic: str) -> Request:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)]
    )


def describe_quorum(speaker: Speaker, version: int, topic: str) -> Request:
    one = DescribeQuorumRequest.TopicData
    name = "__cluster_metadata" if topic == TOPIC else topic
    return DescribeQuorumRequest(
        topics=[one(topic_name=name, partitions=[one.PartitionData(partition_index=0)])]
    )


def describe_log_dirs(speaker: Speaker, version: int, topic: str) -> Request:
    one = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(topics=[one(topic=topic, partitions=[0])])


def describe_producers(speaker: Speaker, version: int, topic: str) -> Request:
    one = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[one(name=topic, partition_indexes=[0])])


def push_telemetry(speaker: Speaker, version: int, topic: str) -> Request:
    return PushTelemetryRequest(
        client_instance_id=Uuid(b"never asked here"),
        subscription_id=0,
        terminating=False,
        compression_type=0,
        metrics=b"",
    )


def add_raft_voter(speaker: Speaker, version: int, topic: str) -> Request:
    return AddRaftVoterRequest(
        cluster_id=None, timeout_ms=1, voter_id=7, voter_directory_id=Uuid(bytes(16)), listeners=[]
    )


def remove_raft_voter(speaker: Speaker, version: int, topic: str) -> Request:
    return RemoveRaftVoterRequest(
        cluster_id=None, voter_id=7, voter_directory_id=Uuid(b"never seen there")
    )


def unregister_broker(speaker: Speaker, version: int, topic: str) -> Request:
    return UnregisterBrokerRequest(broker_id=7)


QUESTIONS = {
    ApiKey[ask.__name__.upper()]: ask
    for ask in (
        produce,
        fetch,
        list_offsets,
        metadata,
        offset_commit,
        offset_fetch,
        find_coordinator,
        join_group,
        sync_group,
        heartbeat,
        consumer_group_heartbeat,
        share_group_heartbeat,
        share_fetch,
        share_acknowledge,
        consumer_group_describe,
        leave_group,
        describe_groups,
        list_groups,
        delete_groups,
        offset_delete,
        api_versions,
        create_topics,
        delete_topics,
        delete_records,
        create_partitions,
        init_producer_id,
        offset_for_leader_epoch,
        describe_configs,
        alter_configs,
        incremental_alter_configs,
        describe_cluster,
        describe_topic_partitions,
        describe_quorum,
        describe_log_dirs,
        describe_producers,
        push_telemetry,
        add_raft_voter,
        remove_raft_voter,
        unregister_broker,
    )
}
SERVED = [ApiKey(key) for key in sorted(served_apis())]
# What must be there for a client of these versions to go on, and what one node alone refuses.
SECOND_ROUND: dict[tuple[ApiKey, int], ErrorCode] = (
    {
        (ApiKey.PUSH_TELEMETRY, 0): ErrorCode.UNKNOWN_SUBSCRIPTION_ID,  # it asks for its own first
        (ApiKey.UNREGISTER_BROKER, 0): ErrorCode.BROKER_ID_NOT_REGISTERED,
        (ApiKey.REMOVE_RAFT_VOTER, 0): ErrorCode.VOTER_NOT_FOUND,
        (ApiKey.ADD_RAFT_VOTER, 0): ErrorCode.INVALID_REQUEST,  # a voter without a directory
        (ApiKey.ADD_RAFT_VOTER, 1): ErrorCode.INVALID_REQUEST,
    }
    | {(ApiKey.JOIN_GROUP, version): ErrorCode.MEMBER_ID_REQUIRED for version in range(4, 10)}
    | {(ApiKey.DESCRIBE_ACLS, version): ErrorCode.SECURITY_DISABLED for version in range(1, 4)}
    | {
        (key, version): ErrorCode.ILLEGAL_SASL_STATE  # on a listener without a login
        for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        for version in range(3)
    }
    | {
        (key, version): ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED  # without a login
        for key in (
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
        )
        for version in range(1, 4)
    }
    | {
        (key, 0): ErrorCode.INVALID_GROUP_ID
        for key in (ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS)
    }
    | {
        (ApiKey.SHARE_ACKNOWLEDGE, version): ErrorCode.SHARE_SESSION_NOT_FOUND
        for version in (1, 2)  # a session ends with its connection
    }
    | {(ApiKey.STREAMS_GROUP_HEARTBEAT, 0): ErrorCode.INVALID_REQUEST}  # without a member id
    | {
        (key, version): ErrorCode.INVALID_REQUEST  # an empty transactional id
        for key in (ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN)
        for version in range(6)
    }
)


def question(speaker: Speaker, key: ApiKey, version: int, topic: str) -> Request:
    """Return a request about the topic; of an API without a question above, an empty one."""
    ask = QUESTIONS.get(key)
    return ask(speaker, version, topic) if ask else request_class(key)()


def errors_in(answer: Any) -> set[int]:
    """Return all error codes of an answer, at any depth."""
    if isinstance(answer, list):
        return set().union(*map(errors_in, answer))
    if not hasattr(answer, "__slots__") or isinstance(answer, bytes | str | Uuid):
        return set()
    found: set[int] = set()
    for name in type(answer).__slots__:
        value = getattr(answer, name)
        found |= {value} if name == "error_code" else errors_in(value)
    return found


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_every_version_is_answered(speaker: Speaker, key: ApiKey) -> None:
    """Each version gets a whole answer without error."""
    api = served_apis()[key]
    for version in range(api.lowest, api.highest + 1):
        answer: Response = speaker.ask(question(speaker, key, version, TOPIC), version)
        expected = SECOND_ROUND.get((key, version), ErrorCode.NONE)
        assert errors_in(answer) <= {int(expected)}, (version, answer)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_every_version_can_say_no(speaker: Speaker, key: ApiKey) -> None:
    """Each version gets a whole answer about a topic or group that does not exist."""
    api = served_apis()[key]
    for version in range(api.lowest, api.highest + 1):
        speaker.ask(question(speaker, key, version, ABSENT), version)

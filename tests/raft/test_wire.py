"""The quorum's requests and responses as messages: every version, Kafka's checks and codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import CorruptMessage, ErrorCode, KafkaError, UnsupportedVersion
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.update_raft_voter import UpdateRaftVoterRequest
from ottla.protocol.apis.vote import VoteRequest
from ottla.raft.requests import (
    AddVoter,
    BeginQuorumEpoch,
    DescribeVersions,
    EndQuorumEpoch,
    EpochResponse,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    LeaderAndEpoch,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    Vote,
    VoterChangeResponse,
    VoteResponse,
)
from ottla.raft.voter_set import Voter, VoterAddress
from ottla.raft.wire import requests, responses
from ottla.records.builder import encode_batch
from ottla.types import METADATA_TOPIC, FileSlice, OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from ottla.raft.requests import Request, Response

CLUSTER, LISTENER = "ours", "CONTROLLER"
OWN, OTHER = Uuid(b"o" * 16), Uuid(b"t" * 16)
END = VoterAddress(LISTENER, "host7", 9093)
LEADER = LeaderAndEpoch(7, 5, (VoterAddress("ELSEWHERE", "x", 1), END))
BATCH = encode_batch([(1, None, b"value", ())])

VOTE = Vote(ReplicaKey(2, OWN), 4, OffsetAndEpoch(10, 3), False, ReplicaKey(1, OTHER))
BEGIN = BeginQuorumEpoch(LEADER, ReplicaKey(1, OTHER))
RESIGN = EndQuorumEpoch(LEADER, (ReplicaKey(3, OWN), ReplicaKey(1, OTHER)))
FETCH = Fetch(ReplicaKey(2, OWN), 5, 100, 4, 90, 500)
SNAPSHOT = FetchSnapshot(ReplicaKey(2, OWN), 5, OffsetAndEpoch(80, 3), 64)
UPDATE = UpdateVoter(Voter(2, OWN, (END,), 0, 1), 5)
ADD = AddVoter(Voter(2, OWN, (END,)), False, 2000)
REMOVE = RemoveVoter(ReplicaKey(2, OWN))
UNKNOWN_HIGH_WATERMARK = 0x7FFF_FFFF_FFFF_FFFF

# request → what remains of it in versions that carry less
REQUESTS: list[tuple[Request, int, Request]] = [
    (VOTE, 0, VOTE._replace(candidate=ReplicaKey(2), voter=ReplicaKey(-1))),
    (VOTE, 1, VOTE),
    (VOTE, 2, VOTE),
    (VOTE._replace(is_pre_vote=True), 2, VOTE._replace(is_pre_vote=True)),
    (BEGIN, 0, BeginQuorumEpoch(LeaderAndEpoch(7, 5), ReplicaKey(-1))),
    (BEGIN, 1, BEGIN),
    (RESIGN, 0, EndQuorumEpoch(LeaderAndEpoch(7, 5), (ReplicaKey(3), ReplicaKey(1)))),
    (RESIGN, 1, RESIGN),
    *[
        (
            FETCH,
            version,
            FETCH._replace(replica=ReplicaKey(2), high_watermark=UNKNOWN_HIGH_WATERMARK),
        )
        for version in range(13, 17)
    ],
    (FETCH, 17, FETCH._replace(high_watermark=UNKNOWN_HIGH_WATERMARK)),
    (FETCH, 18, FETCH),
    (SNAPSHOT, 0, SNAPSHOT._replace(replica=ReplicaKey(2))),
    (SNAPSHOT, 1, SNAPSHOT),
    (UPDATE, 0, UPDATE),
    (ADD._replace(ack_when_committed=True), 0, ADD._replace(ack_when_committed=True)),
    (ADD, 1, ADD),
    (REMOVE, 0, REMOVE),
]


def _through_codec(message: Any, version: int) -> Any:
    parts = [part for part in codec.encode(message, version) if not isinstance(part, FileSlice)]
    return codec.decode(type(message), version, b"".join(parts))


def _message(request: Request, version: int) -> Any:
    made = requests.to_message(request, version, cluster_id=CLUSTER)
    assert type(made) is requests.message_class(request)
    return _through_codec(made, version)


@pytest.mark.parametrize(("request_", "version", "expected"), REQUESTS)
def test_a_request_arrives_as_it_was_sent(
    request_: Request, version: int, expected: Request
) -> None:
    """In every version, less what the version does not carry."""
    message = _message(request_, version)
    assert requests.from_message(message, cluster_id=CLUSTER) == expected
    message.cluster_id = None
    assert requests.from_message(message, cluster_id=CLUSTER) == expected


def test_all_versions_are_in_the_table() -> None:
    """No advertised version is left out, but for fetches that name no topic id."""
    shown = {(requests.message_class(one).message_key, version) for one, version, _ in REQUESTS}
    every = {
        (cls.message_key, version)
        for cls in (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest)
        for version in range(cls.versions.lowest, cls.versions.highest + 1)
    }
    every |= {(FetchRequest.message_key, version) for version in range(13, 19)}
    every |= {(FetchSnapshotRequest.message_key, version) for version in (0, 1)}
    every |= {(UpdateRaftVoterRequest.message_key, 0), (RemoveRaftVoterRequest.message_key, 0)}
    every |= {(AddRaftVoterRequest.message_key, version) for version in (0, 1)}
    assert shown == every


def test_a_fetch_says_how_much_it_takes() -> None:
    """KIP-1219: one limit for records, one for parts of snapshots."""
    limits = requests.FetchLimits(11, 22)
    for request_, limit in ((FETCH, 11), (SNAPSHOT, 22)):
        made: Any = requests.to_message(request_, 18, cluster_id=CLUSTER, limits=limits)
        assert made.max_bytes == limit
    default: Any = requests.to_message(FETCH, 18, cluster_id=CLUSTER)
    assert default.max_bytes == 1 << 20


def test_what_a_version_cannot_say_is_refused() -> None:
    """A pre-vote for a voter without KIP-996, and a request without a message."""
    with pytest.raises(UnsupportedVersion):
        _message(VOTE._replace(is_pre_vote=True), 1)
    with pytest.raises(KafkaError, match="DescribeVersions is not sent to members"):
        requests.to_message(DescribeVersions(1), 0, cluster_id=CLUSTER)


@pytest.mark.parametrize("request_", [VOTE, BEGIN, RESIGN, FETCH, SNAPSHOT, UPDATE, ADD, REMOVE])
def test_another_cluster_is_refused(request_: Request) -> None:
    """Before anything else of the request is looked at."""
    message = _message(request_, requests.message_class(request_).versions.highest)
    if request_ in {UPDATE, ADD, REMOVE}:
        message.voter_id = -1
    else:
        message.topics = []
    with pytest.raises(KafkaError) as refused:
        requests.from_message(message, cluster_id="theirs")
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def _renamed(topic: Any) -> None:
    if hasattr(topic, "topic_id"):
        topic.topic_id = OWN
    for name in ("topic_name", "topic", "name"):
        if hasattr(topic, name):
            setattr(topic, name, "other")


def _renumbered(topic: Any) -> None:
    partition = topic.partitions[0]
    name = "partition" if hasattr(partition, "partition") else "partition_index"
    setattr(partition, name, 1)


@pytest.mark.parametrize("change", [_renamed, _renumbered])
@pytest.mark.parametrize("request_", [VOTE, BEGIN, RESIGN, FETCH, SNAPSHOT])
def test_another_partition_is_refused(request_: Request, change: Any) -> None:
    """As an invalid request; FetchSnapshot has a code for it."""
    message = _message(request_, requests.message_class(request_).versions.highest)
    change(message.topics[0])
    with pytest.raises(KafkaError) as refused:
        requests.from_message(message, cluster_id=CLUSTER)
    is_snapshot = isinstance(request_, FetchSnapshot)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_snapshot else ErrorCode.INVALID_REQUEST
    assert refused.value.code is code


@pytest.mark.parametrize("request_", [VOTE, BEGIN, RESIGN, FETCH, SNAPSHOT])
@pytest.mark.parametrize("topics", ["none", "two", "two partitions"])
def test_none_or_several_partitions_are_refused(request_: Request, topics: str) -> None:
    """The quorum has one log. Kafka's FetchSnapshot looks for it among several."""
    message = _message(request_, requests.message_class(request_).versions.highest)
    if topics == "none":
        message.topics = []
    elif topics == "two":
        message.topics *= 2
    else:
        message.topics[0].partitions *= 2
    if isinstance(request_, FetchSnapshot) and topics != "none":
        assert requests.from_message(message, cluster_id=CLUSTER) == request_
        return
    with pytest.raises(KafkaError) as refused:
        requests.from_message(message, cluster_id=CLUSTER)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("request_", [UPDATE, ADD, REMOVE])
def test_a_refused_change_of_voters_has_the_code_and_the_text(request_: Request) -> None:
    """UpdateRaftVoter has no text, and says who leads; the others do not."""
    message = _message(request_, requests.message_class(request_).versions.highest)
    refused = KafkaError(ErrorCode.INVALID_REQUEST, "why")
    sent = responses.refusal(message, refused, LEADER, 0, LISTENER)
    received = responses.from_message(_through_codec(sent, 0), LISTENER)
    is_update = request_ is UPDATE
    leader, text = (KNOWN, None) if is_update else (LeaderAndEpoch(-1, -1), "why")
    assert received == VoterChangeResponse(ErrorCode.INVALID_REQUEST, leader, text)
    done = responses.to_message(message, VoterChangeResponse(ErrorCode.NONE, LEADER), 0, LISTENER)
    received = responses.from_message(_through_codec(done, 0), LISTENER)
    assert received == VoterChangeResponse(ErrorCode.NONE, leader)


def test_a_fetch_by_name_is_refused() -> None:
    """The metadata log is fetched by its id alone, since version 13."""
    message = _message(FETCH, 12)
    assert message.topics[0].topic == METADATA_TOPIC
    with pytest.raises(KafkaError) as refused:
        requests.from_message(message, cluster_id=CLUSTER)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


# Responses

FENCED = ErrorCode.FENCED_LEADER_EPOCH
KNOWN = LeaderAndEpoch(7, 5, (END,))
FETCHED = FetchResponse(ErrorCode.NONE, LEADER, 90, 10, records=BATCH)
PART = FetchSnapshotResponse(ErrorCode.NONE, LEADER, OffsetAndEpoch(80, 3), 4000, 64, b"part")
RESPONSES: list[tuple[Request, Response]] = [
    (UPDATE, VoterChangeResponse(ErrorCode.NONE, LEADER)),
    (UPDATE, VoterChangeResponse(ErrorCode.VOTER_NOT_FOUND, LeaderAndEpoch(-1, 5))),
    (VOTE, VoteResponse(ErrorCode.NONE, LEADER, is_granted=True)),
    (VOTE, VoteResponse(FENCED, LeaderAndEpoch(-1, 5))),
    (BEGIN, EpochResponse(ErrorCode.NONE, LEADER)),
    (BEGIN, EpochResponse(ErrorCode.INVALID_VOTER_KEY, LEADER)),
    (RESIGN, EpochResponse(ErrorCode.NONE, LEADER)),
    (FETCH, FETCHED),
    (FETCH, FetchResponse(FENCED, LEADER, log_start_offset=10)),
    (FETCH, FETCHED._replace(records=b"", diverging=OffsetAndEpoch(70, 2))),
    (FETCH, FETCHED._replace(records=b"", snapshot_id=OffsetAndEpoch(80, 3))),
    (SNAPSHOT, PART),
    (
        SNAPSHOT,
        FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, LEADER, OffsetAndEpoch(0, 0)),
    ),
]


@pytest.mark.parametrize(("request_", "response"), RESPONSES)
def test_a_response_arrives_as_it_was_sent(request_: Request, response: Response) -> None:
    """In every version; the leader's address from the version on that carries it."""
    cls = requests.message_class(request_)
    for version in range(max(cls.versions.lowest, 0), cls.versions.highest + 1):
        is_fetch = cls is FetchRequest
        if is_fetch and version < 13:
            continue
        message = _message(request_, version)
        sent = responses.to_message(message, response, version, LISTENER)
        assert type(sent) is response_class(ApiKey(cls.message_key))
        received = responses.from_message(_through_codec(sent, version), LISTENER)
        first = 17 if is_fetch else int(request_ is not UPDATE)
        has_address = version >= first and response.leader.leader_id >= 0
        ends = (END,) if has_address else ()
        assert received == response._replace(leader=response.leader._replace(endpoints=ends))


def test_an_address_on_another_listener_is_not_given() -> None:
    """A client of one listener may not reach another's."""
    sent = responses.to_message(_message(VOTE, 2), RESPONSES[2][1], 2, "OTHER")
    assert responses.from_message(sent, "OTHER").leader == LeaderAndEpoch(7, 5)


@pytest.mark.parametrize(("max_bytes", "count"), [(0, 1), (len(BATCH) * 2 + 1, 2), (1 << 20, 3)])
def test_a_fetch_gets_the_batches_that_fit(max_bytes: int, count: int) -> None:
    """At least one, so that a large batch can be read."""
    message = _message(FETCH, 18)
    message.max_bytes = max_bytes
    sent: Any = responses.to_message(message, FETCHED._replace(records=BATCH * 3), 18, LISTENER)
    assert sent.responses[0].partitions[0].records == BATCH * count


def test_a_part_of_a_snapshot_is_as_large_as_requested() -> None:
    """The reader says how much it takes."""
    message = _message(SNAPSHOT, 1)
    message.max_bytes = 3
    sent = responses.to_message(message, PART, 1, LISTENER)
    assert responses.from_message(sent, LISTENER) == PART._replace(data=b"par", leader=KNOWN)


@pytest.mark.parametrize("request_", [VOTE, BEGIN, RESIGN, FETCH, SNAPSHOT])
def test_a_refusal_has_a_code_and_nothing_else(request_: Request) -> None:
    """Its reader learns no leader from it."""
    version = requests.message_class(request_).versions.highest
    message = _message(request_, version)
    sent = responses.refusal(
        message, KafkaError(ErrorCode.INVALID_REQUEST), LEADER, version, LISTENER
    )
    received = responses.from_message(_through_codec(sent, version), LISTENER)
    assert (received.error, received.leader) == (
        ErrorCode.INVALID_REQUEST,
        LeaderAndEpoch(-1, -1),
    )


@pytest.mark.parametrize("version", [0, 1])
def test_an_unknown_partition_of_a_snapshot_is_named(version: int) -> None:
    """With the code in the partition, and who leads in newer versions."""
    message = _message(SNAPSHOT, version)
    _renamed(message.topics[0])
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    sent: Any = responses.refusal(message, KafkaError(code), LEADER, version, LISTENER)
    received = _through_codec(sent, version)
    assert received.topics[0].name == "other"
    assert received.topics[0].partitions[0].error_code == code
    assert [one.node_id for one in received.node_endpoints] == [7] * version
    with pytest.raises(CorruptMessage):
        responses.from_message(received, LISTENER)


def test_a_response_about_nothing_is_corrupt() -> None:
    """A response without an error has the metadata log's partition."""
    for request_, response in RESPONSES[2:8]:
        version = requests.message_class(request_).versions.highest
        sent: Any = responses.to_message(_message(request_, version), response, version, LISTENER)
        if hasattr(sent, "topics"):
            sent.topics = []
        else:
            sent.responses = []
        with pytest.raises(CorruptMessage):
            responses.from_message(sent, LISTENER)


def test_an_unknown_code_is_an_error() -> None:
    """A newer node may send codes that this one does not know."""
    sent: Any = responses.to_message(_message(VOTE, 2), RESPONSES[2][1], 2, LISTENER)
    sent.topics[0].partitions[0].error_code = 9999
    assert responses.from_message(sent, LISTENER).error is ErrorCode.UNKNOWN_SERVER_ERROR

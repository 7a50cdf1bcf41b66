"""The quorum's own requests, on the controller's listener.

Kafka: KafkaRaftClient.handleVoteRequest and its neighbours. Votes in a newer epoch would make both
controllers resign and are left to tests/server/controller/test_quorum_requests.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.protocol.apis.end_quorum_epoch import EndQuorumEpochRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.fetch_snapshot import FetchSnapshotRequest
from ottla.protocol.apis.update_raft_voter import UpdateRaftVoterRequest
from ottla.protocol.apis.vote import VoteRequest
from ottla.types import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, Uuid
from tests.conformance.differential.case import build, case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
OTHER_DISK = Uuid(b"another disk's i")
TOPIC_IDS, SNAPSHOT_TRIES = 13, 100
FETCH_VERSION = FetchRequest.versions.highest


def _case(api: type[Request], name: str, fields: Fields, *errors: int, lowest: int = 0) -> Case:
    return case(api, name, fields, errors=errors, versions=(lowest, 99), listener="controller")


def _described(at: Side) -> Any:
    topic = {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
    return at.ask(ApiKey.DESCRIBE_QUORUM, topics=[topic]).topics[0].partitions[0]


def _topics(partition: dict[str, Any], name: str = METADATA_TOPIC, count: int = 1) -> Any:
    return [{"topic_name": name, "partitions": [partition]}] * count


def _vote(
    *,
    cluster_id: str | None = None,
    voter_id: int = -1,
    topic: str = METADATA_TOPIC,
    count: int = 1,
    **fields: Any,
) -> Fields:
    """Ask for a vote in the epoch of the leader, as a candidate without records."""

    def made(at: Side, version: int) -> dict[str, Any]:
        partition = {
            "partition_index": 0,
            "replica_epoch": _described(at).leader_epoch,
            "replica_id": 9,
            "last_offset_epoch": 0,
            "last_offset": 0,
            **fields,
        }
        topics = _topics(partition, topic, count)
        return {"cluster_id": cluster_id, "voter_id": voter_id, "topics": topics}

    return made


VOTE = [
    _case(VoteRequest, "valid, in the leader's epoch", _vote()),
    _case(VoteRequest, "valid, for a voter", _vote(voter_id=1)),
    _case(VoteRequest, "valid, before an election", _vote(pre_vote=True), lowest=2),
    _case(VoteRequest, "of another cluster", _vote(cluster_id="x"), E_.INCONSISTENT_CLUSTER_ID),
    _case(VoteRequest, "another topic", _vote(topic="other"), E_.INVALID_REQUEST),
    _case(VoteRequest, "another partition", _vote(partition_index=1), E_.INVALID_REQUEST),
    _case(VoteRequest, "twice", _vote(count=2), E_.INVALID_REQUEST),
    _case(VoteRequest, "nothing", _vote(count=0), E_.INVALID_REQUEST),
    _case(VoteRequest, "records of the future", _vote(last_offset_epoch=99), E_.INVALID_REQUEST),
    _case(VoteRequest, "an end below zero", _vote(last_offset=-1), E_.INVALID_REQUEST),
    _case(VoteRequest, "no candidate", _vote(replica_id=-1), E_.INVALID_REQUEST),
    _case(VoteRequest, "no candidate, past", _vote(replica_epoch=0), E_.INVALID_REQUEST),
    _case(
        VoteRequest,
        "in a past epoch",
        _vote(replica_epoch=0, pre_vote=True),
        E_.FENCED_LEADER_EPOCH,
        lowest=2,
    ),
    _case(VoteRequest, "for another voter", _vote(voter_id=2), E_.INVALID_VOTER_KEY, lowest=1),
    _case(
        VoteRequest,
        "for another disk",
        _vote(voter_id=1, voter_directory_id=OTHER_DISK),
        E_.INVALID_VOTER_KEY,
        lowest=1,
    ),
]


def _epoch(*, topic: str = METADATA_TOPIC, count: int = 1, **changes: Any) -> Fields:
    """Speak of its epoch as the leader itself."""

    def made(at: Side, version: int) -> dict[str, Any]:
        epoch = _described(at).leader_epoch
        partition = {"partition_index": 0, "leader_id": 1, "leader_epoch": epoch}
        usual = {"cluster_id": None, "voter_id": -1}
        fields = {name: changes[name] for name in usual if name in changes}
        partition |= {name: value for name, value in changes.items() if name not in usual}
        return {**usual, **fields, "topics": _topics(partition, topic, count)}

    return made


def _of_epochs() -> Iterator[Case]:
    for api in (BeginQuorumEpochRequest, EndQuorumEpochRequest):
        yield _case(api, "valid, of the leader", _without_voter(api))
        refused: list[tuple[str, int, dict[str, Any]]] = [
            ("of another cluster", E_.INCONSISTENT_CLUSTER_ID, {"cluster_id": "other"}),
            ("another topic", E_.INVALID_REQUEST, {"topic": "other"}),
            ("another partition", E_.INVALID_REQUEST, {"partition_index": 1}),
            ("twice", E_.INVALID_REQUEST, {"count": 2}),
            ("no leader", E_.INVALID_REQUEST, {"leader_id": -1}),
            ("of a past epoch", E_.FENCED_LEADER_EPOCH, {"leader_epoch": 0}),
        ]
        for name, error, changes in refused:
            yield _case(api, name, _without_voter(api, **changes), error)


def _without_voter(api: type[Request], **changes: Any) -> Fields:
    """Leave out the field that EndQuorumEpoch does not have."""
    fields = _epoch(**changes)
    names = {field.name for field in api.fields}
    return lambda at, v: {name: one for name, one in fields(at, v).items() if name in names}


EPOCHS = [
    *_of_epochs(),
    _case(
        BeginQuorumEpochRequest,
        "for another voter",
        _epoch(voter_id=2),
        E_.INVALID_VOTER_KEY,
        lowest=1,
    ),
    _case(
        BeginQuorumEpochRequest,
        "for another disk",
        _epoch(voter_id=1, voter_directory_id=OTHER_DISK),
        E_.INVALID_VOTER_KEY,
        lowest=1,
    ),
]


def _fetch(
    *, cluster_id: str | None = None, max_wait_ms: int = 0, count: int = 1, **changes: Any
) -> Fields:
    """Ask for what follows the end of the log, as an observer."""

    def made(at: Side, version: int) -> dict[str, Any]:
        described = _described(at)
        partition = {
            "partition": 0,
            "current_leader_epoch": described.leader_epoch,
            "fetch_offset": described.high_watermark,
            "last_fetched_epoch": described.leader_epoch,
            "partition_max_bytes": 0,
            "replica_directory_id": OTHER_DISK,
            **changes,
        }
        topic = {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID}
        return {
            "cluster_id": cluster_id,
            "replica_id": 9,
            "replica_state": {"replica_id": 9},
            "max_wait_ms": max_wait_ms,
            "min_bytes": 0,
            "topics": [{**topic, "partitions": [partition]}] * count,
        }

    return made


FETCH = [
    _case(FetchRequest, "valid, at the end of the log", _fetch(), lowest=TOPIC_IDS),
    _case(FetchRequest, "valid, waits", _fetch(max_wait_ms=50), lowest=TOPIC_IDS),
    _case(
        FetchRequest,
        "of another cluster",
        _fetch(cluster_id="x"),
        E_.INCONSISTENT_CLUSTER_ID,
        lowest=12,
    ),
    _case(FetchRequest, "twice", _fetch(count=2), E_.INVALID_REQUEST),
    _case(FetchRequest, "no time", _fetch(max_wait_ms=-1), E_.INVALID_REQUEST),
    _case(FetchRequest, "below zero", _fetch(fetch_offset=-1), E_.INVALID_REQUEST),
    _case(FetchRequest, "no last epoch", _fetch(last_fetched_epoch=-1), E_.INVALID_REQUEST),
    _case(FetchRequest, "records of the future", _fetch(last_fetched_epoch=9), E_.INVALID_REQUEST),
    _case(
        FetchRequest,
        "of a past leader",
        _fetch(current_leader_epoch=0, last_fetched_epoch=0),
        E_.FENCED_LEADER_EPOCH,
        lowest=TOPIC_IDS,
    ),
    _case(
        FetchRequest,
        "of a leader to come",
        _fetch(current_leader_epoch=99),
        E_.UNKNOWN_LEADER_EPOCH,
        lowest=TOPIC_IDS,
    ),
    _case(FetchRequest, "diverging", _fetch(fetch_offset=1 << 40), lowest=TOPIC_IDS),
    _case(
        FetchRequest,
        "from the beginning",
        _fetch(fetch_offset=0, last_fetched_epoch=0),
        lowest=TOPIC_IDS,
    ),
]


def _snapshot_id(at: Side) -> dict[str, int]:
    """Return the newest snapshot's id as a replica without records learns it."""
    for _ in range(SNAPSHOT_TRIES):
        fields = _fetch(fetch_offset=0, last_fetched_epoch=0)(at, FETCH_VERSION)
        del fields["replica_id"]
        request = build(FetchRequest, FETCH_VERSION, fields)
        answer = at.answer(request, FETCH_VERSION, listener="controller")
        found = answer.responses[0].partitions[0].snapshot_id
        if found.epoch >= 0:
            return {"end_offset": found.end_offset, "epoch": found.epoch}
        time.sleep(0.1)
    raise AssertionError(f"{at.name} writes no snapshot")


def _snapshot(
    *, cluster_id: str | None = None, name: str = METADATA_TOPIC, count: int = 1, **changes: Any
) -> Fields:
    """Ask for the first bytes of the newest snapshot, as an observer."""

    def made(at: Side, version: int) -> dict[str, Any]:
        partition = {
            "partition": 0,
            "current_leader_epoch": _described(at).leader_epoch,
            "snapshot_id": _snapshot_id(at),
            "position": 0,
            **changes,
        }
        return {
            "cluster_id": cluster_id,
            "replica_id": 9,
            "max_bytes": 16,
            "topics": [{"name": name, "partitions": [partition] * count}],
        }

    return made


UNWRITABLE = E_.UNKNOWN_SERVER_ERROR
SNAPSHOTS = [
    _case(FetchSnapshotRequest, "valid", _snapshot()),
    _case(FetchSnapshotRequest, "valid, twice", _snapshot(count=2)),
    _case(
        FetchSnapshotRequest,
        "of another cluster",
        _snapshot(cluster_id="other"),
        E_.INCONSISTENT_CLUSTER_ID,
    ),
    _case(FetchSnapshotRequest, "another topic", _snapshot(name="other"), UNWRITABLE),
    _case(FetchSnapshotRequest, "another partition", _snapshot(partition=1), UNWRITABLE),
    _case(FetchSnapshotRequest, "past epoch", _snapshot(current_leader_epoch=0), UNWRITABLE),
    _case(FetchSnapshotRequest, "beyond its end", _snapshot(position=1 << 30), UNWRITABLE),
    _case(
        FetchSnapshotRequest,
        "not there",
        _snapshot(snapshot_id={"end_offset": 3, "epoch": 0}),
        UNWRITABLE,
    ),
]


def _update(
    *, cluster_id: str | None = None, host: str = "127.0.0.1", levels: int = 0, **changes: Any
) -> Fields:
    """Name the address of the voter again. Kafka's leader ends when it is sent its own."""

    def made(at: Side, version: int) -> dict[str, Any]:
        described = _described(at)
        end = {"name": "CONTROLLER", "host": host, "port": at.ports["controller"]}
        return {
            "cluster_id": cluster_id,
            "current_leader_epoch": described.leader_epoch,
            "voter_id": 1,
            "voter_directory_id": described.current_voters[0].replica_directory_id,
            "listeners": [end],
            "kraft_version_feature": {"min_supported_version": levels, "max_supported_version": 1},
            **changes,
        }

    return made


UPDATES = [
    _case(
        UpdateRaftVoterRequest,
        "of another cluster",
        _update(cluster_id="x"),
        E_.INCONSISTENT_CLUSTER_ID,
    ),
    _case(
        UpdateRaftVoterRequest,
        "past epoch",
        _update(current_leader_epoch=0),
        E_.FENCED_LEADER_EPOCH,
    ),
    _case(UpdateRaftVoterRequest, "no voter", _update(voter_id=-1), E_.INVALID_REQUEST),
    _case(
        UpdateRaftVoterRequest,
        "no directory",
        _update(voter_directory_id=ZERO_UUID),
        E_.INVALID_REQUEST,
    ),
    _case(UpdateRaftVoterRequest, "no address", _update(listeners=[]), E_.INVALID_REQUEST),
    _case(
        UpdateRaftVoterRequest,
        "on another listener",
        _update(listeners=[{"name": "OTHER", "host": "127.0.0.1", "port": 1}]),
        E_.INVALID_REQUEST,
    ),
    _case(UpdateRaftVoterRequest, "no level", _update(levels=2), E_.INVALID_REQUEST),
    _case(UpdateRaftVoterRequest, "another voter", _update(voter_id=2), E_.VOTER_NOT_FOUND),
    _case(
        UpdateRaftVoterRequest,
        "another directory",
        _update(voter_directory_id=OTHER_DISK),
        E_.VOTER_NOT_FOUND,
    ),
]
CASES: list[Case] = [*VOTE, *EPOCHS, *FETCH, *SNAPSHOTS, *UPDATES]

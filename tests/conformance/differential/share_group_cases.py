"""Share groups (KIP-932): heartbeats, descriptions, fetches, acknowledgements, offsets, states.

Kafka: GroupMetadataManager.shareGroupHeartbeat, KafkaApis, ShareCoordinatorShard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.apis.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.apis.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.apis.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.apis.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.apis.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.protocol.apis.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.apis.share_fetch import ShareFetchRequest
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.apis.write_share_group_state import WriteShareGroupStateRequest
from tests.conformance.differential.case import case

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
MEMBER, OTHER = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
TOPIC = "shared"
LED = {"leader_epoch": 0}
JOIN: dict[str, Any] = {
    "member_id": MEMBER,
    "member_epoch": 0,
    "subscribed_topic_names": ["no-such-source"],
}
SHARE = 2


def _joined(at: Side, group: str) -> int:
    """Make a group of one member; return its epoch."""
    at.coordinator()
    answer = at.ask(ApiKey.SHARE_GROUP_HEARTBEAT, group_id=group, **JOIN)
    assert answer.error_code == 0, answer
    return int(answer.member_epoch)


def _joining(**changes: Any) -> Fields:
    """Join a group of this case's own."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"group_id": f"{at.label} {version}", **JOIN, **changes}

    return fields


def _beating(**changes: Any) -> Fields:
    """Send a heartbeat of the member of a group."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        group = f"{at.label} {version}"
        epoch = at.once(f"share group {group}", lambda: _joined(at, group))
        sent = {"member_id": MEMBER, "member_epoch": epoch, "subscribed_topic_names": None}
        return {"group_id": group, **sent, **changes}

    return fields


def _described(at: Side, version: int) -> dict[str, Any]:
    at.once("share group described", lambda: _joined(at, "described share"))
    return {"group_ids": ["described share"], "include_authorized_operations": False}


def _naming(*groups: str) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"group_ids": list(groups), "include_authorized_operations": False}

    return fields


HEARTBEATS = [
    case(ShareGroupHeartbeatRequest, name, fields, errors=errors)
    for name, fields, errors in (
        ("valid, joins", _joining(), ()),
        ("valid, member", _beating(), ()),
        ("valid, leaves", _beating(member_epoch=-1), ()),
        ("no group", _joining(group_id=""), [E_.INVALID_REQUEST]),
        ("no member id", _joining(member_id=""), [E_.INVALID_REQUEST]),
        ("no topics", _joining(subscribed_topic_names=None), [E_.INVALID_REQUEST]),
        ("no rack", _joining(rack_id=""), [E_.INVALID_REQUEST]),
        ("unknown epoch", _beating(member_epoch=-2), [E_.INVALID_REQUEST]),
        ("unknown group", _joining(member_epoch=3), [E_.GROUP_ID_NOT_FOUND]),
        ("unknown member", _beating(member_id=OTHER), [E_.UNKNOWN_MEMBER_ID]),
        ("later epoch", _beating(member_epoch=7), [E_.FENCED_MEMBER_EPOCH]),
    )
]
DESCRIPTIONS = [
    case(ShareGroupDescribeRequest, "valid", _described),
    case(
        ShareGroupDescribeRequest,
        "unknown",
        _naming("no such group"),
        errors=[E_.GROUP_ID_NOT_FOUND],
    ),
    case(ShareGroupDescribeRequest, "no name", _naming(""), errors=[E_.INVALID_GROUP_ID]),
]


def _topic_id(at: Side) -> Any:
    at.filled(TOPIC)
    return at.topic_id(TOPIC)


def _coordinated(at: Side) -> None:
    """Wait until the states of the topic have their coordinator."""
    key = f"any:{_topic_id(at)}:0"

    def is_found() -> bool:
        answer = at.ask(ApiKey.FIND_COORDINATOR, 6, key_type=SHARE, coordinator_keys=[key])
        return bool(answer.coordinators[0].error_code == 0)

    at.once("share coordinator", lambda: at.until(is_found, "share states are served"))
    at.once("share states", lambda: at.until(lambda: _is_served(at), "share states are loaded"))


def _is_served(at: Side) -> bool:
    """Whether the coordinator reads a state, of all partitions of its topic."""
    answers = [
        at.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, group_id=f"g{number}", topics=_parts(at, LED))
        for number in range(40)
    ]
    return all(
        one.error_code in (0, E_.UNKNOWN_TOPIC_OR_PARTITION)
        for answer in answers
        for one in answer.results[0].partitions
    )


def _parts(at: Side, fields: dict[str, Any], topic_id: Any = None) -> list[dict[str, Any]]:
    """Return one partition of the topic with these fields."""
    partition = {"partition": 0, **fields}
    return [{"topic_id": topic_id or _topic_id(at), "partitions": [partition]}]


# ------------------------------------------------------------ sessions


def _assigned(at: Side, group: str) -> None:
    """Make a group whose member has the topic: its share partition is initialized."""
    at.coordinator()
    sent = {**JOIN, "group_id": group, "subscribed_topic_names": [TOPIC]}

    def is_assigned() -> bool:
        answer = at.ask(ApiKey.SHARE_GROUP_HEARTBEAT, **sent)
        assert answer.error_code == 0, answer
        sent["member_epoch"] = answer.member_epoch
        return bool(answer.assignment and answer.assignment.topic_partitions)

    at.until(is_assigned, f"{group} has its partition")


def _fetching(**changes: Any) -> Fields:
    """Begin a session with the topic, whose group starts at its end."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        _coordinated(at)
        group = f"{at.label} {version}"
        at.once(f"share group {group}", lambda: _assigned(at, group))
        place = {"partition_index": 0, "acknowledgement_batches": []}
        sent = {
            "group_id": group,
            "member_id": MEMBER,
            "share_session_epoch": 0,
            "max_wait_ms": 500,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "max_records": 10,
            "batch_size": 10,
            "topics": [{"topic_id": _topic_id(at), "partitions": [place]}],
            "forgotten_topics_data": [],
        }
        return {**sent, **changes}

    return fields


def _acknowledging(**changes: Any) -> Fields:
    """Acknowledge nothing in a session that a fetch began."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        begun = _fetching()(at, version)
        answer = at.ask(ApiKey.SHARE_FETCH, 1, **begun)
        assert answer.error_code == 0, answer
        sent = {"group_id": begun["group_id"], "member_id": MEMBER, "share_session_epoch": 1}
        return {**sent, "topics": [], **changes}

    return fields


SESSIONS = [
    *(
        case(ShareFetchRequest, name, fields, errors=errors)
        for name, fields, errors in (
            ("valid", _fetching(), ()),
            ("no session", _fetching(share_session_epoch=4), [E_.SHARE_SESSION_NOT_FOUND]),
            ("no group", _fetching(group_id=None), [E_.INVALID_REQUEST]),
            ("no member", _fetching(member_id=None), [E_.INVALID_REQUEST]),
        )
    ),
    *(
        case(ShareAcknowledgeRequest, name, fields, errors=errors)
        for name, fields, errors in (
            ("valid", _acknowledging(), ()),
            (
                "first epoch",
                _acknowledging(share_session_epoch=0),
                [E_.INVALID_SHARE_SESSION_EPOCH],
            ),
            (
                "later epoch",
                _acknowledging(share_session_epoch=5),
                [E_.INVALID_SHARE_SESSION_EPOCH],
            ),
            ("no session", _acknowledging(member_id=OTHER), [E_.SHARE_SESSION_NOT_FOUND]),
            ("no group", _acknowledging(group_id=None), [E_.INVALID_REQUEST]),
        )
    ),
]
# ------------------------------------------------------------ offsets


def _left(at: Side, group: str) -> None:
    """Make a group without members."""
    _joined(at, group)
    left = {"member_id": MEMBER, "member_epoch": -1}
    assert at.ask(ApiKey.SHARE_GROUP_HEARTBEAT, group_id=group, **left).error_code == 0


def _of_offsets(topics: Any, *, group: str | None = None) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        _coordinated(at)
        name = f"{at.label} {version}"
        at.once(f"share group {name}", lambda: _left(at, name))
        return {"group_id": name if group is None else group, "topics": topics}

    return fields


def _of_groups(topics: Any, *, group: str | None = None) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        return {"groups": [_of_offsets(topics, group=group)(at, version)]}

    return fields


ALTERED = [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 2}]}]
OFFSETS = [
    case(DescribeShareGroupOffsetsRequest, "valid", _of_groups(None)),
    case(
        DescribeShareGroupOffsetsRequest,
        "valid, one topic",
        _of_groups([{"topic_name": TOPIC, "partitions": [0]}]),
    ),
    case(
        DescribeShareGroupOffsetsRequest,
        "valid, unknown group",
        _of_groups(None, group="no such group"),
    ),
    case(AlterShareGroupOffsetsRequest, "valid", _of_offsets(ALTERED)),
    case(
        AlterShareGroupOffsetsRequest,
        "no group",
        _of_offsets(ALTERED, group=""),
        errors=[E_.INVALID_GROUP_ID],
    ),
    case(DeleteShareGroupOffsetsRequest, "valid", _of_offsets([])),
    case(
        DeleteShareGroupOffsetsRequest,
        "unknown group",
        _of_offsets([{"topic_name": TOPIC}], group="no such group"),
        errors=[E_.GROUP_ID_NOT_FOUND],
    ),
]
# ------------------------------------------------------------ states


def _state(*before: tuple[ApiKey, dict[str, Any]], **sent: Any) -> Fields:
    """Ask about a state of this case's own, after other requests."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        _coordinated(at)
        name = f"{at.label} {version}"
        for key, earlier in before:
            at.ask(key, group_id=name, topics=_parts(at, earlier))
        return {"group_id": name, "topics": _parts(at, sent)}

    return fields


BEGUN = (ApiKey.INITIALIZE_SHARE_GROUP_STATE, {"state_epoch": 1, "start_offset": 3})
BATCHES: Iterable[dict[str, Any]] = [
    {"first_offset": 3, "last_offset": 4, "delivery_state": 2, "delivery_count": 1}
]
WRITTEN = {
    "state_epoch": 1,
    "leader_epoch": 0,
    "start_offset": 3,
    "delivery_complete_count": 0,
    "state_batches": BATCHES,
}
STATES = [
    case(InitializeShareGroupStateRequest, "valid", _state(**BEGUN[1])),
    case(
        InitializeShareGroupStateRequest,
        "earlier epoch",
        _state(BEGUN, state_epoch=0, start_offset=3),
        errors=[E_.FENCED_STATE_EPOCH],
    ),
    case(ReadShareGroupStateRequest, "valid", _state(BEGUN, **LED)),
    case(
        ReadShareGroupStateRequest,
        "earlier leader",
        _state(BEGUN, (ApiKey.READ_SHARE_GROUP_STATE, {"leader_epoch": 5}), leader_epoch=4),
        errors=[E_.FENCED_LEADER_EPOCH],
    ),
    case(ReadShareGroupStateSummaryRequest, "valid", _state(BEGUN, **LED)),
    case(
        ReadShareGroupStateSummaryRequest,
        "no partition",
        _state(partition=-1, **LED),
        errors=[E_.INVALID_REQUEST],
    ),
    case(WriteShareGroupStateRequest, "valid", _state(BEGUN, **WRITTEN)),
    case(
        WriteShareGroupStateRequest,
        "earlier epoch",
        _state(BEGUN, **{**WRITTEN, "state_epoch": 0}),
        errors=[E_.FENCED_STATE_EPOCH],
    ),
    case(DeleteShareGroupStateRequest, "valid", _state(BEGUN)),
    case(
        DeleteShareGroupStateRequest,
        "no partition",
        _state(partition=-1),
        errors=[E_.INVALID_REQUEST],
    ),
]
CASES: list[Case] = [*HEARTBEATS, *DESCRIPTIONS, *SESSIONS, *OFFSETS, *STATES]

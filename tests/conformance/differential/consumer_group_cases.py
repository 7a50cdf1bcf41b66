"""Consumer groups (KIP-848): heartbeats and descriptions.

Kafka: GroupMetadataManager.consumerGroupHeartbeat, GroupCoordinatorService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.conformance.differential.case import case

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
MEMBER, OTHER = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
JOIN: dict[str, Any] = {
    "member_id": MEMBER,
    "member_epoch": 0,
    "rebalance_timeout_ms": 30_000,
    "subscribed_topic_names": ["nothing"],
    "topic_partitions": [],
}
_UNCHANGED = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}


def _joining(**changes: Any) -> Fields:
    """Join a group of this case's own."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"group_id": f"{at.label} {version}", **JOIN, **changes}

    return fields


def _joined(at: Side, group: str) -> int:
    """Make a group of one member; return its epoch."""
    at.coordinator()
    answer = at.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, group_id=group, **JOIN)
    assert answer.error_code == 0, answer
    return int(answer.member_epoch)


def _heartbeat(**changes: Any) -> Fields:
    """Send a heartbeat of the member of a group."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        group = f"{at.label} {version}"
        epoch = at.once(f"consumer group {group}", lambda: _joined(at, group))
        sent = {"member_id": MEMBER, "member_epoch": epoch, **_UNCHANGED}
        return {"group_id": group, **sent, **changes}

    return fields


def _described(at: Side, version: int) -> dict[str, Any]:
    at.once("consumer group described", lambda: _joined(at, "described"))
    return {"group_ids": ["described"], "include_authorized_operations": False}


def _naming(*groups: str) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"group_ids": list(groups), "include_authorized_operations": False}

    return fields


def _case(name: str, fields: Fields, *errors: int, lowest: int = 0) -> Case:
    return case(ConsumerGroupHeartbeatRequest, name, fields, errors=errors, versions=(lowest, 99))


HEARTBEATS = [
    _case("valid, joins", _joining()),
    _case("valid, static", _joining(instance_id="one", rack_id="r")),
    _case("valid, assignor", _joining(server_assignor="range")),
    _case("valid, member", _heartbeat()),
    _case("valid, leaves", _heartbeat(member_epoch=-1)),
    _case("valid, pattern", _joining(subscribed_topic_regex="none.*"), lowest=1),
    _case("no group", _joining(group_id=""), E_.INVALID_REQUEST),
    _case("no member id", _heartbeat(member_id=""), E_.INVALID_REQUEST),
    _case("no subscription", _joining(subscribed_topic_names=None), E_.INVALID_REQUEST),
    _case("no timeout", _joining(rebalance_timeout_ms=-1), E_.INVALID_REQUEST),
    _case("owns partitions at once", _joining(topic_partitions=None), E_.INVALID_REQUEST),
    _case("unknown epoch", _joining(member_epoch=-3), E_.INVALID_REQUEST),
    _case("leaves without instance", _heartbeat(member_epoch=-2), E_.INVALID_REQUEST),
    _case("unknown assignor", _joining(server_assignor="other"), E_.UNSUPPORTED_ASSIGNOR),
    _case(
        "bad pattern", _joining(subscribed_topic_regex="["), E_.INVALID_REGULAR_EXPRESSION, lowest=1
    ),
    _case("unknown group", _joining(member_epoch=3), E_.GROUP_ID_NOT_FOUND),
    _case("unknown member", _heartbeat(member_id=OTHER), E_.UNKNOWN_MEMBER_ID),
    _case("later epoch", _heartbeat(member_epoch=7), E_.FENCED_MEMBER_EPOCH),
]
DESCRIPTIONS = [
    case(ConsumerGroupDescribeRequest, "valid", _described),
    case(
        ConsumerGroupDescribeRequest,
        "unknown",
        _naming("no such group"),
        errors=[E_.GROUP_ID_NOT_FOUND],
    ),
    case(ConsumerGroupDescribeRequest, "no name", _naming(""), errors=[E_.INVALID_GROUP_ID]),
]
CASES: list[Case] = [*HEARTBEATS, *DESCRIPTIONS]

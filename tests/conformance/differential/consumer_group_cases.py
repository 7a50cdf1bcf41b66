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
from tests.conformance.differential.members import MEMBER, OTHER, Members, naming

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields

E_ = ErrorCode
JOIN: dict[str, Any] = {
    "member_id": MEMBER,
    "member_epoch": 0,
    "rebalance_timeout_ms": 30_000,
    "subscribed_topic_names": ["nothing"],
    "topic_partitions": [],
}
_UNCHANGED = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
MEMBERS = Members("consumer", ApiKey.CONSUMER_GROUP_HEARTBEAT, JOIN, _UNCHANGED)


def _case(name: str, fields: Fields, *errors: int, lowest: int = 0) -> Case:
    return case(ConsumerGroupHeartbeatRequest, name, fields, errors=errors, versions=(lowest, 99))


HEARTBEATS = [
    _case("valid, joins", MEMBERS.joining()),
    _case("valid, static", MEMBERS.joining(instance_id="one", rack_id="r")),
    _case("valid, assignor", MEMBERS.joining(server_assignor="range")),
    _case("valid, member", MEMBERS.heartbeat()),
    _case("valid, leaves", MEMBERS.heartbeat(member_epoch=-1)),
    _case("valid, pattern", MEMBERS.joining(subscribed_topic_regex="none.*"), lowest=1),
    _case("no group", MEMBERS.joining(group_id=""), E_.INVALID_REQUEST),
    _case("no member id", MEMBERS.heartbeat(member_id=""), E_.INVALID_REQUEST),
    _case("no subscription", MEMBERS.joining(subscribed_topic_names=None), E_.INVALID_REQUEST),
    _case("no timeout", MEMBERS.joining(rebalance_timeout_ms=-1), E_.INVALID_REQUEST),
    _case("owns partitions at once", MEMBERS.joining(topic_partitions=None), E_.INVALID_REQUEST),
    _case("unknown epoch", MEMBERS.joining(member_epoch=-3), E_.INVALID_REQUEST),
    _case("leaves without instance", MEMBERS.heartbeat(member_epoch=-2), E_.INVALID_REQUEST),
    _case("unknown assignor", MEMBERS.joining(server_assignor="other"), E_.UNSUPPORTED_ASSIGNOR),
    _case(
        "bad pattern",
        MEMBERS.joining(subscribed_topic_regex="["),
        E_.INVALID_REGULAR_EXPRESSION,
        lowest=1,
    ),
    _case("unknown group", MEMBERS.joining(member_epoch=3), E_.GROUP_ID_NOT_FOUND),
    _case("unknown member", MEMBERS.heartbeat(member_id=OTHER), E_.UNKNOWN_MEMBER_ID),
    _case("later epoch", MEMBERS.heartbeat(member_epoch=7), E_.FENCED_MEMBER_EPOCH),
]
DESCRIPTIONS = [
    case(ConsumerGroupDescribeRequest, "valid", MEMBERS.described),
    case(
        ConsumerGroupDescribeRequest,
        "unknown",
        naming("no such group"),
        errors=[E_.GROUP_ID_NOT_FOUND],
    ),
    case(ConsumerGroupDescribeRequest, "no name", naming(""), errors=[E_.INVALID_GROUP_ID]),
]
CASES: list[Case] = [*HEARTBEATS, *DESCRIPTIONS]

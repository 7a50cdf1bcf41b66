"""Streams groups (KIP-1071): heartbeats and descriptions.

Kafka: GroupMetadataManager.streamsGroupHeartbeat, GroupCoordinatorService, KafkaApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.conformance.differential.case import case

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
MEMBER, OTHER = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"


def _topic(name: str, partitions: int = 0) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": []}


def _topology(*sources: str, **changes: Any) -> dict[str, Any]:
    subtopology: dict[str, Any] = {
        "subtopology_id": "0",
        "source_topics": list(sources or ("no-such-source",)),
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    return {"epoch": 0, "subtopologies": [{**subtopology, **changes}]}


JOIN: dict[str, Any] = {
    "member_id": MEMBER,
    "member_epoch": 0,
    "endpoint_information_epoch": 0,
    "rebalance_timeout_ms": 30_000,
    "topology": _topology(),
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
    "process_id": "process",
    "client_tags": [],
}
_UNCHANGED = {
    "endpoint_information_epoch": 0,
    "rebalance_timeout_ms": -1,
    "topology": None,
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "process_id": None,
    "client_tags": None,
}


def _joining(**changes: Any) -> Fields:
    """Join a group of this case's own."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"group_id": f"{at.label} {version}", **JOIN, **changes}

    return fields


def _joined(at: Side, group: str) -> int:
    """Make a group of one member; return its epoch."""
    at.coordinator()
    answer = at.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, group_id=group, **JOIN)
    assert answer.error_code == 0, answer
    return int(answer.member_epoch)


def _heartbeat(**changes: Any) -> Fields:
    """Send a heartbeat of the member of a group."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        group = f"{at.label} {version}"
        epoch = at.once(f"streams group {group}", lambda: _joined(at, group))
        sent = {"member_id": MEMBER, "member_epoch": epoch, **_UNCHANGED}
        return {"group_id": group, **sent, **changes}

    return fields


def _described(at: Side, version: int) -> dict[str, Any]:
    at.once("streams group described", lambda: _joined(at, "described streams"))
    return {"group_ids": ["described streams"], "include_authorized_operations": False}


def _naming(*groups: str) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"group_ids": list(groups), "include_authorized_operations": False}

    return fields


def _case(name: str, fields: Fields, *errors: int) -> Case:
    return case(StreamsGroupHeartbeatRequest, name, fields, errors=errors)


def _ids(partition: int) -> list[dict[str, Any]]:
    return [{"subtopology_id": "0", "partitions": [partition]}]


HEARTBEATS = [
    _case("valid, joins", _joining()),
    _case("valid, rack and endpoint", _joining(rack_id="r", process_id="p")),
    _case("valid, member", _heartbeat()),
    _case("valid, leaves", _heartbeat(member_epoch=-1)),
    _case("valid, shuts down", _heartbeat(shutdown_application=True)),
    _case("no group", _joining(group_id=""), E_.INVALID_REQUEST),
    _case("no member id", _joining(member_id=""), E_.INVALID_REQUEST),
    _case("no rack", _joining(rack_id=""), E_.INVALID_REQUEST),
    _case("static", _joining(instance_id="one"), E_.INVALID_REQUEST),
    _case("task offsets", _joining(task_offsets=[]), E_.INVALID_REQUEST),
    _case("task end offsets", _joining(task_end_offsets=[]), E_.INVALID_REQUEST),
    _case("warm-up tasks", _joining(warmup_tasks=_ids(0)), E_.INVALID_REQUEST),
    _case("no timeout", _joining(rebalance_timeout_ms=-1), E_.INVALID_REQUEST),
    _case("no topology", _joining(topology=None), E_.INVALID_REQUEST),
    _case("owns tasks at once", _joining(active_tasks=_ids(0)), E_.INVALID_REQUEST),
    _case("no tasks", _joining(active_tasks=None), E_.INVALID_REQUEST),
    _case("unknown epoch", _joining(member_epoch=-3, topology=None), E_.INVALID_REQUEST),
    _case("leaves without instance", _heartbeat(member_epoch=-2), E_.INVALID_REQUEST),
    _case("one kind of tasks", _heartbeat(active_tasks=[]), E_.INVALID_REQUEST),
    _case("topology of a member", _heartbeat(topology=_topology()), E_.INVALID_REQUEST),
    _case("pattern", _joining(topology=_topology(source_topic_regex=["x.*"])), E_.INVALID_REQUEST),
    _case(
        "internal topic",
        _joining(topology=_topology("__consumer_offsets")),
        E_.STREAMS_INVALID_TOPOLOGY,
    ),
    _case("bad topic", _joining(topology=_topology("a b")), E_.STREAMS_INVALID_TOPOLOGY),
    _case(
        "changelog with a count",
        _joining(topology=_topology(state_changelog_topics=[_topic("c", 3)])),
        E_.STREAMS_INVALID_TOPOLOGY,
    ),
    _case("unknown group", _joining(member_epoch=3, topology=None), E_.GROUP_ID_NOT_FOUND),
    _case("unknown member", _heartbeat(member_id=OTHER), E_.UNKNOWN_MEMBER_ID),
    _case("later epoch", _heartbeat(member_epoch=7), E_.FENCED_MEMBER_EPOCH),
]
DESCRIPTIONS = [
    case(StreamsGroupDescribeRequest, "valid", _described),
    case(
        StreamsGroupDescribeRequest,
        "unknown",
        _naming("no such group"),
        errors=[E_.GROUP_ID_NOT_FOUND],
    ),
    case(StreamsGroupDescribeRequest, "no name", _naming(""), errors=[E_.INVALID_GROUP_ID]),
]
CASES: list[Case] = [*HEARTBEATS, *DESCRIPTIONS]

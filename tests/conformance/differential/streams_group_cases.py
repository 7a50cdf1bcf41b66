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
from tests.conformance.differential.members import MEMBER, OTHER, Members, naming

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields

E_ = ErrorCode


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
MEMBERS = Members("streams", ApiKey.STREAMS_GROUP_HEARTBEAT, JOIN, _UNCHANGED)


def _case(name: str, fields: Fields, *errors: int) -> Case:
    return case(StreamsGroupHeartbeatRequest, name, fields, errors=errors)


def _ids(partition: int) -> list[dict[str, Any]]:
    return [{"subtopology_id": "0", "partitions": [partition]}]


HEARTBEATS = [
    _case("valid, joins", MEMBERS.joining()),
    _case("valid, rack and endpoint", MEMBERS.joining(rack_id="r", process_id="p")),
    _case("valid, member", MEMBERS.heartbeat()),
    _case("valid, leaves", MEMBERS.heartbeat(member_epoch=-1)),
    _case("valid, shuts down", MEMBERS.heartbeat(shutdown_application=True)),
    _case("no group", MEMBERS.joining(group_id=""), E_.INVALID_REQUEST),
    _case("no member id", MEMBERS.joining(member_id=""), E_.INVALID_REQUEST),
    _case("no rack", MEMBERS.joining(rack_id=""), E_.INVALID_REQUEST),
    _case("static", MEMBERS.joining(instance_id="one"), E_.INVALID_REQUEST),
    _case("task offsets", MEMBERS.joining(task_offsets=[]), E_.INVALID_REQUEST),
    _case("task end offsets", MEMBERS.joining(task_end_offsets=[]), E_.INVALID_REQUEST),
    _case("warm-up tasks", MEMBERS.joining(warmup_tasks=_ids(0)), E_.INVALID_REQUEST),
    _case("no timeout", MEMBERS.joining(rebalance_timeout_ms=-1), E_.INVALID_REQUEST),
    _case("no topology", MEMBERS.joining(topology=None), E_.INVALID_REQUEST),
    _case("owns tasks at once", MEMBERS.joining(active_tasks=_ids(0)), E_.INVALID_REQUEST),
    _case("no tasks", MEMBERS.joining(active_tasks=None), E_.INVALID_REQUEST),
    _case("unknown epoch", MEMBERS.joining(member_epoch=-3, topology=None), E_.INVALID_REQUEST),
    _case("leaves without instance", MEMBERS.heartbeat(member_epoch=-2), E_.INVALID_REQUEST),
    _case("one kind of tasks", MEMBERS.heartbeat(active_tasks=[]), E_.INVALID_REQUEST),
    _case("topology of a member", MEMBERS.heartbeat(topology=_topology()), E_.INVALID_REQUEST),
    _case(
        "pattern",
        MEMBERS.joining(topology=_topology(source_topic_regex=["x.*"])),
        E_.INVALID_REQUEST,
    ),
    _case(
        "internal topic",
        MEMBERS.joining(topology=_topology("__consumer_offsets")),
        E_.STREAMS_INVALID_TOPOLOGY,
    ),
    _case("bad topic", MEMBERS.joining(topology=_topology("a b")), E_.STREAMS_INVALID_TOPOLOGY),
    _case(
        "changelog with a count",
        MEMBERS.joining(topology=_topology(state_changelog_topics=[_topic("c", 3)])),
        E_.STREAMS_INVALID_TOPOLOGY,
    ),
    _case("unknown group", MEMBERS.joining(member_epoch=3, topology=None), E_.GROUP_ID_NOT_FOUND),
    _case("unknown member", MEMBERS.heartbeat(member_id=OTHER), E_.UNKNOWN_MEMBER_ID),
    _case("later epoch", MEMBERS.heartbeat(member_epoch=7), E_.FENCED_MEMBER_EPOCH),
]
DESCRIPTIONS = [
    case(StreamsGroupDescribeRequest, "valid", MEMBERS.described),
    case(
        StreamsGroupDescribeRequest,
        "unknown",
        naming("no such group"),
        errors=[E_.GROUP_ID_NOT_FOUND],
    ),
    case(StreamsGroupDescribeRequest, "no name", naming(""), errors=[E_.INVALID_GROUP_ID]),
]
CASES: list[Case] = [*HEARTBEATS, *DESCRIPTIONS]

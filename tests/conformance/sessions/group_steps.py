"""Steps of groups: members that join, sync, beat and leave; offsets; what is shown of groups.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.records.consumer_protocol import ConsumerProtocolSubscription
from tests.conformance.sessions.choices import INT32, INT64
from tests.conformance.sessions.steps import Ref

if TYPE_CHECKING:
    from tests.conformance.sessions.choices import Choices

_PROTOCOLS = ("range", "roundrobin", "sticky")
_LONG_MS = 120_000


def _subscription(topics: list[str]) -> bytes:
    message = ConsumerProtocolSubscription(topics=topics, user_data=None)
    return b"\0\0" + codec.to_bytes(message, 0)


def join(pick: Choices, _version: int) -> dict[str, Any]:
    """Join as a new member, or with an id that was answered before."""
    group = pick.group()
    names = [pick.mostly(name, "", odds=0.01) for name in pick.some(_PROTOCOLS, 2)]
    names = list(dict.fromkeys(names))  # Kafka does not answer to duplicates
    metadata = pick.mostly(_subscription(["t"]), b"", b"\0\0\xff", odds=0.2)
    return {
        "group_id": group,
        "session_timeout_ms": pick.int32(_LONG_MS),
        "rebalance_timeout_ms": _LONG_MS,
        "member_id": "" if pick.chance(0.3) else pick.member(group),
        "group_instance_id": pick.instance(0.12),
        "protocol_type": pick.mostly("consumer", "connect", "", odds=0.06),
        "protocols": [{"name": name, "metadata": metadata} for name in names],
        "reason": pick.one(None, "because"),
    }


def sync(pick: Choices, _version: int) -> dict[str, Any]:
    """Ask for the assignment, with one for each recent member as a leader has it."""
    group = pick.group()
    return {
        "group_id": group,
        "generation_id": pick.generation(group),
        "member_id": pick.member(group),
        "group_instance_id": pick.instance(0.05),
        "protocol_type": pick.mostly("consumer", None, "connect"),
        "protocol_name": pick.mostly(Ref("protocol", (group,)), None, "sticky"),
        "assignments": [
            {"member_id": Ref("member", (group, number)), "assignment": b"a%d" % pick.number()}
            for number in range(pick.mostly(4, 0, 1))
        ]
        + pick.mostly([], [{"member_id": "unknown", "assignment": b"u"}], odds=0.03),
    }


def heartbeat(pick: Choices, _version: int) -> dict[str, Any]:
    """Beat for one member."""
    group = pick.group()
    return {
        "group_id": group,
        "generation_id": pick.generation(group),
        "member_id": pick.member(group),
        "group_instance_id": pick.instance(0.05),
    }


def leave(pick: Choices, _version: int) -> dict[str, Any]:
    """Leave as one member, or take out several."""
    group = pick.group()
    members = [
        {"member_id": pick.member(group), "group_instance_id": pick.instance()}
        for _ in range(pick.one(1, 1, 2))
    ]
    return {
        "group_id": group,
        "member_id": members[0]["member_id"],
        "members": pick.mostly(members, [], odds=0.03),
    }


def _topic_fields(pick: Choices, name: str) -> dict[str, Any]:
    return {"name": name, "topic_id": pick.topic_id(name)}


def offset_commit(pick: Choices, _version: int) -> dict[str, Any]:
    """Commit as a member or, more often, without membership."""
    group = pick.group()
    is_member = pick.chance(0.4)
    partitions = [
        {
            "partition_index": index,
            "committed_offset": pick.offset(),
            "committed_leader_epoch": pick.epoch(),
            "committed_metadata": pick.mostly("", None, "note", "n" * 5000, "é" * 4096, odds=0.3),
        }
        for index in pick.partitions()
    ]
    # In Kafka a commit of which everything is refused leaves an empty group in memory.
    good = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": pick.generation(group) if is_member else -1,
        "member_id": pick.member(group) if is_member else pick.mostly("", "unknown"),
        "group_instance_id": pick.instance(0.03),
        "retention_time_ms": pick.mostly(-1, 1000, 10**12, *INT64),
        "topics": [
            {**_topic_fields(pick, name), "partitions": [*partitions, good]}
            for name in pick.topics(2)
        ],
    }


def offset_fetch(pick: Choices, version: int) -> dict[str, Any]:
    """Fetch some or all offsets of one or more groups."""
    topics: Any = [
        {**_topic_fields(pick, name), "partition_indexes": pick.partitions()}
        for name in pick.topics(2)
    ]
    if version >= 2 and pick.chance(0.4):
        topics = pick.one([]) if pick.chance(0.1) else None
    groups = pick.some([pick.group() for _ in range(2)], 2) or ["{}-g0"]
    old = (
        None
        if topics is None
        else [{k: v for k, v in t.items() if k != "topic_id"} for t in topics]
    )
    return {
        "group_id": groups[0],
        "groups": [
            {
                "group_id": name,
                "topics": topics,
                "member_id": pick.mostly(None, "unknown"),
                "member_epoch": pick.mostly(-1, 3, *INT32),
            }
            for name in groups
        ],
        "topics": old,
        "require_stable": pick.chance(0.3),
    }


def offset_delete(pick: Choices, _version: int) -> dict[str, Any]:
    """Delete offsets of a group."""
    return {
        "group_id": pick.group(),
        "topics": [
            {"name": name, "partitions": [{"partition_index": n} for n in pick.partitions()]}
            for name in pick.topics(2)
        ],
    }


def find_coordinator(pick: Choices, _version: int) -> dict[str, Any]:
    """Find the coordinator of groups."""
    keys = [pick.group() for _ in range(pick.mostly(pick.one(1, 2), 3, 0))]
    return {"key": (keys or [""])[0], "coordinator_keys": keys, "key_type": pick.mostly(0, 9, -1)}


def describe_groups(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe one or more groups."""
    groups = [pick.group() for _ in range(pick.mostly(pick.one(1, 1, 2, 3), 0, odds=0.03))]
    return {"groups": groups, "include_authorized_operations": pick.chance(0.2)}


def list_groups(pick: Choices, _version: int) -> dict[str, Any]:
    """List groups by state and type."""
    states = ("Stable", "empty", "PreparingRebalance", "CompletingRebalance", "Dead", "nope")
    types = ("classic", "Consumer", "nope", "")
    return {
        "states_filter": pick.some(states, 2) if pick.chance(0.3) else [],
        "types_filter": pick.some(types, 2) if pick.chance(0.2) else [],
    }


def delete_groups(pick: Choices, _version: int) -> dict[str, Any]:
    """Delete groups."""
    count = pick.mostly(pick.one(1, 1, 2), 0, odds=0.03)
    return {"groups_names": [pick.group() for _ in range(count)]}


STEPS = (
    (9, ApiKey.JOIN_GROUP, join),
    (7, ApiKey.SYNC_GROUP, sync),
    (4, ApiKey.HEARTBEAT, heartbeat),
    (3, ApiKey.LEAVE_GROUP, leave),
    (6, ApiKey.OFFSET_COMMIT, offset_commit),
    (5, ApiKey.OFFSET_FETCH, offset_fetch),
    (3, ApiKey.OFFSET_DELETE, offset_delete),
    (1, ApiKey.FIND_COORDINATOR, find_coordinator),
    (5, ApiKey.DESCRIBE_GROUPS, describe_groups),
    (3, ApiKey.LIST_GROUPS, list_groups),
    (3, ApiKey.DELETE_GROUPS, delete_groups),
)

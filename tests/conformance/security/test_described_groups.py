"""Descriptions of groups to a user without rights to some groups and topics, as real Kafka's.

Refused groups come first in the response, the others in the order of Kafka's shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.conformance.security.secured import secured_sides
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.protocol.schema import Request
    from tests.conformance.security.secured import SecuredSide

    Heartbeat = Callable[[str, list[str]], Request]

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
_MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
_TOPICS = {
    "assigned": ["hidden"],
    "subscribed": ["absent"],
    "visible": ["seen"],
    "x-refused": ["seen"],
}
"""Subscriptions of the groups; there is no topic `absent`, and alice sees `seen` alone."""


def _acl(kind: ResourceType, pattern: PatternType, name: str) -> Acl:
    return Acl(kind, pattern, name, "User:alice", "*", Operation.DESCRIBE, Permission.ALLOW)


def _prepare(side: SecuredSide) -> None:
    """Make the topics and the rights."""
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in ("seen", "hidden")
    ]
    side.ask("root", CreateTopicsRequest(topics=topics, timeout_ms=5000))
    groups = [
        _acl(ResourceType.GROUP, PatternType.LITERAL, f"{kind} {name}")
        for name in _TOPICS
        if not name.startswith("x")
        for kind in ("consumer", "share", "streams")
    ]
    side.set_acls([_acl(ResourceType.TOPIC, PatternType.LITERAL, "seen"), *groups])


def _consumer(group: str, topics: list[str]) -> Request:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=_MEMBER,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )


def _share(group: str, topics: list[str]) -> Request:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=_MEMBER, member_epoch=0, subscribed_topic_names=topics
    )


def _streams(group: str, topics: list[str]) -> Request:
    topology = StreamsGroupHeartbeatRequest.Topology
    subtopology = topology.Subtopology(
        subtopology_id="0",
        source_topics=topics,
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=_MEMBER,
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=30_000,
        topology=topology(epoch=0, subtopologies=[subtopology]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[],
    )


def _join(side: SecuredSide, heartbeat: Heartbeat, group: str, topics: list[str]) -> None:
    """Let a member join as root: again and again while the coordinator loads."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    wait_for(lambda: not side.ask("root", request).coordinators[0].error_code)
    wait_for(lambda: not side.ask("root", heartbeat(group, topics)).error_code)


def _is_assigned(side: SecuredSide, heartbeat: Heartbeat, describe: Any, group: str) -> bool:
    """Whether root sees an assignment; a share group has it some time after its first join."""
    side.ask("root", heartbeat(group, ["hidden"]))
    request = describe(group_ids=[group], include_authorized_operations=False)
    (member,) = side.ask("root", request).groups[0].members
    return heartbeat is _streams or bool(member.assignment.topic_partitions)


def _described(side: SecuredSide, kind: str, heartbeat: Heartbeat, describe: Any) -> list[Any]:
    """Return each group as alice sees it: those without a right to the group first."""
    names = [f"{kind} {name}" for name in _TOPICS]
    for name, topics in zip(names, _TOPICS.values(), strict=True):
        _join(side, heartbeat, name, topics)
    wait_for(lambda: _is_assigned(side, heartbeat, describe, names[0]))
    request = describe(group_ids=names, include_authorized_operations=False)
    first, *rest = [
        (one.group_id, one.error_code, one.error_message, len(one.members))
        for one in side.ask("alice", request).groups
    ]
    return [first, *sorted(rest)]


def _of_classic_groups(side: SecuredSide) -> list[Any]:
    """Return unknown groups as alice sees them, the second one without a right."""
    names = ["consumer visible", "x-refused", "streams visible"]
    answer = side.ask("alice", DescribeGroupsRequest(groups=names))
    first, *rest = [(one.group_id, one.error_code) for one in answer.groups]
    return [first, *sorted(rest)]


def test_topics_that_hide_a_group(kafka: Any, tmp_path: Path) -> None:
    """Those of assignments, or of a topology; not names that are subscribed to."""
    cases: list[tuple[str, Heartbeat, Any, list[str]]] = [
        ("consumer", _consumer, ConsumerGroupDescribeRequest, ["assigned"]),
        ("share", _share, ShareGroupDescribeRequest, ["assigned"]),
        ("streams", _streams, StreamsGroupDescribeRequest, ["assigned", "subscribed"]),
    ]
    with secured_sides(kafka, tmp_path) as (theirs, ours):
        for side in (theirs, ours):
            _prepare(side)
        for kind, heartbeat, describe, hidden in cases:
            expected = _described(theirs, kind, heartbeat, describe)
            assert _described(ours, kind, heartbeat, describe) == expected
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            found = [name for name, error, *_ in expected if error == code]
            assert found == [f"{kind} {name}" for name in hidden]
        assert _of_classic_groups(ours) == _of_classic_groups(theirs)

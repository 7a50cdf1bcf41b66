"""Offsets of share groups: set, deleted, and deleted with their group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group import RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.coordinator.harness import World

if TYPE_CHECKING:
    from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsResponse

CONTEXT = RequestContext("client", "/127.0.0.1", 1)
ALTER = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
DELETE = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic


def alter(world: World, *partitions: tuple[str, int, int]) -> AlterShareGroupOffsetsResponse:
    part = ALTER.AlterShareGroupOffsetsRequestPartition
    topics = [
        ALTER(topic_name=name, partitions=[part(partition_index=index, start_offset=offset)])
        for name, index, offset in partitions
    ]
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=topics)
    return world.coordinator.share_offsets.alter(request).value


def delete(world: World, *names: str) -> tuple[int, list[tuple[str, int]]]:
    request = DeleteShareGroupOffsetsRequest(
        group_id="g", topics=[DELETE(topic_name=name) for name in names]
    )
    answer = world.coordinator.share_offsets.delete(request).value
    return answer.error_code, [(one.topic_name, one.error_code) for one in answer.responses]


def test_offsets_are_set_before_a_group_has_members() -> None:
    """States begin at the offset; unknown partitions have errors of their own."""
    world = World().elect()
    answer = alter(world, ("t", 0, 7), ("t", 99, 1), ("absent", 0, 1))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [part.error_code for topic in answer.responses for part in topic.partitions]
    assert codes == [0, unknown, unknown]
    (request,) = world.persister.requests
    assert [part.start_offset for part in request.topics[0].partitions] == [7]
    known = world.coordinator.share_offsets.initialized("g").value
    assert list(known.values()) == [[0]]


def test_a_group_with_members_keeps_its_offsets() -> None:
    """NON_EMPTY_GROUP, also for the deletion of offsets and of the group."""
    world = World().elect()
    beat = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    world.coordinator.share.heartbeat(beat, CONTEXT)
    assert alter(world, ("t", 0, 7)).error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete(world, "t")[0] == ErrorCode.NON_EMPTY_GROUP
    request = DeleteGroupsRequest(groups_names=["g"])
    (result,) = world.coordinator.delete_groups(request, CONTEXT).value.results
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_are_deleted_by_topic() -> None:
    """Topics without a state have nothing to delete; what failed can be deleted again."""
    world = World().elect()
    assert delete(world, "t")[0] == ErrorCode.GROUP_ID_NOT_FOUND
    alter(world, ("t", 0, 7))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.persister.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert delete(world, "t") == (0, [("t", ErrorCode.COORDINATOR_NOT_AVAILABLE)])
    world.persister.code = ErrorCode.NONE
    assert delete(world, "t", "u") == (0, [("u", unknown), ("t", 0)])
    assert delete(world, "t") == (0, [("t", unknown)])


def test_the_states_of_a_group_are_deleted_with_it() -> None:
    """The share coordinators forget its share partitions before the group is gone."""
    world = World().elect()
    alter(world, ("t", 0, 7))
    request = DeleteGroupsRequest(groups_names=["g", "absent"])
    results = world.coordinator.delete_groups(request, CONTEXT).value.results
    codes = {one.group_id: one.error_code for one in results}
    assert codes == {"g": 0, "absent": ErrorCode.GROUP_ID_NOT_FOUND}
    assert len(world.persister.requests) == 2
    assert world.coordinator.share_offsets.initialized("g").value == {}

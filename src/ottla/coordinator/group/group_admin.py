"""ListGroups, DescribeGroups, DeleteGroups, and the expiry of groups.

Kafka: GroupMetadataManager.{listGroups, describeGroups, maybeDeleteGroup},
GroupCoordinatorShard.{deleteGroups, cleanupGroupMetadata}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.member_group import Description
from ottla.coordinator.group.offsets import removal
from ottla.coordinator.runtime import CoordinatorRecord, Result
from ottla.coordinator.runtime.shard import EXAMINED_AS_A_RECORD, RECORDS_AT_ONCE
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.delete_groups import DeleteGroupsResponse
from ottla.protocol.apis.describe_groups import DescribeGroupsResponse
from ottla.protocol.apis.list_groups import ListGroupsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.group.member_group import Group

ListedGroup = ListGroupsResponse.ListedGroup
DescribedGroup = DescribeGroupsResponse.DescribedGroup
DescribedMember = DescribedGroup.DescribedGroupMember
DeletedGroup = DeleteGroupsResponse.DeletableGroupResult

NOT_FOUND_VERSION: Final = 6
"""The first version of DescribeGroups with an error for unknown groups; earlier ones say Dead."""


def list_groups(
    groups: Groups, ids: Iterable[str], states: Iterable[str], types: Iterable[str], epoch: int
) -> list[ListedGroup]:
    """Return those of the groups that match in the committed state; empty filters match all."""
    requested_states = [state.strip().lower() for state in states]
    requested_types = [kind.strip().lower() for kind in types]
    listed = []
    for group_id in ids:
        group: Group | None = groups.find(group_id)
        if group is None:
            continue
        state, kind = group.state_at(epoch), group.group_type.lower()
        if requested_states and state.lower() not in requested_states:
            continue
        if requested_types and kind not in requested_types:
            continue
        listed.append(
            ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type or "",
                group_state=state.value,
                group_type=kind,
            )
        )
    return listed


def begin_description(
    version: int, groups: Groups, group_id: str, epoch: int
) -> Description[DescribedGroup]:
    """Describe a classic group; any other is answered as unknown. Metadata where it is Stable."""
    group = groups.find(group_id) if groups.exists_at(group_id, epoch) else None
    if not isinstance(group, ClassicGroup):
        answer = DescribedGroup(
            group_id=group_id,
            group_state=ClassicState.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=[],
        )
        if version >= NOT_FOUND_VERSION:
            answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            problem = "not found" if group is None else "is not a classic group"
            answer.error_message = f"Group {group_id} {problem}."
        return Description(answer)
    is_stable = group.is_in(ClassicState.STABLE)
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[],
    )
    return Description(described, _members(group, with_metadata=is_stable))


def _members(group: ClassicGroup, *, with_metadata: bool) -> Iterator[DescribedMember]:
    """Return the members as they are now: they change in place."""
    protocol_name = group.protocol_name if with_metadata else None
    now = [
        (member, member.member_id, member.protocols, member.assignment)
        for member in group.members.values()
    ]
    return (
        DescribedMember(
            member_id=member_id,
            group_instance_id=one.group_instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            member_metadata=dict(protocols)[protocol_name] if protocol_name is not None else b"",
            member_assignment=assignment,
        )
        for one, member_id, protocols, assignment in now
    )


def delete_groups(groups: Groups, group_ids: Iterable[str]) -> Result[list[DeletedGroup]]:
    """Delete groups without members and all their offsets."""
    result: Result[list[DeletedGroup]] = Result([])
    for group_id in dict.fromkeys(group_ids):
        answer = DeletedGroup(group_id=group_id)
        try:
            group = groups.get(group_id)
            groups.check_deletion(group)
            result.records += removal.delete_all(groups, group_id)
            result.records += groups.tombstones(group)
        except KafkaError as error:
            answer.error_code = error.code
        result.response.append(answer)
    return result


def expired_of_group(groups: Groups, group_id: str) -> tuple[list[CoordinatorRecord], float]:
    """Return the tombstones of a slice of a group's expired offsets, and the cost in records.

    An empty group is removed with the last of its offsets.
    """
    group = groups.find(group_id)
    count = len(groups.offsets.by_group.get(group_id, ())) + 1
    cost = count / EXAMINED_AS_A_RECORD
    if group is None or not group.has_offsets:
        return [], cost
    tombstones, is_all = removal.expire(groups, group, RECORDS_AT_ONCE)
    if is_all and group.is_empty:
        tombstones += groups.tombstones(group)
    return tombstones, cost

"""Replay of what the records of consumer, share and streams groups have in common.

Kafka: GroupMetadataManager.replay of each kind's records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.coordinator.group.member_group import FIRST_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.coordinator.group.kinds import KindOfGroups
    from ottla.coordinator.group.member_group import MemberGroup

    Replays: TypeAlias = "Mapping[type, Callable[[Any, Any, Any], None]]"
    """What applies a record (group, key, value), by the type of its key."""


def apply_record(
    groups: KindOfGroups[Any, Any], replays: Replays, key: Any, value: Any
) -> str | None:
    """Apply a record and return its group; None for the records of other kinds of groups.

    A record with a value adds its group; a tombstone of an unknown group has no effect. The
    tombstone of a group's epoch, the last of its records, removes the group.
    """
    apply = replays.get(type(key))
    if apply is None:
        return None
    group_id: str = key.group_id
    if value is not None:
        apply(groups.restore(group_id), key, value)
    elif type(key) is groups.epoch_key:
        groups.by_id.pop(group_id, None)
    elif (group := groups.find(group_id)) is not None:
        apply(group, key, None)
    return group_id


def target_epoch(group: MemberGroup[Any, Any], _key: Any, value: Any) -> None:
    """Apply the epoch of a target assignment; a tombstone resets it to that of a new group.

    The tombstone may come from before the group was removed and created again.
    """
    if value is None:
        group.set_assignment_epoch(FIRST_EPOCH, 0)
    else:
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)


def with_epochs(
    partitions: Sequence[int], epochs: Sequence[int] | None, member_epoch: int
) -> dict[int, int]:
    """Return partitions with their assignment epochs, rising.

    Records of earlier releases have no epochs: those of the member count.
    """
    if epochs is None or len(epochs) != len(partitions):
        epochs = [member_epoch] * len(partitions)
    return dict(sorted(zip(partitions, epochs, strict=True)))

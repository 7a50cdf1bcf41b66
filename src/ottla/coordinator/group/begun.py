"""The description of a group that is not complete yet: without its members.

Kafka: none; GroupCoordinatorService describes the groups of a partition in one read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.group.kinds import KindOfGroups

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Begun(Generic[D]):
    """The description of a group, whose members are still to be described and added.

    `members` refers only to immutable state.
    """

    group: Any
    members: Iterable[Any] = ()


def begin_of_kind(
    groups: Groups,
    kind: KindOfGroups[Any, Any],
    group_id: str,
    epoch: int,
    *,
    describe: Callable[[Any, int], Begun[D]],
    refuse: Callable[[str, ErrorCode, str | None], D],
) -> Begun[D]:
    """Describe a group of one kind in the log's state of an epoch.

    GROUP_ID_NOT_FOUND for an unknown group and for one of another kind, INVALID_GROUP_ID without
    a name.
    """
    if not group_id:
        return Begun(refuse(group_id, ErrorCode.INVALID_GROUP_ID, None))
    group = kind.by_id.get_at(group_id, epoch)
    if group is not None:
        return describe(group, epoch)
    problem = "not found"
    if groups.exists_at(group_id, epoch):
        problem = f"is not a {kind.kind.lower()} group"
    text = f"Group {group_id} {problem}."
    return Begun(refuse(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text))

"""Descriptions of groups: read as committed in one turn of the event loop, written out in several.

Kafka: none; GroupCoordinatorService describes the groups of a partition in one read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ottla.coordinator.group.member_group import Description
from ottla.coordinator.runtime.log import describe_error
from ottla.errors import ErrorCode
from ottla.purgatory.work import NEXT_TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.coordinator.group.group_kind import GroupKind
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.runtime import CoordinatorRuntime
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.work import Work

D = TypeVar("D")
Kind: TypeAlias = "type[GroupKind[Any, Any, Any, Any]]"
LONG_ANSWER: Final = 100
"""Members from which on an answer takes a turn of its own to be encoded."""

Begin: TypeAlias = "Callable[[Groups, str, int], Description[D]]"
"""Begins the description of a group of that name in the log's state of an epoch."""


def describe_kind(kind: Kind, groups: Groups, group_id: str, epoch: int) -> Description[Any]:
    """Describe a group of one kind in the log's state of an epoch.

    GROUP_ID_NOT_FOUND for an unknown group and for one of another kind, INVALID_GROUP_ID without
    a name.
    """
    if not group_id:
        return Description(kind.undescribed(group_id, ErrorCode.INVALID_GROUP_ID))
    group = groups.by_id.get_at(group_id, epoch)
    if type(group) is kind.group_class:
        return groups.of_kind(kind).describe(group, epoch)
    problem = "not found" if group is None else f"is not a {kind.name.lower()} group"
    text = f"Group {group_id} {problem}."
    return Description(kind.undescribed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text))


class Descriptions:
    """Describes groups of all shards, a bounded number of members in each turn."""

    def __init__(
        self, runtime: CoordinatorRuntime[GroupShard], partition_for: Callable[[str], int]
    ) -> None:
        self._runtime = runtime
        self._partition_for = partition_for

    def describe(
        self, group_ids: Iterable[str], begin: Begin[D], refuse: Callable[[str, Exception], D]
    ) -> Pending[list[D]]:
        """Return the descriptions; that of a group that cannot be read is refuse(name, error)."""
        return self._runtime.worker.run(self._each(group_ids, begin, refuse))

    def describe_kind(self, group_ids: Iterable[str], kind: Kind) -> Pending[list[Any]]:
        """Return the descriptions of groups of one kind."""
        return self.describe(
            group_ids,
            partial(describe_kind, kind),
            lambda name, error: kind.refused(name, describe_error(name, error)),
        )

    def by_partition(self, group_ids: Iterable[str]) -> dict[int, list[str]]:
        """Return the names of groups by the partition that owns them."""
        by_partition: dict[int, list[str]] = {}
        for group_id in group_ids:
            by_partition.setdefault(self._partition_for(group_id), []).append(group_id)
        return by_partition

    def _each(
        self, group_ids: Iterable[str], begin: Begin[D], refuse: Callable[[str, Exception], D]
    ) -> Work[list[D]]:
        described, count = [], 0
        for partition, names in self.by_partition(group_ids).items():
            for name in names:
                try:
                    begun = yield self._runtime.read(partition, partial(_begin_one, begin, name))
                except Exception as error:  # noqa: BLE001 - answered for this group
                    described.append(refuse(name, error))
                else:
                    described.append((yield from _with_members(begun)))
                    count += len(begun.group.members)
        if count > LONG_ANSWER:
            yield NEXT_TURN
        return described


def _begin_one(begin: Begin[D], name: str, shard: GroupShard, epoch: int) -> Description[D]:
    return begin(shard.groups, name, epoch)


def _with_members(begun: Description[D]) -> Work[D]:
    group: D = begun.group
    for member in begun.members:
        begun.group.members.append(member)
        yield
    return group

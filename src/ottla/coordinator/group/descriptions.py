"""Descriptions of groups: read as committed in one turn of the event loop, written out in several.

Kafka: none; GroupCoordinatorService describes the groups of a partition in one read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from ottla.coordinator.runtime.shared_turns import ANSWER_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.coordinator.group.begun import Begun
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.runtime import CoordinatorRuntime
    from ottla.coordinator.runtime.shared_turns import Work
    from ottla.purgatory.pending import Pending

D = TypeVar("D")
_READ_COST_RECORDS: Final = 1


Begin: TypeAlias = "Callable[[Groups, str, int], Begun[D]]"
"""Begins the description of a group of that name in the log's state of an epoch."""


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
        return self._runtime.answer(self._each(group_ids, begin, refuse))

    def by_partition(self, group_ids: Iterable[str]) -> dict[int, list[str]]:
        """Return the names of groups by the partition that owns them."""
        found: dict[int, list[str]] = {}
        for group_id in group_ids:
            found.setdefault(self._partition_for(group_id), []).append(group_id)
        return found

    def _each(
        self, group_ids: Iterable[str], begin: Begin[D], refuse: Callable[[str, Exception], D]
    ) -> Work[list[D]]:
        described, count = [], 0
        for partition, names in self.by_partition(group_ids).items():
            for name in names:
                begun = self._runtime.read(partition, partial(_begin_one, begin, name))
                while not begun.done:
                    yield ANSWER_RECORDS  # another operation of the partition is in progress
                yield _READ_COST_RECORDS
                if begun.error is not None:
                    described.append(refuse(name, begun.error))
                else:
                    described.append((yield from _with_members(begun.value)))
                    count += len(begun.value.group.members)
        if count > ANSWER_RECORDS:
            yield ANSWER_RECORDS  # a long answer takes a turn to be encoded
        return described


def _begin_one(begin: Begin[D], name: str, shard: GroupShard, epoch: int) -> Begun[D]:
    return begin(shard.groups, name, epoch)


def _with_members(begun: Begun[D]) -> Work[D]:
    group: D = begun.group
    for member in begun.members:
        begun.group.members.append(member)
        yield 1
    return group

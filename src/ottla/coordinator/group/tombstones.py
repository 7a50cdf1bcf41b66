"""Tombstones of the members of consumer, share and streams groups.

Kafka: the new…TombstoneRecord methods of GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.runtime import CoordinatorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def of_member(
    keys: Iterable[Callable[..., Any]], group_id: str, member_id: str
) -> list[CoordinatorRecord]:
    """Return the tombstone of each kind of record that a member has, by the class of its key."""
    return [CoordinatorRecord(key(group_id=group_id, member_id=member_id)) for key in keys]


def of_members(
    keys: Iterable[Callable[..., Any]], group_id: str, member_ids: Sequence[str]
) -> list[list[CoordinatorRecord]]:
    """Return the tombstones of members, a list for each kind of record."""
    return [
        [CoordinatorRecord(key(group_id=group_id, member_id=one)) for one in member_ids]
        for key in keys
    ]

"""Who owns what in a group, in what each coordinator replays: nothing has two owners."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class OwnerChecks:
    """Follows the members of one group on all nodes."""

    def __init__(self, kind: type[Any], group_id: str, owned: Callable[[Any], set[Any]]) -> None:
        """Kind is the class of the group; owned(member) returns what a member holds."""
        self.changes = 0
        self.violations: list[str] = []
        self._kind = kind
        self._group_id = group_id
        self._owned = owned

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the groups of all nodes while the context lasts."""
        put = self._kind.put

        def noted(group: Any, member: Any) -> None:
            put(group, member)
            # of a log that is being loaded the newest records come in any order of members
            if group.group_id == self._group_id and group.members._registry.epochs:
                self._check(group, member)

        with patch.object(self._kind, "put", noted):
            yield

    def _check(self, group: Any, member: Any) -> None:
        self.changes += 1
        own = self._owned(member)
        for other in group.members.values():
            both = own & self._owned(other) if other.member_id != member.member_id else set()
            if both:
                self.violations.append(
                    f"{member.member_id} in epoch {member.member_epoch} and {other.member_id} in "
                    f"{other.member_epoch} own {sorted(both)}"
                )

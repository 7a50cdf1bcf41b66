"""The description of a group that is not complete yet.

Kafka: none; GroupCoordinatorService describes the groups of a partition in one read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Begun(Generic[D]):
    """The description of a group, whose members are still to be described and added.

    `members` refers only to what does not change any more.
    """

    group: Any
    members: Iterable[Any] = ()

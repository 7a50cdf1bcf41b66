"""The interface of groups of all kinds.

Kafka: org.apache.kafka.coordinator.group.Group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from enum import StrEnum

D = TypeVar("D")


class Group(Protocol):
    """A group of any kind."""

    @property
    def group_id(self) -> str:
        """The group's name."""

    @property
    def group_type(self) -> str:
        """The kind of the group, in Kafka's spelling: Classic, Consumer, Share, Streams."""

    @property
    def has_offsets(self) -> bool:
        """Whether its members commit offsets."""

    @property
    def protocol_type(self) -> str | None:
        """What its members do, as ListGroups reports it; None for groups with offsets only."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted."""

    @property
    def members(self) -> Mapping[str, Any]:
        """The members by id."""

    def state_at(self, epoch: int = ...) -> StrEnum:
        """Return the state in the log's state of an epoch."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic, so that its offsets stay."""


@dataclass(frozen=True, slots=True)
class Description(Generic[D]):
    """The description of a group, whose members are still to be described and added.

    `members` refers only to immutable state.
    """

    group: Any
    members: Iterable[Any] = ()

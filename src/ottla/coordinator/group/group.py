"""The kinds of groups, and the interface that all of them have.

Kafka: org.apache.kafka.coordinator.group.Group.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from enum import StrEnum as State


class GroupType(StrEnum):
    """Kinds of groups in Kafka's spelling."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


class Group(Protocol):
    """A group of any kind."""

    @property
    def group_id(self) -> str:
        """The group's name."""

    @property
    def group_type(self) -> GroupType:
        """The kind of the group."""

    @property
    def protocol_type(self) -> str | None:
        """What its members do, as ListGroups reports it; None for groups with offsets only."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted."""

    def state_at(self, epoch: int) -> State:
        """Return the state in the log's state of an epoch."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic, so that its offsets stay."""

"""A member of a classic group: soft state, stored as part of the group's metadata.

Kafka: org.apache.kafka.coordinator.group.classic.ClassicGroupMember.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from ottla.protocol.apis.join_group import JoinGroupResponse
    from ottla.protocol.apis.sync_group import SyncGroupResponse
    from ottla.purgatory.pending import Pending


@dataclass(slots=True, eq=False)
class ClassicMember:
    """protocols holds name and metadata of each, in the member's order of preference."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    awaiting_join: Pending[JoinGroupResponse] | None = None
    awaiting_sync: Pending[SyncGroupResponse] | None = None
    is_new: bool = False

    @property
    def metadata_bytes(self) -> int:
        """The size of its metadata for all protocols."""
        return size_of_protocols(self.protocols)

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether it need not send heartbeats, because a response to it is pending.

        A new member's first join does not count, so that abandoned joins expire.
        """
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for a protocol, which must be one that it supports."""
        found = self.metadata_or_none(protocol_name)
        assert found is not None, f"member {self.member_id} has no protocol {protocol_name}"
        return found

    def metadata_or_none(self, protocol_name: str | None) -> bytes | None:
        """Return its metadata for a protocol; None for one that it does not support."""
        return next((data for name, data in self.protocols if name == protocol_name), None)

    def vote(self, candidates: Container[str]) -> str:
        """Return the first of its protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)


def size_of_protocols(protocols: tuple[tuple[str, bytes], ...]) -> int:
    """Return the bytes of names and metadata."""
    return sum(len(name) + len(data) for name, data in protocols)

"""A member of a share group: replayed state, replaced as a whole on every change.

Kafka: org.apache.kafka.coordinator.group.modern.share.ShareGroupMember.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.types import Uuid

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class ShareMember:
    """Topics are sorted; partitions by topic id, rising."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: tuple[str, ...] = ()
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assigned: Mapping[Uuid, tuple[int, ...]] = field(default_factory=dict)

"""Records of __consumer_offsets for committed offsets and classic groups.

Kafka: OffsetCommit and GroupMetadata, key and value.

Keys and values begin with an int16, in keys the record type (`message_key`), in values the version.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int32, int64
from ottla.types import ZERO_UUID, Uuid


class LegacyOffsetCommitKey(Struct, key=0, versions="0", flexible="none"):
    """Key of a committed offset, as very old releases wrote it."""

    group: str
    topic: str
    partition: int32


class LegacyOffsetCommitValue(Struct, key=0, versions="0", flexible="none"):
    """A committed offset, as very old releases wrote it."""

    offset: int64
    metadata: str
    commit_timestamp: int64


class OffsetCommitKey(Struct, key=1, versions="0", flexible="none"):
    """Key of a committed offset."""

    group: str
    topic: str
    partition: int32


class OffsetCommitValue(Struct, key=1, versions="0-4", flexible="4+"):
    """A committed offset. v3 leader epoch (KIP-320); v4 flexible, topic id."""

    offset: int64
    leader_epoch: int32 = field("3+", default=-1, ignorable=True)
    metadata: str
    commit_timestamp: int64
    expire_timestamp: int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(Struct, key=2, versions="0", flexible="none"):
    """Key of a classic group."""

    group: str


class GroupMetadataValue(Struct, key=2, versions="0-4", flexible="4+"):
    """A classic group. v3 static members (KIP-345); v4 flexible (KIP-915)."""

    protocol_type: str
    generation: int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]


class MemberMetadata(Struct):
    member_id: str
    group_instance_id: str | None = field("3+", default=None, ignorable=True)
    client_id: str
    client_host: str
    rebalance_timeout: int32 = field("1+", default=-1, ignorable=True)
    session_timeout: int32
    subscription: bytes
    assignment: bytes

"""Subscriptions and assignments that consumers of a classic group exchange.

Kafka: ConsumerProtocolSubscription, ConsumerProtocolAssignment.

v1 owned partitions (KIP-429); v2 generation; v3 rack (KIP-881). Preceded by an int16 version.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Struct, field, int32


class ConsumerProtocolSubscription(Struct, versions="0-3", flexible="none"):
    """Subscription of a member of a classic group."""

    topics: list[str]
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = field("1+", default=EMPTY, ignorable=True)
    generation_id: int32 = field("2+", default=-1, ignorable=True)
    rack_id: str | None = field("3+", default=None, ignorable=True)

    class TopicPartition(Struct):
        topic: str
        partitions: list[int32]


class ConsumerProtocolAssignment(Struct, versions="0-3", flexible="none"):
    """Assignment of a member of a classic group."""

    assigned_partitions: list[TopicPartition]
    user_data: bytes | None = None

    class TopicPartition(Struct):
        topic: str
        partitions: list[int32]

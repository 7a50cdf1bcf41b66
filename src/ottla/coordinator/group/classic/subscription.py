"""Reads the topics from the subscriptions in consumers' JoinGroup requests.

Kafka: org.apache.kafka.clients.consumer.internals.ConsumerProtocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, UnsupportedVersion
from ottla.protocol import codec
from ottla.protocol.records.consumer_protocol import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from collections.abc import Iterable


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions; None when one of them cannot be read.

    All versions start with the fields of version 0, so each is read as version 0.
    """
    topics: set[str] = set()
    try:
        for data in subscriptions:
            if len(data) < 2 or data[0] & 0x80:
                return None
            topics.update(
                codec.decode(ConsumerProtocolSubscription, 0, memoryview(data)[2:]).topics
            )
    except (CorruptMessage, UnsupportedVersion):
        return None
    return frozenset(topics)

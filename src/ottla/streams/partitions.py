"""The partition of a key.

Kafka: org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey.
"""

from __future__ import annotations

from ottla.clients.producer.partitioner import key_hash


def partition_for(key: bytes, count: int) -> int:
    """Return the partition that Kafka's producers choose for a key."""
    return key_hash(key) % count

"""Offsets of partitions at a timestamp, for the tools of groups.

Kafka: none; its tools use AdminClient.listOffsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.blocking import Admin
    from ottla.types import TopicPartition


def offsets_at(
    admin: Admin, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at a time (ms) or a special timestamp.

    Raises the first partition's KafkaError; without partitions there is no request.
    """
    requested = dict.fromkeys(partitions, timestamp)
    offsets = {}
    for partition, found in (admin.list_offsets(requested) if requested else {}).items():
        if isinstance(found, KafkaError):
            raise found
        offsets[partition] = found.offset
    return offsets

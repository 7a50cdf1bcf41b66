"""`partition.metadata`: the topic id of a partition directory.

Kafka: org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile.
"""

from __future__ import annotations

from ottla.errors import CorruptMessage
from ottla.types import Uuid

_MAX_FILE_BYTES = 1024


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    """Return the file's text."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def decode_partition_metadata(data: bytes) -> Uuid:
    """Return the topic id; CorruptMessage when the text is incomplete."""
    if len(data) > _MAX_FILE_BYTES:
        raise CorruptMessage(f"a partition.metadata of {len(data)} bytes")
    try:
        values = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines() if line)
        version, topic_id = int(values["version"]), Uuid.parse(values["topic_id"])
    except (ValueError, KeyError) as error:
        raise CorruptMessage(f"malformed partition.metadata: {data[:80]!r}") from error
    if version != 0 or not topic_id:
        raise CorruptMessage(f"partition.metadata of version {version} for topic {topic_id}")
    return topic_id

"""The records that pass between connectors, transforms and converters.

Kafka: org.apache.kafka.connect.connector.ConnectRecord, SourceRecord, SinkRecord.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.connect.data import Header, Schema
    from ottla.types import TopicPartition


@dataclass(slots=True)
class ConnectRecord:
    """A record of a topic; transforms return changed copies (`dataclasses.replace`)."""

    topic: str
    partition: int | None = None
    """The partition of the topic; None lets the producer choose it."""
    key_schema: Schema | None = None
    key: Any = None
    value_schema: Schema | None = None
    value: Any = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


@dataclass(slots=True)
class SourceRecord(ConnectRecord):
    """A record that a source has read, and where the source goes on after it."""

    source_partition: Mapping[str, Any] | None = None
    """The part of the source that it is from, in what JSON can say."""
    source_offset: Mapping[str, Any] | None = None
    """The position in that part after this record."""


@dataclass(slots=True)
class SinkRecord(ConnectRecord):
    """A record that was read from a topic, and where it stands there."""

    offset: int = -1
    timestamp_type: int | None = None
    """0 for CreateTime, 1 for LogAppendTime."""
    original: TopicPartition | None = None
    """The topic and the partition that it was read from, whatever transforms made of them."""
    consumed: ConsumerRecord | None = field(default=None, repr=False, compare=False)
    """The bytes that were read, for the dead letters."""

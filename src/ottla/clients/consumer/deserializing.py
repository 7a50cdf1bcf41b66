"""Deserializers of keys and values.

Kafka: org.apache.kafka.clients.consumer.internals.{Deserializers, CompletedFetch.parseRecord}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.consumer.record_decoder import ConsumerRecord
from ottla.errors import RecordDeserializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Converter = Callable[[Any], Any]


class Deserialized(NamedTuple):
    """The deserialized records, and the error of the first that failed, if any."""

    records: list[ConsumerRecord]
    failure: RecordDeserializationError | None


class Deserializers:
    """The deserializers of one consumer; false without any."""

    def __init__(self, to_key: Converter | None, to_value: Converter | None) -> None:
        self._to_key, self._to_value = to_key or _same, to_value or _same
        self._is_needed = to_key is not None or to_value is not None

    def __bool__(self) -> bool:
        return self._is_needed

    def read(self, records: list[ConsumerRecord]) -> Deserialized:
        """Deserialize records of one partition up to the first failure."""
        out: list[ConsumerRecord] = []
        try:
            out.extend(self._converted(records))
        except Exception as error:  # noqa: BLE001 - a deserializer is the user's: anything may come
            return Deserialized(out, self._failure(records[len(out)], error))
        return Deserialized(out, None)

    def _converted(self, records: list[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        to_key, to_value = self._to_key, self._to_value
        new = tuple.__new__
        for topic, partition, offset, timestamp, key, value, headers in records:
            yield new(
                ConsumerRecord,
                (topic, partition, offset, timestamp, to_key(key), to_value(value), headers),
            )

    def _failure(self, record: ConsumerRecord, error: Exception) -> RecordDeserializationError:
        try:  # again, to find out which of the two failed
            self._to_key(record.key)
            part = "value"
        except Exception:  # noqa: BLE001 - as above
            part = "key"
        failure = RecordDeserializationError(
            (record.topic, record.partition, record.offset), part, error
        )
        failure.__cause__ = error
        return failure


def _same(given: Any) -> Any:
    return given

"""Interceptors: plug-ins that see every record, set by `interceptor.classes`.

Kafka: org.apache.kafka.clients.{producer.ProducerInterceptor, consumer.ConsumerInterceptor}.

The setting holds objects, classes or dotted names of classes. An exception of an interceptor is
logged and ignored: the next interceptor and the record continue.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.arguments import named_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.offsets import OffsetAndMetadata
    from ottla.clients.producer.batches import Delivery, RecordMetadata
    from ottla.errors import KafkaError
    from ottla.types import TopicPartition

_log = logging.getLogger("ottla.clients")


class ProducerRecord(NamedTuple):
    """A record as passed to `send`."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp_ms: int | None
    headers: Any


class ProducerInterceptor:
    """Base class; every method is optional."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send, changed or not; runs in the thread of `send`."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Observe an acknowledged or failed record; runs in the producer's thread, do not block."""

    def close(self) -> None:
        """Release resources when the producer closes."""


class ConsumerInterceptor:
    """Base class; every method is optional."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records that `poll` returns, changed or not; runs inside `poll`."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Observe committed offsets."""

    def close(self) -> None:
        """Release resources when the consumer closes."""


class Interceptors:
    """The interceptors of a client, called in the order of the setting."""

    def __init__(self, given: Iterable[Any]) -> None:
        self._all = [_loaded(name) for name in given]

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all."""
        changed: ProducerRecord = self._through("on_send", record)
        return changed

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Pass records through all."""
        changed: list[ConsumerRecord] = self._through("on_consume", records)
        return changed

    def delivered(self, delivery: Delivery) -> None:
        """Report an acknowledged or failed record to all."""
        error = delivery.failure()
        self._notify("on_acknowledgement", delivery.metadata if error is None else None, error)

    def refused(self, error: KafkaError) -> None:
        """Report a record that could not be queued to all."""
        self._notify("on_acknowledgement", None, error)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report committed offsets to all."""
        self._notify("on_commit", offsets)

    def close(self) -> None:
        """Close all."""
        self._notify("close")

    def _through(self, name: str, given: Any) -> Any:
        for one in self._all:
            method: Callable[[Any], Any] | None = getattr(one, name, None)
            if method is None:
                continue
            try:
                given = method(given)
            except Exception:  # noqa: BLE001 - as in Kafka, a plug-in must not lose records
                _log.exception("an interceptor failed: %s of %r", name, one)
        return given

    def _notify(self, name: str, *arguments: Any) -> None:
        for one in self._all:
            method = getattr(one, name, None)
            if method is None:
                continue
            try:
                method(*arguments)
            except Exception:  # noqa: BLE001 - as in Kafka, a plug-in must not lose records
                _log.exception("an interceptor failed: %s of %r", name, one)


def _loaded(given: Any) -> Any:
    """Return the interceptor from an object, a class or a dotted class name."""
    if isinstance(given, str):
        given = named_object("interceptor.classes", given)
    return given() if isinstance(given, type) else given

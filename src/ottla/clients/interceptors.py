"""Plug-ins that see every record on its way: `interceptor.classes`.

Kafka: org.apache.kafka.clients.{producer.ProducerInterceptor, consumer.ConsumerInterceptor}.

A setting holds objects, classes or dotted names of classes. What an interceptor raises is logged
and passed over: the next one, and the record, go on as if it had not been there.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.clients.consumer.offsets import OffsetAndMetadata
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.producer.batches import Delivery, RecordMetadata
    from ottla.types import TopicPartition

_log = logging.getLogger("ottla.clients")


class ProducerRecord(NamedTuple):
    """A record as it was given to `send`."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp_ms: int | None
    headers: Any


class ProducerInterceptor:
    """Subclass it; every method may be left out."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send instead, or the same; in the thread of `send`."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Take note of a record that was stored, or not; in the producer's thread: be quick."""

    def close(self) -> None:
        """Give up what it holds; the producer closes."""


class ConsumerInterceptor:
    """Subclass it; every method may be left out."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records to hand to the user instead, or the same; inside `poll`."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take note of offsets that were committed."""

    def close(self) -> None:
        """Give up what it holds; the consumer closes."""


class Interceptors:
    """The interceptors of a client, called in the order of the setting."""

    def __init__(self, given: Iterable[Any]) -> None:
        self._all = [_loaded(one) for one in given]

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
        """Tell all what became of a record."""
        error = delivery.error
        self._tell("on_acknowledgement", delivery.metadata if error is None else None, error)

    def refused(self, error: KafkaError) -> None:
        """Tell all of a record that could not even be queued."""
        self._tell("on_acknowledgement", None, error)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell all of a commit."""
        self._tell("on_commit", offsets)

    def close(self) -> None:
        """Close all."""
        self._tell("close")

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

    def _tell(self, name: str, *arguments: Any) -> None:
        for one in self._all:
            method = getattr(one, name, None)
            if method is None:
                continue
            try:
                method(*arguments)
            except Exception:  # noqa: BLE001 - as in Kafka, a plug-in must not lose records
                _log.exception("an interceptor failed: %s of %r", name, one)


def _loaded(given: Any) -> Any:
    """Return the object: made of a class or its dotted name, or given as it is."""
    if isinstance(given, str):
        module, _, name = given.rpartition(".")
        try:
            given = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            text = f"interceptor.classes: there is no Python class {given!r} ({error})"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text) from error
    return given() if isinstance(given, type) else given

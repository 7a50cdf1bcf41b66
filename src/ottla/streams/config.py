"""Settings of an application, and what happens to records that cannot be processed.

Kafka: org.apache.kafka.streams.StreamsConfig, errors.{DeserializationExceptionHandler,
ProcessingExceptionHandler, ProductionExceptionHandler, internals.ExceptionHandlerUtils}, and
KIP-1034 for the dead letter topic.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.formats.dead_letters import error_headers
from ottla.streams.data.records import Header, RawRecord
from ottla.streams.data.serdes import Serde, Serdes
from ottla.streams.errors import FailedProcessingException
from ottla.streams.stores.specs import RocksDBDslStoreSuppliers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.data.records import Record
    from ottla.streams.processors.processor import ProcessorWrapper
    from ottla.streams.stores.specs import DslStoreSuppliers


class Response(Enum):
    """What happens after an error: the application fails, or goes on without the record."""

    FAIL = "fail"
    CONTINUE = "continue"


class ErrorContext(NamedTuple):
    """The record that caused an error, and where; in a punctuation it has no topic."""

    record: RawRecord
    node: str


def log_and_fail(context: ErrorContext, error: Exception) -> Response:  # noqa: ARG001 - a handler
    """Fail with any error."""
    return Response.FAIL


def log_and_continue(context: ErrorContext, error: Exception) -> Response:  # noqa: ARG001 - a handler
    """Go on after any error."""
    return Response.CONTINUE


@dataclass(frozen=True)
class StreamsConfig:
    """The settings that processing needs; with a dead letter topic, dropped records go there.

    `default_timestamp_extractor(record, partition_time)` is that of sources that have none; a
    negative timestamp skips the record. Without one a record with a negative timestamp is an error.

    With a cache the updates that counts and aggregates of columns make in a micro-batch are
    combined, one for a key; 0 forwards each.

    The suppliers (KIP-954) choose the form of stores for which an operator names none.

    With a wrapper (KIP-1112) each processor is wrapped, also those of the DSL: all run record by
    record, and columns are refused.
    """

    application_id: str = "ottla-streams"
    default_key_serde: Serde = field(default_factory=Serdes.string)
    default_value_serde: Serde = field(default_factory=Serdes.json)
    deserialization_exception_handler: Callable[[ErrorContext, Exception], Response] = log_and_fail
    processing_exception_handler: Callable[[ErrorContext, Exception], Response] = log_and_fail
    production_exception_handler: Callable[[ErrorContext, Exception], Response] = log_and_fail
    errors_dead_letter_queue_topic_name: str | None = None
    default_timestamp_extractor: Callable[[Record, int], int] | None = None
    statestore_cache_max_bytes: int = 10 * 1024 * 1024
    processor_wrapper_class: type[ProcessorWrapper] | None = None
    dsl_store_suppliers_class: type[DslStoreSuppliers] = RocksDBDslStoreSuppliers

    def by_name(self) -> dict[str, Any]:
        """Return the settings by Kafka's names, such as application.id."""
        return {one.name.replace("_", "."): getattr(self, one.name) for one in fields(self)}


log = logging.getLogger("ottla.streams")
PREFIX = "__streams.errors."


def handled(
    config: StreamsConfig,
    handler: Callable[[ErrorContext, Exception], Response],
    node: str,
    raw: RawRecord,
    error: Exception,
) -> RawRecord | None:
    """Let a handler decide on an error: return the dead letter, or FailedProcessingException."""
    place = "in a punctuation"
    if raw.topic:
        place = f"topic={raw.topic}, partition={raw.partition or 0}, offset={raw.offset}"
    if handler(ErrorContext(raw, node), error) is Response.FAIL:
        raise FailedProcessingException(
            f"Exception caught in process. processor={node}, {place}: "
            f"{type(error).__name__}: {error}"
        ) from error
    log.warning(
        "record skipped after %s in %s, %s: %s",
        type(error).__name__,
        node,
        place,
        error,
        extra={"event": "streams.skip"},
    )
    topic = config.errors_dead_letter_queue_topic_name
    return None if topic is None else dead_letter(topic, raw, error)


def dead_letter(topic: str, raw: RawRecord, error: Exception) -> RawRecord:
    """Return the record as it came, with headers that say what went wrong and where."""
    partition = raw.partition or 0
    added: list[Header] = [*error_headers(PREFIX, error, raw.topic, partition, raw.offset)]
    return RawRecord(topic, raw.key, raw.value, raw.timestamp, (*raw.headers, *added))

"""Records that could not be processed: what a handler decides, and the dead letter topic.

Kafka: org.apache.kafka.streams.errors.internals.ExceptionHandlerUtils (KIP-1034).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.formats.dead_letters import error_headers
from ottla.streams.config import ErrorContext, Response
from ottla.streams.errors import FailedProcessingException
from ottla.streams.records import Header, RawRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.config import StreamsConfig

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

"""Records that could not be processed, as they are written to the dead letter topic.

Kafka: org.apache.kafka.streams.errors.internals.ExceptionHandlerUtils (KIP-1034).
"""

from __future__ import annotations

import traceback

from ottla.streams.records import Header, RawRecord

PREFIX = "__streams.errors."


def dead_letter(topic: str, raw: RawRecord, error: Exception) -> RawRecord:
    """Return the record as it came, with headers that say what went wrong and where."""
    reasons: dict[str, str] = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "stacktrace": "".join(traceback.format_exception(error)),
        "message": str(error),
        "topic": raw.topic,
        "partition": str(raw.partition or 0),
        "offset": str(raw.offset),
    }
    added: list[Header] = [(PREFIX + name, text.encode()) for name, text in reasons.items()]
    return RawRecord(topic, raw.key, raw.value, raw.timestamp, (*raw.headers, *added))

"""Headers of a dead letter: the error with a record, and the record's position.

Kafka: org.apache.kafka.streams.errors.internals.ExceptionHandlerUtils (KIP-1034),
org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter.
"""

from __future__ import annotations

import traceback


def error_headers(
    prefix: str, error: Exception, topic: str, partition: int, offset: int
) -> list[tuple[str, bytes]]:
    """Return the headers that say what went wrong and where; their names begin with a prefix."""
    reasons = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "stacktrace": "".join(traceback.format_exception(error)),
        "message": str(error),
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
    }
    return [(prefix + name, text.encode()) for name, text in reasons.items()]

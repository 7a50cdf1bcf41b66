"""Errors of topologies and of their records.

Kafka: org.apache.kafka.streams.errors.
"""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError


class StreamsException(KafkaError):
    """A record that could not be processed; the message names where it came from."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, text)


class FailedProcessingException(StreamsException):
    """An error that a handler has decided on: the application fails."""


class TopologyException(StreamsException):
    """A topology that cannot be built."""


class SerializationException(StreamsException):
    """Bytes that a serde does not understand, or a value that it cannot write."""

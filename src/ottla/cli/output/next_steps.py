"""The error that ends a command, in Kafka's words, with what to check where those do not say it.

Kafka: none; its tools print the text of the error's code alone.
"""

from __future__ import annotations

from typing import Final

from ottla.cli.output.java_names import java_text
from ottla.errors import ConfigError, ErrorCode, KafkaError

_LOG: Final = "The broker's log has the reason."
_TOPICS: Final = "ottla topics --describe"
_STEPS: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "Check that enough brokers are up to create __consumer_offsets "
        "(offsets.topic.replication.factor) and to lead its partitions: "
        f"{_TOPICS} --topic __consumer_offsets; the topic of transactions is __transaction_state."
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "Try again in some seconds.",
    ErrorCode.NOT_COORDINATOR: "The coordinator has moved: try again.",
    ErrorCode.NOT_CONTROLLER: (
        "Check that the controllers are up: ottla metadata-quorum describe --status."
    ),
    ErrorCode.BROKER_NOT_AVAILABLE: "Check that the broker is up.",
    ErrorCode.LEADER_NOT_AVAILABLE: (
        f"Check that the brokers of its replicas are up: {_TOPICS} --unavailable-partitions."
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        f"Check which brokers are down: {_TOPICS} --under-min-isr-partitions."
    ),
    ErrorCode.REQUEST_TIMED_OUT: "Check that the brokers are up, and how busy they are.",
    ErrorCode.KAFKA_STORAGE_ERROR: _LOG,
    ErrorCode.UNKNOWN_SERVER_ERROR: _LOG,
}
"""Errors of a cluster, not of a request; their texts name no place to look at."""


def failure_text(error: Exception) -> str:
    """Return an error as Kafka's tools print it, then the next step in the same line."""
    return with_next_step(java_text(error), error)


def group_failure_text(error: Exception) -> str:
    """Return an error as Kafka's tools of groups print it: that of a setting without its class."""
    return str(error) if isinstance(error, ConfigError) else failure_text(error)


def with_next_step(text: str, error: Exception) -> str:
    """Add the next step to a text of an error that has only the text of its code."""
    if not isinstance(error, KafkaError) or error.message != error.code.text:
        return text
    step = _STEPS.get(error.code)
    return text if step is None else f"{text} {step}"

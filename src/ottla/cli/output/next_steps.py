"""The error that ends a command, in Kafka's words, with what to check where those do not say it.

Kafka: none; its tools print the text of the error's code alone.
"""

from __future__ import annotations

from ottla.cli.output.java_names import java_text
from ottla.diagnosis.advice import advice_on
from ottla.errors import ConfigError, KafkaError


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
    advice = advice_on(error.code)
    return text if advice is None else f"{text} {advice.next_step}"

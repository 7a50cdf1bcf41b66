"""The result of a controller operation: its records and its response.

Kafka: org.apache.kafka.controller.ControllerResult.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.errors import KafkaError
    from ottla.metadata.framing import MessageAndVersion

T = TypeVar("T")
RecordPermits: TypeAlias = "Callable[[int], None]"
"""Called with a number of partitions to create or delete; raises KafkaError beyond a quota."""


class ControllerResult(NamedTuple, Generic[T]):
    """The response is released when the records, and all preceding ones, are committed."""

    records: Sequence[MessageAndVersion]
    response: T
    is_atomic: bool = True
    """Whether the records must be in one batch, so that all or none survive a crash."""


def specific_message(error: KafkaError | None) -> str | None:
    """Return the message, None when it is the default text of the code, as in Kafka."""
    if error is None or error.message == error.code.text:
        return None
    return error.message

"""What an operation of the controller gives back: records to write, and the answer to release.

Kafka: org.apache.kafka.controller.ControllerResult.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.errors import KafkaError
    from ottla.metadata.framing import MessageAndVersion

T = TypeVar("T")
Charge: TypeAlias = "Callable[[int], None]"
"""Is told of partitions to be made or removed; raises KafkaError where a quota forbids it."""


def free_of_charge(_partitions: int) -> None:
    """Let everything pass."""


class ControllerResult(NamedTuple, Generic[T]):
    """The response may be shown when the records, and all before them, are committed."""

    records: Sequence[MessageAndVersion]
    response: T
    is_atomic: bool = True
    """Whether the records must be in one batch, to be there all or none after a crash."""


def own_text(error: KafkaError | None) -> str | None:
    """Return the message unless it is the code's own text, which Kafka leaves out here."""
    if error is None or error.message == error.code.text:
        return None
    return error.message

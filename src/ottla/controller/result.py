"""The result of a controller operation: its records and its response.

Kafka: org.apache.kafka.controller.ControllerResult.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from ottla.errors import KafkaError
    from ottla.metadata.framing import MessageAndVersion

T = TypeVar("T")
RecordPermits: TypeAlias = Callable[[int], None]
"""Called with a number of partitions to create or delete; raises KafkaError beyond a quota."""


class ControllerResult(NamedTuple, Generic[T]):
    """The response is released when the records, and all preceding ones, are committed."""

    records: Sequence[MessageAndVersion]
    response: T
    is_atomic: bool = True
    """Whether the records must be in one batch, so that all or none survive a crash."""


Slices: TypeAlias = Generator[Sequence["MessageAndVersion"], None, T]
"""A decision on thousands of partitions: each yielded slice of its records is appended, and its
state replayed, before the next one is made in a later turn of the event loop."""
PARTITIONS_PER_SLICE: Final = 128
"""At 30 to 60 µs each a slice takes less than 10 ms."""


def in_one_turn(slices: Slices[T]) -> T:
    """Return the result of a decision on few partitions, which yields no slice."""
    try:
        next(slices)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the decision has more than one slice")


Decision: TypeAlias = ControllerResult[T] | Slices[ControllerResult[T]]
"""The result of an operation, at once or in slices."""


def specific_message(error: KafkaError | None) -> str | None:
    """Return the message, None when it is the default text of the code, as in Kafka."""
    if error is None or error.message == error.code.text:
        return None
    return error.message

"""Errors kept for the user's next call, without duplicates.

Kafka: the exceptions kept by org.apache.kafka.clients.consumer.internals.{OffsetFetcherUtils,
ConsumerMetadata} until the next poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.clients.consumer.subscription import PartitionState
    from ottla.errors import KafkaError

MAX_KEPT = 100


class _PendingError(NamedTuple):
    error: KafkaError
    state: PartitionState | None
    generation: int

    @property
    def is_over(self) -> bool:
        return self.state is not None and self.state.generation != self.generation


class PendingErrors:
    """The pending errors of a state machine: one per code and partition, oldest first.

    A user that polls rarely gets an error once, not once per retry. Errors of a partition are
    dropped by a seek and when it is unassigned.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[PartitionState | None, int], _PendingError] = {}

    def add(self, error: KafkaError, state: PartitionState | None = None) -> None:
        """Add an error, general or of a partition."""
        self._forget_what_is_over()
        key = (state, int(error.code))
        if key not in self._kept and len(self._kept) < MAX_KEPT:
            self._kept[key] = _PendingError(error, state, -1 if state is None else state.generation)

    def pop(self) -> KafkaError | None:
        """Remove and return the oldest error; None without one."""
        self._forget_what_is_over()
        if not self._kept:
            return None
        return self._kept.pop(next(iter(self._kept))).error

    def clear(self) -> None:
        """Remove all errors."""
        self._kept.clear()

    def _forget_what_is_over(self) -> None:
        if self._kept and any(pending_error.is_over for pending_error in self._kept.values()):
            self._kept = {key: one for key, one in self._kept.items() if not one.is_over}

    def __len__(self) -> int:
        self._forget_what_is_over()
        return len(self._kept)

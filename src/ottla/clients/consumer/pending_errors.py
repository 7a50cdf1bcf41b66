"""Errors that wait for the user's next call, each once.

Kafka: the exceptions kept by org.apache.kafka.clients.consumer.internals.{OffsetFetcherUtils,
ConsumerMetadata} until the next poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.clients.consumer.subscription import PartitionState
    from ottla.errors import KafkaError

MAX_KEPT = 100


class _Trouble(NamedTuple):
    error: KafkaError
    state: PartitionState | None
    generation: int

    @property
    def is_over(self) -> bool:
        return self.state is not None and self.state.generation != self.generation


class PendingErrors:
    """What a machine has to tell the user: one error of a code and partition, the oldest first.

    A user that comes seldom hears of a trouble once, not once for every try meanwhile. Those of a
    partition are forgotten with a seek and when it is taken away.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[PartitionState | None, int], _Trouble] = {}

    def add(self, error: KafkaError, state: PartitionState | None = None) -> None:
        """Keep an error, of the whole machine or of a partition."""
        self._forget_what_is_over()
        key = (state, int(error.code))
        if key not in self._kept and len(self._kept) < MAX_KEPT:
            self._kept[key] = _Trouble(error, state, -1 if state is None else state.generation)

    def pop(self) -> KafkaError | None:
        """Return the oldest and keep it no longer; None when there is none."""
        self._forget_what_is_over()
        if not self._kept:
            return None
        return self._kept.pop(next(iter(self._kept))).error

    def clear(self) -> None:
        """Keep none."""
        self._kept.clear()

    def _forget_what_is_over(self) -> None:
        if any(pending_error.is_over for pending_error in self._kept.values()):
            self._kept = {key: one for key, one in self._kept.items() if not one.is_over}

    def __len__(self) -> int:
        self._forget_what_is_over()
        return len(self._kept)

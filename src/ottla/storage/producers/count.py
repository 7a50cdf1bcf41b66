"""The number of producers in all logs of a node, and its limit.

Kafka: none; there only their age limits producers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.metrics.ledger import Ledger

DEFAULT_MAX_PRODUCERS = 1_000_000
_STATE_BYTES: Final = 1300
"""Of a producer with five batches."""


class ProducerCount:
    """Count of all producer states of a node, which each of them updates."""

    __slots__ = ("count", "max_count", "refused_count")

    def __init__(self, max_count: int = DEFAULT_MAX_PRODUCERS) -> None:
        self.count = 0
        self.max_count = max_count
        self.refused_count = 0
        """Batches of new producers that were refused."""

    def check_room(self, producer_id: int, partition: str) -> None:
        """Refuse a client's new producer while there is no room: POLICY_VIOLATION.

        Clients do not retry it; UNKNOWN_PRODUCER_ID they would retry without end.
        """
        if self.count >= self.max_count:
            self.refused_count += 1
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Producer {producer_id} is new in {partition}, and this broker remembers "
                f"{self.count} producers already (producer.states.max)",
            )

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        ledger.register("producers", self.max_count * _STATE_BYTES, self._measure)

    def _measure(self) -> tuple[int, int]:
        return self.count, self.count * _STATE_BYTES

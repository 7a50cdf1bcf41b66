"""Records that were read in a transaction which commits their offsets.

Kafka: the loop of examples/ExactlyOnceMessageProcessor (KIP-447).

The consumer's position is after the records as soon as they are polled, whatever becomes of the
transaction. One that is aborted moves it back to the first of them. While a commit is pending
(TimeoutError, cancellation) its outcome is unknown: the position stays until it is completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.errors import ConfigError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.consumer.core import ConsumerCore
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.offsets import OffsetAndMetadata


class RewindableConsumer(Protocol):
    """The methods of a consumer, asyncio or blocking, that change positions."""

    _core: ConsumerCore

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset."""

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the group's committed offsets."""


def check_consumer(consumer: RewindableConsumer) -> None:
    """Raise ConfigError for a consumer that commits by itself: its records could be lost."""
    if consumer._core.auto_commit:  # noqa: SLF001 - two parts of one client
        raise ConfigError(
            "enable.auto.commit must be false: the producer's transaction commits the offsets"
        )


class TransactionalRead:
    """The records of one transaction, by their consumer."""

    def __init__(self, consumer: RewindableConsumer, records: Iterable[ConsumerRecord]) -> None:
        self._consumer = consumer
        self._starts: dict[TopicPartition, int] = {}
        for record in records:
            self._starts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        positions = consumer._core.consumed()  # noqa: SLF001 - two parts of one client
        self.offsets: dict[TopicPartition, OffsetAndMetadata | int] = {
            partition: positions[partition] for partition in self._starts
        }
        """The next offsets to read: what the transaction commits."""

    def rewind(self) -> None:
        """Read the records again: their transaction is aborted."""
        for partition in self._assigned():
            self._consumer.seek(partition, self._starts[partition])

    def look_up(self) -> None:
        """Continue where the group has committed: this producer cannot learn the outcome."""
        for partition in self._assigned():
            self._consumer.seek_to_committed(partition)

    def _assigned(self) -> set[TopicPartition]:
        """Return the partitions that may be moved back; none of a consumer that is closed.

        The one after it starts at the committed offsets by itself.
        """
        if self._consumer._core.client.closed:  # noqa: SLF001 - two parts of one client
            return set()
        return self._starts.keys() & self._consumer.assignment

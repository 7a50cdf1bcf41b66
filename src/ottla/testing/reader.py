"""Reads a whole topic and its later additions.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.blocking import Consumer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.types import TopicPartition


class Reader:
    """The records of some partitions; a context manager."""

    def __init__(
        self,
        settings: Mapping[str, str],
        partitions: list[TopicPartition],
        *,
        read_committed: bool,
    ) -> None:
        self._partitions = partitions
        self._records: list[ConsumerRecord] = []
        self._consumer = Consumer(
            config=settings,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if read_committed else "read_uncommitted",
        )
        self._consumer.assign(partitions)
        self._consumer.seek_to_beginning()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._consumer.close()

    @property
    def records(self) -> list[ConsumerRecord]:
        """The records read, by partition and offset."""
        return sorted(self._records, key=lambda record: (record.partition, record.offset))

    def catch_up(self) -> None:
        """Read to the current end."""
        ends = self._consumer.end_offsets(self._partitions)
        while any(self._consumer.position(one) < ends[one] for one in self._partitions):
            self.wait(1.0)

    def wait(self, seconds: float) -> bool:
        """Read additional records; False if there are none within the time."""
        added = self._consumer.poll(seconds)
        self._records += added
        return bool(added)

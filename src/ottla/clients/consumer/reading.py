"""Iteration over the records of one poll.

Kafka: none; its consumer has no iterator.
"""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING

from ottla.clients.consumer.fetched import FetchedPartitionRecords
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.consumer.subscription import PartitionState

    Taken = tuple[PartitionState, int, list[ConsumerRecord]]


class RecordIteration:
    """The records taken for an iterator, and the iterator's position.

    The partitions' positions are after all taken records. Records that the iterator has not
    returned must not be committed, and are put back when the user calls another method. No counter
    is kept per record: the list iterator knows its position.

    `taken` holds the records before deserialization, with each partition's state and generation.
    """

    def __init__(self, records: list[ConsumerRecord], taken: list[Taken]) -> None:
        self._records = records
        self._rest = iter(records)
        self._taken = taken

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._rest

    def __len__(self) -> int:
        """Return the number of remaining records."""
        return length_hint(self._rest)

    def ahead(self) -> dict[PartitionState, int]:
        """Return the offset of the first remaining record of each partition."""
        remaining = len(self)
        if not remaining:
            return {}
        first = {
            TopicPartition(record.topic, record.partition): record.offset
            for record in reversed(self._records[-remaining:])
        }
        return {
            state: first[state.topic_partition]
            for state, generation, _ in self._taken
            if state.generation == generation and state.topic_partition in first
        }

    def put_back(self) -> None:
        """End the iterator and return the remaining records to the buffers."""
        for state, offset in self.ahead().items():
            assert state.position is not None
            records = [
                record
                for owner, _, records in self._taken
                for record in records
                if owner is state and record.offset >= offset
            ]
            again = FetchedPartitionRecords.again(state.topic_partition, records, state.position)
            state.buffered.appendleft(again)
            state.position = offset
        self._records.clear()

"""The records of one poll while an iterator hands them out, one by one.

Kafka: none; its consumer has no iterator.
"""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING

from ottla.clients.consumer.fetched import Fetched
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.consumer.subscription import PartitionState

    Taken = tuple[PartitionState, int, list[ConsumerRecord]]


class Reading:
    """What was taken for an iterator, and how far that has come.

    Positions stand behind everything that was taken. What the iterator has not handed out yet must
    not be committed, and is put back when the user goes on in another way. Nothing is counted a
    record: the iterator of the list knows where it is.

    `taken` are the records as they came, with each partition's state and its generation.
    """

    def __init__(self, records: list[ConsumerRecord], taken: list[Taken]) -> None:
        self._records = records
        self._rest = iter(records)
        self._taken = taken

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._rest

    def __len__(self) -> int:
        """How many records are still to be handed out."""
        return length_hint(self._rest)

    def ahead(self) -> dict[PartitionState, int]:
        """Return the first offset not handed out, of each partition that has one."""
        left = len(self)
        if not left:
            return {}
        first = {
            TopicPartition(record.topic, record.partition): record.offset
            for record in reversed(self._records[-left:])
        }
        return {
            state: first[state.topic_partition]
            for state, generation, _ in self._taken
            if state.generation == generation and state.topic_partition in first
        }

    def put_back(self) -> None:
        """End the iterator; what it has not handed out is the next to be taken."""
        for state, offset in self.ahead().items():
            assert state.position is not None
            records = [
                record
                for owner, _, records in self._taken
                for record in records
                if owner is state and record.offset >= offset
            ]
            again = Fetched.again(state.topic_partition, records, state.position)
            state.buffered.appendleft(again)
            state.position = offset
        self._records.clear()

"""The records that the user has, and what was decided on them.

Kafka: org.apache.kafka.clients.consumer.internals.{ShareInFlightBatch, Acknowledgements}.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ottla.purgatory.pending import Pending
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.share.records import PartitionKey, ShareRecord

NOT_ACQUIRED = "The record cannot be acknowledged."


class OffsetRun(NamedTuple):
    """Consecutive offsets, with one type for all or one for each."""

    first_offset: int
    last_offset: int
    types: list[int]


def offset_runs(types: Mapping[int, AcknowledgeType]) -> list[OffsetRun]:
    """Return the acknowledgements of a partition as a request carries them."""
    offsets = sorted(types)
    found = []
    for _, group in groupby(enumerate(offsets), key=lambda pair: pair[1] - pair[0]):
        run = [offset for _, offset in group]
        kinds = [int(types[offset]) for offset in run]
        found.append(OffsetRun(run[0], run[-1], kinds[:1] if len(set(kinds)) == 1 else kinds))
    return found


class Acknowledgements:
    """Decisions on the records of one partition on their way to the node."""

    def __init__(
        self, key: PartitionKey, types: dict[int, AcknowledgeType], deadline_ms: int
    ) -> None:
        self.key = key
        self.types = types
        self.deadline_ms = deadline_ms
        self.done: Pending[None] = Pending()
        self.attempts = 0

    @property
    def renews(self) -> bool:
        """Whether locks are renewed: such a request acquires no records."""
        return AcknowledgeType.RENEW in self.types.values()


class InFlightRecords:
    """The records of one partition that the user has."""

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.records: dict[int, ShareRecord] = {}
        self._unreadable: set[int] = set()
        self._decided: dict[int, AcknowledgeType] = {}
        self._renewing: dict[int, ShareRecord] = {}
        self.renewed: list[ShareRecord] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to decide, to send or to renew."""
        return not (self.records or self._decided or self._renewing or self.renewed)

    @property
    def is_renewing(self) -> bool:
        """Whether renewals are on their way."""
        return bool(self._renewing)

    @property
    def is_decided(self) -> bool:
        """Whether all records are acknowledged."""
        return all(offset in self._decided for offset in self.records)

    def add(self, records: Iterable[ShareRecord]) -> None:
        """Add records that the user gets."""
        self.records.update((record.offset, record) for record in records)

    def decide(self, types: Mapping[int, AcknowledgeType], unreadable: Iterable[int] = ()) -> None:
        """Add what the client decides: gaps, and records that cannot be read."""
        self._decided.update(types)
        self._unreadable.update(unreadable)

    def has(self, offset: int) -> bool:
        """Whether the user may decide on an offset."""
        return offset in self.records or offset in self._unreadable

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> None:
        """Note the user's decision on a record that it has."""
        self._decided[offset] = kind

    def acknowledge_rest(self, kind: AcknowledgeType) -> None:
        """Decide on all records without a decision."""
        for offset in self.records:
            self._decided.setdefault(offset, kind)

    def take_decided(self, deadline_ms: int) -> Acknowledgements | None:
        """Return the decisions that were not sent, None without any."""
        if not self._decided:
            return None
        types, self._decided = self._decided, {}
        self._unreadable.clear()
        for offset, kind in types.items():
            record = self.records.pop(offset, None)
            if kind is AcknowledgeType.RENEW and record is not None:
                self._renewing[offset] = record
        sent = Acknowledgements(self.key, types, deadline_ms)
        sent.done.on_done(lambda done: self._answered(types, done.error))
        return sent

    def _answered(self, types: dict[int, AcknowledgeType], error: Exception | None) -> None:
        for offset in types:
            record = self._renewing.pop(offset, None)
            if record is not None and error is None:
                self.renewed.append(record)

    def put_back(self, records: Iterable[ShareRecord]) -> None:
        """Return those of these records that are its own with the next poll."""
        for record in records:
            if self.records.get(record.offset) is record:
                self.renewed.append(self.records.pop(record.offset))

    def take_renewed(self) -> list[ShareRecord]:
        """Return the renewed records and those put back, on which the user decides again."""
        records, self.renewed = self.renewed, []
        self.add(records)
        return records

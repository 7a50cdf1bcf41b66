"""Random histories of a log, and what their batches mean, worked out the plain way.

A history is a list of batches as a leader wrote them: of plain, idempotent and transactional
producers, interleaved, with markers of both transaction versions, in several leader epochs and
with timestamps that go back. `Model` reads a prefix of it batch by batch and keeps every fact; it
shares no code with the log's state but the decoding of bytes.
"""

from __future__ import annotations

from copy import copy
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ottla.records.builder import encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from tests.storage.logs import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.log.partition_log import PartitionLog

PRODUCERS = range(1, 6)


class Batch(NamedTuple):
    """One batch of a history, with what it does."""

    data: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int
    timestamps: tuple[int, ...]
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: str = ""
    coordinator_epoch: int = -1


class Transaction(NamedTuple):
    """A transaction; last_offset and outcome are those of its marker, -1 while it is open."""

    producer_id: int
    first_offset: int
    last_offset: int = -1
    is_aborted: bool = False
    last_stable_offset: int = -1
    """The first offset of what was open after its marker, or the offset after that."""


class _Sender:
    """A producer's own view of what it sends next."""

    def __init__(self) -> None:
        self.epoch = self.sequence = 0
        self.is_open = False


class HistoryWriter:
    """Appends random batches to a leader's log and records them."""

    def __init__(self, rng: Random, leader: PartitionLog) -> None:
        self.rng = rng
        self.leader = leader
        self.batches: list[Batch] = []
        self._senders = {producer_id: _Sender() for producer_id in PRODUCERS}
        self._leader_epoch = self._coordinator_epoch = 0

    def step(self) -> None:
        """Append one batch of a random kind."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.05:
            self._leader_epoch += rng.randint(1, 3)
        producer_id = rng.choice(PRODUCERS)
        if kind < 0.12:
            self._append(-1)
        elif kind < 0.25 and not self._senders[producer_id].is_open:
            self._append(producer_id)
        elif kind < 0.7:
            self._append(producer_id, is_transactional=True)
        else:
            self._end(producer_id)

    def _times(self, count: int) -> tuple[int, ...]:
        return tuple(NOW_MS + self.rng.randint(-500, 500) for _ in range(count))

    def _append(self, producer_id: int, *, is_transactional: bool = False) -> None:
        times = self._times(self.rng.randint(1, 3))
        batch = Batch(b"", 0, len(times) - 1, self._leader_epoch, times)
        if producer_id > 0:
            sender = self._senders[producer_id]
            batch = batch._replace(
                producer_id=producer_id,
                producer_epoch=sender.epoch,
                base_sequence=sender.sequence,
                is_transactional=is_transactional,
            )
            sender.sequence += len(times)
            sender.is_open |= is_transactional
        data = encode_batch(
            [(time, b"k", b"v" * self.rng.randint(1, 60), ()) for time in times],
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=is_transactional,
        )
        self._write(batch, bytearray(data))

    def _end(self, producer_id: int) -> None:
        """End a transaction; where none is open the marker is one that was written again."""
        rng, sender = self.rng, self._senders[producer_id]
        version = 2 if rng.random() < 0.5 else 0
        if version == 2:
            sender.epoch, sender.sequence = sender.epoch + 1, 0
        sender.is_open = False
        self._coordinator_epoch += rng.random() < 0.1
        is_commit, (time,) = rng.random() < 0.5, self._times(1)
        data = encode_end_txn_marker(
            commit=is_commit,
            coordinator_epoch=self._coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=sender.epoch,
            timestamp=time,
        )
        batch = Batch(
            b"",
            0,
            0,
            self._leader_epoch,
            (time,),
            producer_id,
            sender.epoch,
            is_transactional=True,
            marker="commit" if is_commit else "abort",
            coordinator_epoch=self._coordinator_epoch,
        )
        self._write(batch, bytearray(data), AppendOrigin.COORDINATOR, version)

    def _write(
        self,
        batch: Batch,
        data: bytearray,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> None:
        info = self.leader.writes.append_as_leader(
            memoryview(data),
            batch.leader_epoch,
            NOW_MS,
            origin,
            transaction_version=transaction_version,
        )
        assert not info.is_duplicate
        self.batches.append(
            batch._replace(
                data=bytes(data), base_offset=info.first_offset, last_offset=info.last_offset
            )
        )

    def branched(self, leader: PartitionLog) -> HistoryWriter:
        """Return the writer of another leader, elected here, whose log has what this one has."""
        other = HistoryWriter(self.rng, leader)
        other.batches = list(self.batches)
        other._senders = {key: copy(sender) for key, sender in self._senders.items()}
        other._leader_epoch = self._leader_epoch + 10
        other._coordinator_epoch = self._coordinator_epoch
        return other

    def compacted(self, share: float, seed: int) -> list[Batch]:
        """Return the batches as a compaction may leave them: a share of the data is gone.

        The end stays, and of two branches the same is gone.
        """
        last = self.batches[-1]
        return [
            one
            for one in self.batches
            if one.marker or one is last or Random(seed + one.base_offset).random() >= share
        ]


class Model:
    """What a list of batches means."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self.end_offset = batches[-1].last_offset + 1 if batches else 0
        self.producers: dict[int, tuple[int, ...]] = {}
        """Epoch, last sequence, last offset, its batch's first offset, timestamp, coordinator."""
        self.transactions: list[Transaction] = []
        self.epochs: list[tuple[int, int]] = []
        for batch in batches:
            self._read(batch)

    def _read(self, batch: Batch) -> None:
        if not self.epochs or self.epochs[-1][0] != batch.leader_epoch:
            self.epochs.append((batch.leader_epoch, batch.base_offset))
        if batch.producer_id < 0:
            return
        known = self.producers.get(batch.producer_id, (-1, -1, -1, -1, -1, -1))
        epoch, coordinator_epoch = batch.producer_epoch, known[5]
        last = known[1:4] if known[0] == epoch else (-1, -1, -1)
        is_open = any(one.producer_id == batch.producer_id for one in self.open)
        if batch.marker:
            coordinator_epoch = batch.coordinator_epoch
            if is_open:
                self._end(batch)
        else:
            count = len(batch.timestamps)
            last = (batch.base_sequence + count - 1, batch.last_offset, batch.base_offset)
            if batch.is_transactional and not is_open:
                self.transactions.append(Transaction(batch.producer_id, batch.base_offset))
        time = max(batch.timestamps)
        self.producers[batch.producer_id] = (epoch, *last, time, coordinator_epoch)

    def _end(self, batch: Batch) -> None:
        at, begun = next(
            (at, one)
            for at, one in enumerate(self.transactions)
            if one.producer_id == batch.producer_id and one.last_offset < 0
        )
        others = [one.first_offset for one in self.open if one is not begun]
        self.transactions[at] = begun._replace(
            last_offset=batch.last_offset,
            is_aborted=batch.marker == "abort",
            last_stable_offset=min([batch.last_offset + 1, *others]),
        )

    @property
    def open(self) -> list[Transaction]:
        """The open transactions, in order of their first offsets."""
        found = [one for one in self.transactions if one.last_offset < 0]
        return sorted(found, key=lambda one: one.first_offset)

    @property
    def aborted(self) -> list[Transaction]:
        """The aborted ones, in order of their markers."""
        found = [one for one in self.transactions if one.is_aborted]
        return sorted(found, key=lambda one: one.last_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the first offset that is open, or whose marker is not below the high watermark."""
        unstable = [
            one.first_offset
            for one in self.transactions
            if one.last_offset < 0 or one.last_offset >= high_watermark
        ]
        return min([high_watermark, *unstable])

    def is_aborted(self, batch: Batch) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        return any(
            one.is_aborted
            and one.producer_id == batch.producer_id
            and one.first_offset <= batch.base_offset < one.last_offset
            for one in self.transactions
        )

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

from ottla.errors import CorruptMessage
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.storage.indexes.transaction_index import TransactionIndex
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.producers.snapshot import decode_snapshot
from tests.storage.logs import NOW_MS, content

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.producers.entry import ProducerEntry
    from ottla.testing.disk import SimulatedDisk

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


# What must be equal


def producers_of(entries: Iterable[ProducerEntry]) -> dict[int, tuple[int, ...]]:
    """Return producers as `Model.producers` has them."""
    found: dict[int, tuple[int, ...]] = {}
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        found[entry.producer_id] = (
            entry.producer_epoch,
            *((-1, -1, -1) if last is None else (last.last_sequence, last[1], last.base_offset)),
            entry.last_timestamp,
            entry.coordinator_epoch,
        )
    return found


def check_snapshots(log: PartitionLog, batches: Sequence[Batch], disk: SimulatedDisk) -> None:
    """Compare the producer snapshots, those too that wait for a flush, with the batches before."""
    state = log.producer_state
    for offset in state.snapshots:
        entries = state.unflushed_snapshots.get(offset)
        if entries is None:
            try:
                entries = decode_snapshot(disk.content(state.snapshot_path(offset)))
            except CorruptMessage:
                continue  # torn by a crash
        model = Model([one for one in batches if one.base_offset < offset])
        assert producers_of(entries) == model.producers, f"snapshot at {offset}"


def check_producers(log: PartitionLog, model: Model) -> None:
    """Compare producers, open transactions and leader epochs; of its batches only the last one.

    A snapshot has no more of them, in Kafka either.
    """
    state = log.producer_state
    assert producers_of(state.producers.values()) == model.producers
    in_transaction = {
        (entry.transaction_first_offset, producer_id)
        for producer_id, entry in state.producers.items()
        if entry.in_transaction
    }
    expected = [(one.first_offset, one.producer_id) for one in model.open]
    assert state.transactions.open == expected == sorted(in_transaction)
    epochs = [(one.epoch, one.start_offset) for one in log.leader_epochs.entries]
    assert [one for one in epochs if one[1] < model.end_offset] == model.epochs


def expected_aborts(
    model: Model, base_offset: int, end_offset: int
) -> list[tuple[int, int, int, int]]:
    """Return the entries of the transaction index of a segment."""
    return [
        (one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
        for one in model.aborted
        if base_offset <= one.last_offset < end_offset
    ]


def check_index(log: PartitionLog, model: Model) -> None:
    """Compare the transaction indexes of all segments, on the disk too."""
    bases = [*log.segments.base_offsets, 1 << 62]
    for segment, end_offset in zip(log.segments, bases[1:], strict=True):
        expected = expected_aborts(model, segment.base_offset, end_offset)
        index = segment.transaction_index
        assert [tuple(one) for one in index.entries()] == expected
        stored = TransactionIndex(index.directory, index.path)
        assert [tuple(one) for one in stored.entries()] == expected


def check_reads(log: PartitionLog, model: Model, rng: Random) -> None:
    """Look up an offset, and read from there as a read_committed consumer does."""
    if not model.batches:
        return
    batch = rng.choice(model.batches)
    offset = rng.randint(batch.base_offset, batch.last_offset)
    assert content(log.reads.read(offset, len(batch.data)).records) == batch.data
    stable = log.last_stable_offset
    visible = {
        one.base_offset
        for one in model.batches
        if offset <= one.last_offset < stable and not one.marker and not model.is_aborted(one)
    }
    assert committed_reads(log, offset, rng.choice((1, 400, 3000))) == visible


def check_time(log: PartitionLog, model: Model, timestamp: int) -> None:
    """Compare the first record at or after a time."""
    expected = next(
        (
            (batch.base_offset + at, time)
            for batch in model.batches
            for at, time in enumerate(batch.timestamps)
            if time >= timestamp
        ),
        None,
    )
    found = log.reads.offset_for_timestamp(timestamp)
    assert (None if found is None else (found.offset, found.timestamp)) == expected


def committed_reads(log: PartitionLog, offset: int, max_bytes: int) -> set[int]:
    """Return the base offsets of the batches that a read_committed consumer delivers."""
    delivered = set()
    while True:
        data = log.reads.read(offset, max_bytes, isolation=FetchIsolation.TXN_COMMITTED)
        aborted = sorted(data.aborted_transactions or (), key=lambda one: -one.first_offset)
        filtered: set[int] = set()
        before = offset
        for batch in iterate_batches(memoryview(content(data.records)), partial_tail=True):
            offset = batch.last_offset + 1
            while aborted and aborted[-1].first_offset <= batch.last_offset:
                filtered.add(aborted.pop().producer_id)
            if batch.is_control:
                filtered.discard(batch.producer_id)
            elif not batch.is_transactional or batch.producer_id not in filtered:
                delivered.add(batch.base_offset)
        if offset == before:
            return delivered

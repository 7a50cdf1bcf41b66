"""The producers of one log: duplicates, open transactions, the first unstable offset, snapshots.

State is a pure function of the log's batches: what is loaded from a snapshot and replayed up to
the end equals what was there before. A snapshot is named by the offset up to which it counts.

Kafka: org.apache.kafka.storage.internals.log.ProducerStateManager.
"""

from __future__ import annotations

from bisect import insort
from contextlib import closing, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.validator import AppendOrigin
from ottla.storage.directory import join
from ottla.storage.layout import SNAPSHOT_SUFFIX, base_offset_of, segment_file_name
from ottla.storage.producers.append import CompletedTransaction, ProducerAppend, Verification
from ottla.storage.producers.count import ProducerCount
from ottla.storage.producers.entry import NO_OFFSET, EntryOwner, ProducerEntry
from ottla.storage.producers.snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.transactions import UnstableTransactions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ottla.records.validator import ValidatedBatch
    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory
    from ottla.storage.producers.append import EndTransactionMarker

    Snapshots = Mapping[int, Sequence[ProducerEntry] | None]


MAX_VERIFICATIONS: Final = 10_000
"""In a log: those of producers that their coordinators do not know stay until they expire."""
_MAX_EXAMINED: Final = 100
"""Verifications that are examined for one to forget: some microseconds."""


class PartitionProducers:
    """All producers of one partition. `end_offset` is the offset up to which the state counts."""

    def __init__(
        self,
        directory: Directory,
        partition_dir: str,
        *,
        partition: str,
        producer_id_expiration_ms: int,
    ) -> None:
        self._directory = directory
        self._partition_dir = partition_dir
        self.partition = partition
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.producers: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self._owner = EntryOwner()
        """Replaced with every snapshot: an entry of another owner is copied before it changes."""
        self._snapshot_offset = 0  # of the last snapshot taken or loaded
        self.snapshots: list[int] = []
        """The offsets of the snapshots, those that are not written yet among them."""
        self.unflushed_snapshots: dict[int, Sequence[ProducerEntry] | None] = {}
        """Their entries by offset; None where the file is written and only to be synced."""
        self.damaged_snapshots: list[int] = []
        """The offsets of files that could not be read."""
        self.is_stale = False
        """Whether the log was truncated and a worker's `take_over` has not followed."""
        self._stale_unstable_offset: int | None = None
        self._loaded_offset = 0
        """Of the snapshot that was loaded: which markers before it are replicated is not known."""
        self._discarded: dict[int, ProducerEntry] = {}
        self.transactions = UnstableTransactions()
        self.verifications: dict[int, Verification] = {}
        """By producer id: transactions whose first batch is verified, or was refused since."""
        self._unchecked: list[int] = []  # what `remove_expired` has still to check
        self._node_count = ProducerCount()
        self._counted = 0

    # The bound of all logs together

    def count_in(self, node_count: ProducerCount) -> None:
        """Add the producers to a node's count, and subtract them from the one before."""
        self._node_count.count -= self._counted
        self._node_count = node_count
        self._counted = 0
        self._recount()

    def _recount(self) -> None:
        """Update the count when producers were added or removed."""
        self._node_count.count += len(self.producers) - self._counted
        self._counted = len(self.producers)

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open or not replicated yet."""
        if self.is_stale:
            return self._stale_unstable_offset
        return self.transactions.first_offset

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset as it is once `completed` is complete."""
        return self.transactions.last_stable_offset(completed)

    def complete(self, completed: CompletedTransaction) -> None:
        """Close a transaction; it stays unstable until its marker is replicated."""
        self.transactions.complete(completed)

    def high_watermark_updated(self, high_watermark: int) -> bool:
        """Remove the transactions whose markers are replicated; return whether there were any."""
        return self.transactions.replicated_up_to(high_watermark)

    def has_transaction_since_before(self, timestamp_ms: int) -> bool:
        """Whether the oldest open transaction has had its last batch before a time."""
        producer_id = self.transactions.oldest_producer()
        entry = None if producer_id is None else self.producers.get(producer_id)
        return entry is not None and 0 < entry.last_timestamp < timestamp_ms

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this very producer has a transaction open here."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.in_transaction and entry.producer_epoch == producer_epoch

    # The verification of transactions, KIP-890

    def start_verification(
        self,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        *,
        now_ms: int,
        supports_epoch_bump: bool,
    ) -> Verification | None:
        """Return the guard to append with once the coordinator agreed; None when not needed.

        NOT_ENOUGH_REPLICAS, which all clients retry, where too many wait for an answer.
        """
        self.check_epoch(producer_id, producer_epoch)
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return None
        verification = self.verifications.get(producer_id)
        if verification is None:
            if len(self.verifications) >= MAX_VERIFICATIONS:
                self._forget_verification()
            verification = self.verifications[producer_id] = Verification(
                now_ms, sequence, producer_epoch, supports_epoch_bump=supports_epoch_bump
            )
        verification.lower_to(sequence, producer_epoch)
        return verification

    def _forget_verification(self) -> None:
        """Forget one of the oldest verifications for which no append waits.

        The append of another producer would be refused although its coordinator has agreed.
        """
        for producer_id, one in islice(self.verifications.items(), _MAX_EXAMINED):
            if not one.waiting:
                del self.verifications[producer_id]
                return
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Too many producers wait for the verification of their transactions "
            f"in {self.partition}",
        )

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse a producer that was fenced: it needs no verification."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the "
                f"last seen epoch {entry.producer_epoch}",
            )

    def verification(self, producer_id: int) -> Verification | None:
        """Return the verification under way."""
        return self.verifications.get(producer_id)

    def end_verification(self, producer_id: int, *, producer_epoch: int, is_control: bool) -> None:
        """Forget the verification once its transaction began; a late marker of TV2 does not."""
        verification = self.verifications.get(producer_id)
        if verification is None:
            return
        late_marker = (
            verification.supports_epoch_bump
            and is_control
            and producer_epoch == verification.producer_epoch
        )
        if not late_marker:
            del self.verifications[producer_id]

    # Appends

    def prepare(self, producer_id: int, origin: AppendOrigin) -> ProducerAppend:
        """Return the validation of an append; POLICY_VIOLATION for one producer too many."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = ProducerEntry(producer_id)
            if origin is AppendOrigin.CLIENT:
                self._node_count.check_room(producer_id, self.partition)
        return ProducerAppend(
            self.partition, entry, origin=origin, verification=self.verifications.get(producer_id)
        )

    def apply(self, appends: Iterable[ProducerAppend]) -> None:
        """Make validated appends part of the state, after their bytes were written."""
        for append in appends:
            updated = append.updated
            entry = self.producers.get(updated.producer_id)
            if entry is None:
                updated.owner = self._owner
                self.producers[updated.producer_id] = updated
                self._recount()
            else:
                entry = self.writable(entry)
                entry.set_epoch(updated.producer_epoch)
                for batch in updated.batches:
                    entry.add_batch(batch)
                entry.coordinator_epoch = updated.coordinator_epoch
                entry.last_timestamp = updated.last_timestamp
                entry.transaction_first_offset = updated.transaction_first_offset
            for first_offset in append.started:
                self.transactions.begin(first_offset, updated.producer_id)

    def take_transactional(self, entry: ProducerEntry, batch: ValidatedBatch | BatchHeader) -> bool:
        """Apply a valid batch of a transaction; return whether the transaction begins with it."""
        entry = self.writable(entry)
        entry.set_epoch(batch.producer_epoch)
        entry.take_next(batch)
        if self.verifications:
            self.verifications.pop(entry.producer_id, None)
        if entry.transaction_first_offset >= 0:
            return False
        entry.transaction_first_offset = batch.base_offset
        self.transactions.begin(batch.base_offset, entry.producer_id)
        return True

    def take_marker(
        self,
        entry: ProducerEntry,
        batch: ValidatedBatch | BatchHeader,
        marker: EndTransactionMarker,
    ) -> CompletedTransaction:
        """Apply a valid marker of an open transaction, for `complete`, to the producer's entry."""
        entry = self.writable(entry)
        first_offset = entry.transaction_first_offset
        entry.set_epoch(batch.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = batch.max_timestamp
        entry.transaction_first_offset = NO_OFFSET
        self.end_verification(
            entry.producer_id, producer_epoch=batch.producer_epoch, is_control=True
        )
        return CompletedTransaction(
            entry.producer_id, first_offset, batch.base_offset, marker.is_abort
        )

    def writable(self, entry: ProducerEntry) -> ProducerEntry:
        """Return the producer's current entry, copied when a snapshot holds it."""
        current = self.producers[entry.producer_id]
        if current.owner is not self._owner:
            current = current.copied(self._owner)
            self.producers[entry.producer_id] = current
        return current

    def remove_expired(self, now_ms: int, max_count: int | None = None) -> bool:
        """Forget producers silent for producer.id.expiration.ms, and stale verifications.

        With max_count only so many producers are checked; return whether some are left for the
        next call.
        """
        limit = now_ms - self.producer_id_expiration_ms
        unchecked = self._unchecked = self._unchecked or list(self.producers)
        first = 0 if max_count is None else max(0, len(unchecked) - max_count)
        for producer_id in unchecked[first:]:
            entry = self.producers.get(producer_id)
            if entry is None or entry.in_transaction or entry.last_timestamp > limit:
                continue
            del self.producers[producer_id]
        del unchecked[first:]
        self._recount()
        stale = [key for key, value in self.verifications.items() if value.timestamp <= limit]
        for producer_id in stale:
            del self.verifications[producer_id]
        return bool(unchecked)

    # Snapshots

    def snapshot_path(self, offset: int) -> str:
        """Return the path of the snapshot at offset."""
        return join(self._partition_dir, segment_file_name(offset, SNAPSHOT_SUFFIX))

    def moved(self, partition_dir: str) -> None:
        """Follow the partition's directory, which was renamed."""
        self._partition_dir = partition_dir

    def take_snapshot(self) -> None:
        """Keep the state at `end_offset` for the next flush, unless that was done already."""
        if self.end_offset <= self._snapshot_offset or self.is_stale:
            return
        offset = self.end_offset
        if offset not in self.snapshots:
            insort(self.snapshots, offset)
        if offset in self.damaged_snapshots:
            self.damaged_snapshots.remove(offset)
        self.unflushed_snapshots[offset] = list(self.producers.values())
        self._owner = EntryOwner()
        self._snapshot_offset = offset

    def entries_for_worker(self) -> list[ProducerEntry]:
        """Return all producers as they are: an entry is copied before it changes."""
        self._owner = EntryOwner()
        return list(self.producers.values())

    def write_snapshots(self) -> None:
        """Write the snapshots that are not written yet; a flush syncs them."""
        for offset, entries in self.unflushed_snapshots.items():
            if entries is None:
                continue
            with closing(self._directory.open(self.snapshot_path(offset), create=True)) as file:
                file.truncate(0)
                file.write_at(0, encode_snapshot(entries))
            self.unflushed_snapshots[offset] = None

    def snapshots_flushed(self, flushed: Snapshots) -> None:
        """Record that a job wrote and synced snapshots; remove those that were dropped since."""
        for offset, entries in flushed.items():
            if offset not in self.snapshots:
                with suppress(FileNotFoundError):
                    self._directory.remove(self.snapshot_path(offset))
            elif self.unflushed_snapshots.get(offset, flushed) is entries:
                del self.unflushed_snapshots[offset]

    def find_snapshots(self, names: Collection[str]) -> None:
        """Find the snapshot files among the directory's names."""
        found = (base_offset_of(name, SNAPSHOT_SUFFIX) for name in names)
        self.snapshots = sorted(offset for offset in found if offset is not None)

    def remove_stray_snapshots(self, segment_offsets: Collection[int]) -> None:
        """Keep the snapshots of segments and the newest one, when it is later than all of them."""
        newest_segment = max(segment_offsets, default=None)
        strays = [offset for offset in self.snapshots if offset not in segment_offsets]
        newest_stray = strays[-1] if strays else None
        for offset in strays:
            if offset != newest_stray or (newest_segment is not None and offset < newest_segment):
                self.remove_snapshot(offset)

    def remove_snapshot(self, offset: int) -> None:
        """Remove one snapshot file."""
        self.snapshots.remove(offset)
        self.unflushed_snapshots.pop(offset, None)
        path = self.snapshot_path(offset)
        if self._directory.exists(path):
            self._directory.remove(path)

    def retire_snapshot(self, offset: int, suffix: str) -> None:
        """Rename the snapshot of a deleted segment, with which it is removed later."""
        if offset not in self.snapshots:
            return
        self.snapshots.remove(offset)
        self.unflushed_snapshots.pop(offset, None)
        path = self.snapshot_path(offset)
        if self._directory.exists(path):
            self._directory.rename(path, path + suffix)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Load the newest snapshot at or below the end; the caller replays what lies between."""
        self._drop_snapshots(log_start_offset, log_end_offset)
        if log_end_offset != self.end_offset:
            self._clear()
            self.load(log_start_offset, now_ms)
        else:
            self.log_start_offset_advanced(log_start_offset)

    def _drop_snapshots(self, log_start_offset: int, log_end_offset: int) -> None:
        for offset in list(self.snapshots):
            if offset > log_end_offset or offset < log_start_offset:
                self.remove_snapshot(offset)

    def _clear(self) -> None:
        self.producers = {}
        self._recount()
        self.transactions = UnstableTransactions()

    def load(self, log_start_offset: int, now_ms: int) -> None:
        """Load the newest snapshot that can be read; without one begin at the log's start."""
        for offset in reversed(self.snapshots):
            entries = self._read_snapshot(offset)
            if entries is not None:
                self._restore(entries, now_ms - self.producer_id_expiration_ms)
                self._snapshot_offset = self._loaded_offset = self.end_offset = offset
                return
        self._loaded_offset = 0
        self._snapshot_offset = self.end_offset = log_start_offset

    def _read_snapshot(self, offset: int) -> Sequence[ProducerEntry] | None:
        entries = self.unflushed_snapshots.get(offset)
        if entries is not None:
            return entries
        try:
            return decode_snapshot(self._directory.read_file(self.snapshot_path(offset)))
        except CorruptMessage:
            self.damaged_snapshots.append(offset)
            return None

    def _restore(self, entries: Sequence[ProducerEntry], expired_at_ms: int) -> None:
        """Take the entries of a snapshot but those of expired producers."""
        self._owner = EntryOwner()
        for entry in entries:
            if entry.in_transaction or entry.last_timestamp > expired_at_ms:
                self.producers[entry.producer_id] = entry
        self._recount()
        for entry in sorted(entries, key=lambda entry: entry.transaction_first_offset):
            if entry.in_transaction:
                self.transactions.begin(entry.transaction_first_offset, entry.producer_id)

    def remove_damaged_snapshots(self) -> None:
        """Remove the files that could not be read."""
        for offset in self.damaged_snapshots:
            if offset in self.snapshots:
                self.remove_snapshot(offset)
        self.damaged_snapshots.clear()

    # Truncation

    def truncate_to(self, log_start_offset: int, offset: int, high_watermark: int) -> None:
        """Discard the state above offset; it is stale until `take_over`.

        A state without producers and transactions stays as it is; producers may expire before the
        marker of their last transaction is replicated. Until `take_over` no transaction ends, as
        far as readers see. Where a marker may be cut whose transaction is not among the unstable
        ones they see nothing: it is below the high watermark, or was when the state was loaded.
        """
        unstable = self.first_unstable_offset
        if offset < max(high_watermark, self._loaded_offset) and self._may_have_transactions():
            unstable = log_start_offset
        self._drop_snapshots(log_start_offset, offset)
        self._snapshot_offset = self.snapshots[-1] if self.snapshots else 0
        is_empty = not (self.producers or self.is_stale or self.transactions)
        is_empty = is_empty and self.end_offset >= offset
        self.end_offset = offset
        if is_empty:
            self.take_snapshot()
            return
        self.is_stale = True
        self._stale_unstable_offset = unstable
        self._discarded = self.producers or self._discarded
        self._clear()

    def _may_have_transactions(self) -> bool:
        if self.is_stale:
            return True
        return any(
            entry.in_transaction or entry.coordinator_epoch >= 0
            for entry in self.producers.values()
        )

    def take_discarded(self) -> dict[int, ProducerEntry]:
        """Return the producers before the truncation: freeing 100,000 takes 20 ms."""
        discarded, self._discarded = self._discarded, {}
        return discarded

    def copied_for_rebuild(self) -> PartitionProducers:
        """Return an empty state over the same snapshots and up to the same end, for a worker."""
        copy = PartitionProducers(
            self._directory,
            self._partition_dir,
            partition=self.partition,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
        )
        copy.snapshots = list(self.snapshots)
        copy.unflushed_snapshots = dict(self.unflushed_snapshots)
        copy.end_offset = self.end_offset
        return copy

    def take_over(self, rebuilt: PartitionProducers, high_watermark: int) -> None:
        """Continue with the state that a worker rebuilt."""
        self.is_stale = False
        self.producers = rebuilt.producers
        self._recount()
        self.transactions = rebuilt.transactions
        self._owner, self.end_offset = rebuilt._owner, rebuilt.end_offset
        self._loaded_offset = rebuilt._loaded_offset
        self.snapshots = rebuilt.snapshots
        self.unflushed_snapshots = rebuilt.unflushed_snapshots
        self.damaged_snapshots = rebuilt.damaged_snapshots
        self._snapshot_offset = rebuilt._snapshot_offset
        self.remove_damaged_snapshots()
        self.high_watermark_updated(high_watermark)

    def log_start_offset_advanced(self, log_start_offset: int) -> None:
        """Forget what lies before the log's new start."""
        self.high_watermark_updated(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)
        self._snapshot_offset = self.snapshots[-1] if self.snapshots else 0

    def entries_at(self, offset: int) -> Sequence[ProducerEntry]:
        """Return the entries of the snapshot at offset; none where it is missing or damaged."""
        return (self._read_snapshot(offset) or ()) if offset in self.snapshots else ()

    def snapshot_written(self, offset: int) -> None:
        """Take note of a snapshot that another one wrote."""
        if offset not in self.snapshots:
            insort(self.snapshots, offset)

    def adopt_snapshot(
        self, offset: int, entries: Sequence[ProducerEntry], now_ms: int, *, is_written: bool
    ) -> None:
        """Begin at offset with a snapshot, which the next flush writes if need be."""
        self.snapshots = [offset]
        if not is_written:
            self.unflushed_snapshots[offset] = entries
        self._restore(entries, now_ms - self.producer_id_expiration_ms)
        self._snapshot_offset = self._loaded_offset = self.end_offset = offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything."""
        self.is_stale = False
        self._clear()
        for snapshot in list(self.snapshots):
            self.remove_snapshot(snapshot)
        self._snapshot_offset = self._loaded_offset = 0
        self.end_offset = offset

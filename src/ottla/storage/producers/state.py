"""The producers of one log: duplicates, open transactions, the first unstable offset, snapshots.

State is a pure function of the log's batches: what is loaded from a snapshot and replayed up to
the end equals what was there before. A snapshot is named by the offset up to which it counts.

Kafka: org.apache.kafka.storage.internals.log.ProducerStateManager.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.validator import AppendOrigin
from ottla.storage.directory import join
from ottla.storage.producers.append import CompletedTransaction, ProducerAppend, Verification
from ottla.storage.producers.count import ProducerCount
from ottla.storage.producers.entry import ProducerEntry
from ottla.storage.producers.snapshot import SNAPSHOT_SUFFIX, decode_snapshot, encode_snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ottla.storage.directory import Directory


class ProducerState:
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
        self._snapshot_offset = 0  # of the last snapshot taken or loaded
        self.snapshots: list[int] = []
        self.unsynced_snapshots: list[int] = []
        self._ongoing: dict[int, int] = {}  # first offset → producer id, in order of offsets
        self._unreplicated: dict[int, int] = {}  # first offset → last offset, complete above the HW
        self._verifications: dict[int, Verification] = {}
        self._node_count = ProducerCount()
        self._counted = 0

    # The bound of all logs together

    def count_in(self, node_count: ProducerCount) -> None:
        """Let the producers here count among others; a fresh count takes them out again."""
        self._node_count.count -= self._counted
        self._node_count = node_count
        self._counted = 0
        self._recount()

    def _recount(self) -> None:
        """Tell the count what has come or gone; appends of known producers change nothing."""
        self._node_count.count += len(self.producers) - self._counted
        self._counted = len(self.producers)

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open or not replicated yet."""
        ongoing = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return ongoing
        unreplicated = min(self._unreplicated)
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset as it is once `completed` is complete."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """Close a transaction; it stays unstable until its marker is replicated."""
        del self._ongoing[completed.first_offset]
        self._unreplicated[completed.first_offset] = completed.last_offset

    def high_watermark_updated(self, high_watermark: int) -> None:
        """Let go of the transactions whose markers are replicated."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

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
        """Return the guard to append with once the coordinator agreed; None when not needed."""
        self.check_epoch(producer_id, producer_epoch)
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return None
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = self._verifications[producer_id] = Verification(
                now_ms, sequence, producer_epoch, supports_epoch_bump=supports_epoch_bump
            )
        verification.lower_to(sequence, producer_epoch)
        return verification

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse a producer that was fenced: it must not even ask the coordinator."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the "
                f"last seen epoch {entry.producer_epoch}",
            )

    def verification(self, producer_id: int) -> Verification | None:
        """Return the verification under way."""
        return self._verifications.get(producer_id)

    def end_verification(self, producer_id: int, *, producer_epoch: int, is_control: bool) -> None:
        """Forget the verification once its transaction began; a late marker of TV2 does not."""
        verification = self._verifications.get(producer_id)
        if verification is None:
            return
        late_marker = (
            verification.supports_epoch_bump
            and is_control
            and producer_epoch == verification.producer_epoch
        )
        if not late_marker:
            del self._verifications[producer_id]

    # Appends

    def prepare(self, producer_id: int, origin: AppendOrigin) -> ProducerAppend:
        """Return the validation of an append; POLICY_VIOLATION for one producer too many."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = ProducerEntry(producer_id)
            if origin is AppendOrigin.CLIENT:
                self._node_count.check_room(producer_id, self.partition)
        return ProducerAppend(
            self.partition, entry, origin=origin, verification=self._verifications.get(producer_id)
        )

    def apply(self, appends: Iterable[ProducerAppend]) -> None:
        """Make validated appends part of the state, after their bytes were written."""
        for append in appends:
            updated = append.updated
            entry = self.producers.get(updated.producer_id)
            if entry is None:
                self.producers[updated.producer_id] = updated
                self._recount()
            else:
                entry.set_epoch(updated.producer_epoch)
                for batch in updated.batches:
                    entry.add_batch(batch)
                entry.coordinator_epoch = updated.coordinator_epoch
                entry.last_timestamp = updated.last_timestamp
                entry.transaction_first_offset = updated.transaction_first_offset
            for first_offset in append.started:
                self._ongoing[first_offset] = updated.producer_id

    def remove_expired(self, now_ms: int) -> None:
        """Forget producers silent for producer.id.expiration.ms, and stale verifications."""
        limit = now_ms - self.producer_id_expiration_ms
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if not entry.in_transaction and entry.last_timestamp <= limit
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        self._recount()
        stale = [key for key, value in self._verifications.items() if value.timestamp <= limit]
        for producer_id in stale:
            del self._verifications[producer_id]

    # Snapshots

    def snapshot_path(self, offset: int) -> str:
        """Return the path of the snapshot at offset."""
        return join(self._partition_dir, f"{offset:020d}{SNAPSHOT_SUFFIX}")

    def moved(self, partition_dir: str) -> None:
        """Take note that the partition's directory was renamed."""
        self._partition_dir = partition_dir

    def take_snapshot(self) -> None:
        """Write the state at `end_offset`, not flushed, unless that was done already."""
        if self.end_offset <= self._snapshot_offset:
            return
        offset = self.end_offset
        file = self._directory.open(self.snapshot_path(offset), create=True)
        try:
            file.truncate(0)
            file.write_at(0, encode_snapshot(self.producers.values()))
        finally:
            file.close()
        if offset not in self.snapshots:
            insort(self.snapshots, offset)
        self.unsynced_snapshots.append(offset)
        self._snapshot_offset = offset

    def find_snapshots(self, names: Collection[str]) -> None:
        """Take up the snapshot files among the directory's names."""
        self.snapshots = sorted(
            int(name[: -len(SNAPSHOT_SUFFIX)])
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX) and name[: -len(SNAPSHOT_SUFFIX)].isdigit()
        )

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
        if offset in self.unsynced_snapshots:
            self.unsynced_snapshots.remove(offset)
        path = self.snapshot_path(offset)
        if self._directory.exists(path):
            self._directory.remove(path)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Go to the newest state at or below the end; the caller replays what lies between."""
        for offset in list(self.snapshots):
            if offset > log_end_offset or offset < log_start_offset:
                self.remove_snapshot(offset)
        if log_end_offset != self.end_offset:
            self._clear()
            self._load(log_start_offset, now_ms)
        else:
            self.log_start_offset_advanced(log_start_offset)

    def _clear(self) -> None:
        self.producers.clear()
        self._recount()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load(self, log_start_offset: int, now_ms: int) -> None:
        while self.snapshots:
            offset = self.snapshots[-1]
            try:
                entries = decode_snapshot(self._directory.read_file(self.snapshot_path(offset)))
            except CorruptMessage:
                self.remove_snapshot(offset)
                continue
            limit = now_ms - self.producer_id_expiration_ms
            for entry in entries:
                if entry.in_transaction or entry.last_timestamp > limit:
                    self.producers[entry.producer_id] = entry
            self._recount()
            open_entries = [entry for entry in entries if entry.in_transaction]
            for entry in sorted(open_entries, key=lambda entry: entry.transaction_first_offset):
                self._ongoing[entry.transaction_first_offset] = entry.producer_id
            self._snapshot_offset = self.end_offset = offset
            return
        self._snapshot_offset = self.end_offset = log_start_offset

    def log_start_offset_advanced(self, log_start_offset: int) -> None:
        """Forget what lies before the log's new start."""
        self.high_watermark_updated(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)
        self._snapshot_offset = self.snapshots[-1] if self.snapshots else 0

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything."""
        self._clear()
        for snapshot in list(self.snapshots):
            self.remove_snapshot(snapshot)
        self._snapshot_offset = 0
        self.end_offset = offset

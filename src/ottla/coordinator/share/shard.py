"""One partition of `__share_group_state` as a state machine.

The topic is not compacted; a share partition needs its last snapshot and the updates after it.

Kafka: org.apache.kafka.coordinator.share.ShareCoordinatorShard;
org.apache.kafka.coordinator.share.ShareCoordinatorOffsetsManager;
org.apache.kafka.coordinator.share.ShareCoordinatorConfig.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordinator.runtime.shard import Result, empty_result, sweep
from ottla.coordinator.share import state as records
from ottla.coordinator.share.state import (
    UNINITIALIZED_OFFSET,
    UNKNOWN_COUNT,
    ShareKey,
    ShareState,
    StateBatch,
    combine_batches,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records import share as schemas
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.coordinator.runtime import CoordinatorRecord, ShardEnvironment
    from ottla.timeline import SnapshotRegistry
    from ottla.types import Uuid

    HasPartition: TypeAlias = "Callable[[Uuid, int], bool]"


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """Each field's comment is its name in the broker's configuration; times in milliseconds."""

    num_partitions: int = 50  # share.coordinator.state.topic.num.partitions
    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    write_timeout_ms: int = 5_000  # share.coordinator.write.timeout.ms
    cold_snapshot_interval_ms: int = 300_000  # share.coordinator.cold.partition.snapshot…
    load_buffer_bytes: int = 5_242_880  # share.coordinator.load.buffer.size
    prune_interval_ms: int = 300_000  # share.coordinator.state.topic.prune.interval.ms


class _SnapshotOffsets:
    """The offset of each share partition's last snapshot, and of the last tombstone."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._offsets: TimelineDict[ShareKey, int] = TimelineDict(registry)
        self._deleted: TimelineDict[str, int] = TimelineDict(registry)

    def replay(self, key: ShareKey, offset: int, *, is_deleted: bool) -> None:
        """Record the offset of a snapshot, or of a tombstone."""
        if is_deleted:
            self._offsets.pop(key, None)
            self._deleted["last"] = offset
        else:
            self._offsets[key] = offset

    def redundant_before(self, epoch: int) -> int | None:
        """Return the offset below which the committed state needs no record; None for none."""
        offsets = self._offsets.at(epoch)
        lowest = min(offsets.values()) if offsets else self._deleted.at(epoch).get("last", 0)
        return lowest or None


_NO_EPOCH: Final = -1
_COLD_KEY: Final = "cold-snapshots"
_COLD_SLICE_KEY: Final = "more-cold-snapshots"
_EXAMINED_AT_ONCE: Final = 500
"""States examined between two yields, at less than 1 µs each."""
_DELETED_KEY: Final = "deleted-topics"
_READ_UNKNOWN = "Read operation on uninitialized share partition not allowed."
_WRITE_UNKNOWN = "Write operation on uninitialized share partition not allowed."


class StateChange(NamedTuple):
    """What the leader of a share partition writes; -1 leaves the start offset as it is."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class ShareShard:
    """Replayed: states, number of updates since the last snapshot. Soft: the timer of snapshots.

    A state's epochs never fall, and its snapshot has them: what fences earlier leaders is not lost
    with the records before the snapshot. Kafka's are, and it begins again with leader epoch 0.
    """

    is_compacted = False
    """Updates have one key and add to each other."""

    def __init__(
        self,
        environment: ShardEnvironment,
        config: ShareCoordinatorConfig,
        has_partition: HasPartition,
    ) -> None:
        registry = environment.registry
        self._config = config
        self._timers = environment.timers
        self._clock = environment.clock
        self._has_partition = has_partition
        self.states: TimelineDict[ShareKey, ShareState] = TimelineDict(registry)
        self._update_counts: TimelineDict[ShareKey, int] = TimelineDict(registry)
        """The updates since the last snapshot: pruning may remove all records before it."""
        self.snapshot_offsets = _SnapshotOffsets(registry)

    # ---------------------------------------------------------------- replay

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        """Apply one record."""
        del producer_id  # the topic has no transactions
        if isinstance(record.key, schemas.ShareSnapshotKey):
            value = record.value
            assert value is None or isinstance(value, schemas.ShareSnapshotValue)
            self._replay_snapshot(records.key_of(record.key), value, offset)
        else:
            assert isinstance(record.key, schemas.ShareUpdateKey)
            if isinstance(record.value, schemas.ShareUpdateValue):
                self._replay_update(records.key_of(record.key), record.value)

    def _replay_snapshot(
        self, key: ShareKey, value: schemas.ShareSnapshotValue | None, offset: int
    ) -> None:
        self.snapshot_offsets.replay(key, offset, is_deleted=value is None)
        if value is None:
            self.states.pop(key, None)
            self._update_counts.pop(key, None)
            return
        state, known = records.state_of(value), self.states.get(key)
        if known is not None:  # Kafka's snapshots may begin again with lower epochs
            state = replace(
                state,
                leader_epoch=max(state.leader_epoch, known.leader_epoch),
                state_epoch=max(state.state_epoch, known.state_epoch),
            )
        self.states[key] = state
        self._update_counts.pop(key, None)

    def _replay_update(self, key: ShareKey, value: schemas.ShareUpdateValue) -> None:
        self._update_counts[key] = self._update_counts.get(key, 0) + 1
        known = self.states.get(key) or ShareState(
            value.snapshot_epoch, 0, value.leader_epoch, value.start_offset, UNKNOWN_COUNT, (), 0, 0
        )
        start_offset = value.start_offset
        if start_offset == UNINITIALIZED_OFFSET:
            start_offset = known.start_offset
        self.states[key] = replace(
            known,
            start_offset=start_offset,
            leader_epoch=max(value.leader_epoch, known.leader_epoch),
            delivery_complete_count=value.delivery_complete_count,
            batches=combine_batches(
                known.batches, records.batches_of(value.state_batches), start_offset
            ),
        )

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Ignore markers: the topic has no transactions."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return the record's bytes."""
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Return the record of bytes; None for kinds not known here."""
        return records.decode(key, value)

    def on_loaded(self) -> Iterator[None]:
        """Schedule the snapshots of share partitions without writes."""
        self._schedule_snapshots()
        yield

    def on_unloaded(self) -> None:
        """Nothing waits in this shard."""

    def stalls(self, *, is_writing: bool) -> Iterator[str]:  # noqa: ARG002 - the protocol's
        """Yield a line where snapshots of share partitions without writes have ended."""
        if _COLD_KEY not in self._timers:
            yield "no timer takes snapshots of share partitions"

    # ---------------------------------------------------------------- operations

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Result[None]:
        """Begin a share partition, or begin it again: with a later state epoch, or at an offset.

        A request without a start offset that repeats the state epoch changes nothing: a delayed
        duplicate would discard what members have acknowledged since, as it does in Kafka.
        """
        _check_partition(key)
        known: ShareState | None = self.states.get(key)
        if known is not None and _NO_EPOCH != state_epoch < known.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        is_repeated = known is not None and known.state_epoch == state_epoch
        if is_repeated and start_offset == UNINITIALIZED_OFFSET:
            return Result(None)
        now_ms = self._clock.now_ms()
        state = ShareState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch if known is None else max(state_epoch, known.state_epoch),
            leader_epoch=0 if known is None else known.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=UNKNOWN_COUNT if start_offset == UNINITIALIZED_OFFSET else 0,
            batches=(),
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
        )
        return Result(None, [records.snapshot(key, state)])

    def read(self, key: ShareKey, leader_epoch: int) -> Result[ShareState]:
        """Return the state to the leader of an epoch, which fences earlier ones."""
        _check_partition(key)
        state = self._known(key, _READ_UNKNOWN)
        if leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_exists(key)
        if leader_epoch == state.leader_epoch:
            return Result(state)
        change = StateChange(
            state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, ()
        )
        new_epoch = state.leader_epoch if leader_epoch == _NO_EPOCH else leader_epoch
        return Result(state, [self._record(key, state, change, new_epoch)])

    def write(self, key: ShareKey, change: StateChange) -> Result[None]:
        """Apply a leader's change."""
        _check_partition(key)
        state = self._known(key, _WRITE_UNKNOWN)
        if _NO_EPOCH != change.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if _NO_EPOCH != change.state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        change = _without_step_back(state, change)
        return Result(None, [self._record(key, state, change, state.leader_epoch)])

    def summary(self, key: ShareKey) -> Result[ShareState | None]:
        """Return the state, None for a share partition that was never initialised."""
        _check_partition(key)
        self._check_exists(key)
        return Result(self.states.get(key))

    def delete(self, key: ShareKey) -> Result[None]:
        """Forget a share partition; one that is not known is deleted already."""
        _check_partition(key)
        self._check_exists(key)
        return Result(None, [records.tombstone(key)] if key in self.states else [])

    def forget_topics(self, topic_ids: Iterable[Uuid]) -> Result[None]:
        """Forget the share partitions of deleted topics, in slices."""
        deleted = frozenset(topic_ids)
        keys = [key for key in self.states if key.topic_id in deleted]
        self._timers.write_all((_DELETED_KEY, deleted), sweep(keys, self._forgotten))
        return empty_result()

    def _forgotten(self, key: ShareKey) -> tuple[list[CoordinatorRecord], float]:
        return [records.tombstone(key)] if key in self.states else [], 0

    def _known(self, key: ShareKey, problem: str) -> ShareState:
        state: ShareState | None = self.states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
        return state

    def _check_exists(self, key: ShareKey) -> None:
        if not self._has_partition(key.topic_id, key.partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _record(
        self, key: ShareKey, state: ShareState, change: StateChange, leader_epoch: int
    ) -> CoordinatorRecord:
        changed = replace(
            state,
            leader_epoch=leader_epoch,
            delivery_complete_count=change.delivery_complete_count,
        )
        if self._update_counts.get(key, 0) < self._config.updates_per_snapshot:
            batches = combine_batches((), change.batches, change.start_offset)
            return records.update(key, changed, change.start_offset, batches)
        start_offset = change.start_offset
        if start_offset == UNINITIALIZED_OFFSET:
            start_offset = state.start_offset
        now_ms = self._clock.now_ms()
        complete = replace(
            changed,
            snapshot_epoch=state.snapshot_epoch + 1,
            start_offset=start_offset,
            batches=combine_batches(state.batches, change.batches, start_offset),
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
        )
        return records.snapshot(key, complete)

    # ---------------------------------------------------------------- cold snapshots

    def _schedule_snapshots(self) -> None:
        interval_ms = self._config.cold_snapshot_interval_ms
        self._timers.schedule(_COLD_KEY, interval_ms, self._snapshot_cold, retry_ms=interval_ms)

    def _snapshot_cold(self) -> Result[None]:
        """Write snapshots again that are old, in slices, so that the log before them can be pruned.

        Not where all were written again since the last change: nothing would be gained.
        """
        self._schedule_snapshots()
        oldest_ms = self._clock.now_ms() - self._config.cold_snapshot_interval_ms
        self._timers.write_all(_COLD_SLICE_KEY, self._cold_slices(oldest_ms))
        return empty_result()

    def _cold_slices(self, oldest_ms: int) -> Iterator[list[CoordinatorRecord] | None]:
        """Yield the records of some snapshots, or None between two parts of the search."""
        keys: list[ShareKey] = []
        has_change = False
        for number, key in enumerate(list(self.states), 1):
            state: ShareState | None = self.states.get(key)
            if state is not None:
                has_change |= state.write_timestamp_ms == state.create_timestamp_ms
                if state.write_timestamp_ms <= oldest_ms:
                    keys.append(key)
            if number % _EXAMINED_AT_ONCE == 0:
                yield None
        if has_change:
            yield from sweep(keys, partial(self._cold, oldest_ms))

    def _cold(self, oldest_ms: int, key: ShareKey) -> tuple[list[CoordinatorRecord], float]:
        """Return the new snapshot of a state that is still old; each of its batches has a cost."""
        state: ShareState | None = self.states.get(key)
        if state is None or state.write_timestamp_ms > oldest_ms:
            return [], 0
        written = replace(
            state,
            snapshot_epoch=state.snapshot_epoch + 1,
            write_timestamp_ms=self._clock.now_ms(),
        )
        return [records.snapshot(key, written)], len(state.batches)


def _without_step_back(state: ShareState, change: StateChange) -> StateChange:
    """Return a change whose start offset is not before the known one.

    A leader has several writes under way; one that is sent again after a timeout arrives after
    later ones. Its start offset would take back what these have ended, and the next leader would
    deliver it again, as in Kafka.
    """
    if change.start_offset == UNINITIALIZED_OFFSET or change.start_offset >= state.start_offset:
        return change
    return change._replace(
        start_offset=state.start_offset, delivery_complete_count=state.delivery_complete_count
    )


def _check_partition(key: ShareKey) -> None:
    if key.partition < 0:
        text = "The partition id cannot be a negative number."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)

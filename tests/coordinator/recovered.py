"""Recovered state equals live state: all that a shard replays, and logs as a loader may find them.

The replayed state of a shard is what its timelines hold. They are found by looking through its
attributes, so that an index that is derived in a new way is compared without being named here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from ottla.coordinator.group.classic.group import SIMPLE
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.runtime import loader
from ottla.coordinator.runtime.active import ActivePartition, RuntimeEnvironment, ShardState
from ottla.coordinator.runtime.loader import MAX_READ_BYTES, LoadTimes
from ottla.coordinator.share.shard import ShareShard
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.records.batch import HEADER_BYTES, RecordBatch
from ottla.records.builder import encode_batch
from ottla.records.control import ControlRecordType, decode_control_type
from ottla.storage.cleaner.batch_filter import BatchFilter, KeyIndexer, LastRecord
from ottla.storage.cleaner.key_scan import KeyScan
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.transactions import CleanedTransactions
from ottla.storage.indexes.transaction_index import AbortedTransaction
from ottla.timeline import LATEST_EPOCH, TimelineDict, TimelineObject, TimelineSet
from tests.coordinator.harness import MemoryLog, loop_of
from tests.records.batch_changes import assign_offset

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ottla.coordinator.runtime.log import CoordinatorLog
    from ottla.coordinator.runtime.runtime import CoordinatorRuntime
    from ottla.coordinator.runtime.shard import Shard

_PACKAGE: Final = "ottla.coordinator."
_TIMELINES: Final = (TimelineDict, TimelineObject, TimelineSet)
_ENVIRONMENT: Final = "ottla.coordinator.runtime."
DELETE_RETENTION_MS: Final = 1_000


# ---------------------------------------------------------------- state


def replayed_state(shard: object, epoch: int = LATEST_EPOCH) -> dict[str, Any]:
    """Return the contents of all timelines of a shard at an epoch, by the path of attributes."""
    found: dict[str, Any] = {}
    _collect(shard, "", found, {id(shard)}, epoch)
    return _comparable(shard, found)


def _collect(
    owner: object, path: str, found: dict[str, Any], seen: set[int], epoch: int
) -> dict[str, Any]:
    for name, value in _attributes(owner):
        place = f"{path}.{name}" if path else name
        if isinstance(value, _TIMELINES):
            if id(value) not in seen:
                seen.add(id(value))
                found[place] = _content(value, epoch)
        elif _is_part(value) and id(value) not in seen:
            seen.add(id(value))
            _collect(value, place, found, seen, epoch)
    return found


def _attributes(owner: object) -> list[tuple[str, Any]]:
    names = dict.fromkeys(
        name for kind in type(owner).__mro__ for name in vars(kind).get("__slots__", ())
    )
    names.update(dict.fromkeys(getattr(owner, "__dict__", ())))
    return [(name, getattr(owner, name)) for name in names if hasattr(owner, name)]


def _is_part(value: object) -> bool:
    """Whether it is an object of a coordinator that may have timelines; plain values are not."""
    module = type(value).__module__
    return (
        module.startswith(_PACKAGE)
        and not module.startswith(_ENVIRONMENT)
        and not isinstance(value, tuple)
        and not callable(value)
    )


def _content(value: Any, epoch: int) -> Any:
    """Return a plain copy of a timeline, and of what is built of timelines in it."""
    if isinstance(value, TimelineDict):
        return {key: _content(one, epoch) for key, one in value.at(epoch).items()}
    if isinstance(value, TimelineSet):
        return set(value.at(epoch))
    if isinstance(value, TimelineObject):
        return _content(value.at(epoch), epoch)
    if _is_part(value):
        inside = _collect(value, "", {}, {id(value)}, epoch)
        return inside or value
    return value


def _comparable(shard: object, found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is soft although it stands among what is replayed; each has its reason."""
    if isinstance(shard, TransactionShard):
        # the epoch before the last bump is no part of the record, as in Kafka
        found["transactions"] = {
            name: one._replace(last_epoch=-1) for name, one in found["transactions"].items()
        }
    elif isinstance(shard, ShareShard):
        # the last tombstone bounds the pruning of a log without states, which may have removed it
        del found["snapshot_offsets._deleted"]
    elif isinstance(shard, GroupShard):
        # a simple group is its offsets; without any it stays until its tombstone, or a failover
        offsets = {*found["groups.offsets.by_group"], *found["groups.offsets._stagers"]}
        found["groups.by_id"] = {
            group_id: group
            for group_id, group in found["groups.by_id"].items()
            if group is not SIMPLE or group_id in offsets
        }
        for group in found["groups.by_id"].values():
            if isinstance(group, dict) and "_state_partitions" in group:
                group["_state_partitions"] = _without_times(group["_state_partitions"])
    return found


def _without_times(partitions: Any) -> Any:
    """Leave out since when a share partition is being initialised: after a load it begins again.

    The offset since when says, too, that what was asked before the load is asked again.
    """
    if partitions is None:
        return None
    sides = {
        side: {key: replace(one, timestamp_ms=0) for key, one in getattr(partitions, side).items()}
        for side in ("initializing", "initialized")
    }
    return replace(partitions, since=dict.fromkeys(partitions.since, 0), **sides)


def differences(live: Any, loaded: Any, path: str = "") -> list[str]:
    """Say where two states differ."""
    if live == loaded:
        return []
    if isinstance(live, dict) and isinstance(loaded, dict):
        absent = object()
        return [
            text
            for key in dict.fromkeys((*live, *loaded))
            for text in differences(
                live.get(key, absent), loaded.get(key, absent), f"{path}[{key!r}]"
            )
        ]
    return [f"{path}: live {_shown(live)}, loaded {_shown(loaded)}"]


def _shown(value: object) -> str:
    return "nothing" if type(value) is object else repr(value)[:300]


# ---------------------------------------------------------------- loading


def load(
    runtime: CoordinatorRuntime[Any], log: CoordinatorLog, partition: int, rng: Random | None = None
) -> Any:
    """Return a shard of a runtime's kind that has loaded a log; with rng in runs of any length.

    The followers catch up when all is read, and nothing of the last run is replayed.
    """
    clock = runtime._environment.loop.clock  # another shard in the same surroundings
    timer = TimingWheel(clock.monotonic_ms())
    environment = RuntimeEnvironment(
        log, loop_of(timer, clock), 0, _fail, "recovered", MAX_READ_BYTES
    )
    active = ActivePartition(partition, 0, environment, runtime._make_shard, LoadTimes())
    active._high_watermark = 0
    shard, loading = active.shard, active._loader
    with (
        mock.patch.object(loader, "MAX_KEYS", loader.MAX_KEYS if rng is None else _run(rng)),
        mock.patch.object(
            loader, "WALKED_AT_ONCE", loader.WALKED_AT_ONCE if rng is None else _run(rng)
        ),
        mock.patch.object(
            loader, "REPLAYED_IN_A_ROW", loader.REPLAYED_IN_A_ROW if rng is None else _run(rng)
        ),
        mock.patch.object(type(shard), "on_loaded", return_value=iter(())),
    ):
        for _ in active._load():
            if loading.position >= loading.target:
                active.on_high_watermark(loading.target)
        active.on_high_watermark(loading.target)
        assert active.state is ShardState.ACTIVE
    return shard


def _fail(error: Exception) -> None:
    raise error


def _run(rng: Random) -> int:
    return rng.choice((1, 2, 3, 5, 10, 30, 100_000))


# ---------------------------------------------------------------- logs


@dataclass(slots=True)
class Transactions:
    """What a log says of its transactions."""

    aborted: list[AbortedTransaction]
    last_records: dict[int, LastRecord]
    first_unstable: int

    @classmethod
    def of(cls, batches: Iterable[RecordBatch], end_offset: int) -> Transactions:
        """Read the batches of a log."""
        opened: dict[int, int] = {}
        found = cls([], {}, end_offset)
        for batch in batches:
            if batch.producer_id < 0:
                continue
            last = found.last_records.get(batch.producer_id, LastRecord(-1, -1))
            if batch.is_control:
                first = opened.pop(batch.producer_id, None)
                kinds = [decode_control_type(one.key) for one in batch.records()]
                if first is not None and ControlRecordType.ABORT in kinds:
                    aborted = AbortedTransaction(
                        batch.producer_id, first, batch.base_offset, batch.base_offset
                    )
                    found.aborted.append(aborted)
            else:
                if batch.record_count:  # an emptied one keeps a sequence only
                    opened.setdefault(batch.producer_id, batch.base_offset)
                last = last._replace(last_data_offset=batch.next_offset - 1)
            found.last_records[batch.producer_id] = last._replace(
                producer_epoch=batch.producer_epoch
            )
        found.first_unstable = min(opened.values(), default=end_offset)
        return found


def compacted(log: MemoryLog, rng: Random, partition: int = 0) -> MemoryLog:
    """Return a log after the cleaner came by at random times, up to random offsets."""
    batches, now_ms = list(log.batches.get(partition, ())), 0
    parsed = [RecordBatch(one) for one in batches]
    transactions = Transactions.of(parsed, log.end_offset(partition))
    ends = [one.next_offset for one in parsed if one.next_offset <= transactions.first_unstable]
    end_offset = 0
    for _ in range(rng.randint(1, 3)):
        end_offset = max(end_offset, rng.choice(ends)) if ends else 0
        batches = _cleaned(batches, transactions, end_offset, now_ms)
        now_ms += rng.choice((0, DELETE_RETENTION_MS, 2 * DELETE_RETENTION_MS))
    return _log_of(batches, log, partition)


def _cleaned(
    batches: list[bytes], transactions: Transactions, end_offset: int, now_ms: int
) -> list[bytes]:
    """Clean what lies below an offset, with the broker's own cleaner."""
    below = [one for one in batches if RecordBatch(one).next_offset <= end_offset]
    view = memoryview(b"".join(below))
    scan = KeyScan(
        OffsetMap(1 << 16, 0.9, seed=0), now_ms=now_ms, horizon_ms=now_ms + DELETE_RETENTION_MS
    )
    KeyIndexer(scan, CleanedTransactions(transactions.aborted), start_offset=0).index(view)
    batch_filter = BatchFilter(
        scan,
        CleanedTransactions(transactions.aborted),
        transactions.last_records,
        now_ms=now_ms,
        upper_offset=end_offset,
    )
    data = b"".join(bytes(one) for one in batch_filter.filter(view).buffers)
    return [*split_batches(data), *batches[len(below) :]]


def split_batches(data: bytes) -> list[bytes]:
    """Return the batches of a log's bytes."""
    batches = []
    while data:
        size = 12 + int.from_bytes(data[8:12])
        assert size >= HEADER_BYTES
        batches.append(data[:size])
        data = data[size:]
    return batches


def with_other_batches(log: MemoryLog, rng: Random, partition: int = 0) -> MemoryLog:
    """Return a log whose records outside transactions stand in batches of their own."""
    batches: list[bytes] = []
    for data in log.batches.get(partition, ()):
        batch = RecordBatch(data)
        if batch.is_control or batch.is_transactional or rng.random() < 0.5:
            batches.append(data)
            continue
        for record in batch.records():
            entry = (record.timestamp, record.key, record.value, ())
            alone = encode_batch([entry], leader_epoch=batch.leader_epoch)
            header = RecordBatch(memoryview(alone))
            assign_offset(header, record.offset, batch.leader_epoch)
            batches.append(bytes(alone))
    return _log_of(batches, log, partition)


def _log_of(batches: list[bytes], source: MemoryLog, partition: int) -> MemoryLog:
    copy = MemoryLog()
    copy.batches[partition] = batches
    copy.high_watermarks[partition] = source.end_offset(partition)
    copy.end_offsets[partition] = source.end_offset(partition)
    copy.start_offsets.update(source.start_offsets)
    return copy


def check(
    runtime: CoordinatorRuntime[Any], shard: Shard, log: MemoryLog, rng: Random, *, compacts: bool
) -> list[str]:
    """Return where the live shard differs from those that load its log, in several ways."""
    live = replayed_state(shard)
    variants = {"whole": log, "batches": with_other_batches(log, rng)}
    if compacts:
        variants["compacted"] = compacted(log, rng)
        variants["compacted twice"] = compacted(variants["compacted"], rng)
    for name, variant in variants.items():
        loaded = replayed_state(load(runtime, variant, 0, rng))
        if found := differences(live, loaded):
            return [f"{name}: {text}" for text in found]
    return []

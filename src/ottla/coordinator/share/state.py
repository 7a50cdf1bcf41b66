"""The state of a share partition, merges of its batches, and its records.

Overlapping batches are cut. Of two states of a record the one with more deliveries counts; with
equally many, the higher state.

A key is the kind of record (int16: 0 snapshot, 1 update) and a message of version 0; a value is its
version (int16) and a message of that version.

Kafka: org.apache.kafka.coordinator.share.ShareGroupOffset, SharePartitionKey,
PersisterStateBatch; org.apache.kafka.coordinator.share.PersisterStateBatchCombiner;
ShareCoordinatorRecordHelpers, ShareCoordinatorRecordSerde.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.runtime import CoordinatorRecord
from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.records import share as schemas
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from ottla.protocol.schema import Struct


UNINITIALIZED_OFFSET: Final = -1
"""The start offset before a leader has looked at its log."""
UNKNOWN_COUNT: Final = -1


class ShareKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        return f"{self.group_id}:{self.topic_id}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the form of FindCoordinator's keys; ValueError for another one."""
        group_id, topic_id, partition = text.rsplit(":", 2)
        if not group_id.strip():
            raise ValueError(f"{text!r} has no group")
        return cls(group_id, Uuid.parse(topic_id), int(partition))


class StateBatch(NamedTuple):
    """Consecutive records in one state after the same number of deliveries."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """A snapshot with the updates since; timestamps are those of the snapshot."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    create_timestamp_ms: int
    write_timestamp_ms: int


def combine_batches(
    known: Iterable[StateBatch], added: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return all batches in order and without overlaps, none below start_offset."""
    remaining = sorted({part for batch in (*known, *added) for part in _from(batch, start_offset)})
    combined: list[StateBatch] = []
    while remaining:
        batch = remaining.pop(0)
        previous = combined[-1] if combined else None
        if previous is None or not _touch(previous, batch):
            combined.append(batch)
            continue
        combined.pop()
        for part in _merge(previous, batch):
            # Searched for: thousands of records of a partition may be in flight, each with a state.
            place = bisect_left(remaining, part)
            if place == len(remaining) or remaining[place] != part:
                remaining.insert(place, part)
    return tuple(combined)


def _from(batch: StateBatch, start_offset: int) -> tuple[StateBatch, ...]:
    """Return the part of a batch that is not below start_offset, if any."""
    if start_offset == UNINITIALIZED_OFFSET or batch.first_offset >= start_offset:
        return (batch,)
    return () if batch.last_offset < start_offset else (batch._replace(first_offset=start_offset),)


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _touch(previous: StateBatch, batch: StateBatch) -> bool:
    """Whether two batches overlap, or follow each other in the same state."""
    if batch.first_offset <= previous.last_offset:
        return True
    return batch.first_offset == previous.last_offset + 1 and _rank(previous) == _rank(batch)


def _merge(previous: StateBatch, batch: StateBatch) -> list[StateBatch]:
    """Return the parts of two batches that overlap or touch; previous begins first."""
    if _rank(previous) == _rank(batch):
        return [previous._replace(last_offset=max(previous.last_offset, batch.last_offset))]
    parts = []
    if _rank(batch) > _rank(previous):
        if previous.first_offset < batch.first_offset:
            parts.append(previous._replace(last_offset=batch.first_offset - 1))
        parts.append(batch)
        if previous.last_offset > batch.last_offset:
            parts.append(previous._replace(first_offset=batch.last_offset + 1))
        return parts
    parts.append(previous)
    if batch.last_offset > previous.last_offset:
        parts.append(batch._replace(first_offset=previous.last_offset + 1))
    return parts


_INT16 = Layout(">h")
_SCHEMAS: Final[dict[int, tuple[type[Struct], type[Struct]]]] = {
    0: (schemas.ShareSnapshotKey, schemas.ShareSnapshotValue),
    1: (schemas.ShareUpdateKey, schemas.ShareUpdateValue),
}
_KINDS = {key_class: kind for kind, (key_class, _) in _SCHEMAS.items()}


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the bytes of key and value."""
    key = _INT16.pack(_KINDS[type(record.key)]) + codec.to_bytes(record.key, 0)
    if record.value is None:
        return key, None
    return key, _INT16.pack(record.value_version) + codec.to_bytes(
        record.value, record.value_version
    )


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Return the record; None for kinds not known here. Raises CorruptMessage."""
    kind = _prefix(key)
    if kind not in _SCHEMAS:
        return None
    key_class, value_class = _SCHEMAS[kind]
    decoded_key = codec.decode(key_class, 0, memoryview(key)[2:])
    if value is None:
        return CoordinatorRecord(decoded_key)
    version = _prefix(value)
    decoded = codec.decode(value_class, version, memoryview(value)[2:])
    return CoordinatorRecord(decoded_key, decoded, version)


def _prefix(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise CorruptMessage("a coordinator record ends before its version")
    number: int = _INT16.unpack_from(data)[0]
    return number


def snapshot(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    """Return the record of a complete state."""
    value = schemas.ShareSnapshotValue
    return CoordinatorRecord(
        schemas.ShareSnapshotKey(**key._asdict()),
        value(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.create_timestamp_ms,
            write_timestamp=state.write_timestamp_ms,
            state_batches=[value.StateBatch(**batch._asdict()) for batch in state.batches],
        ),
    )


def update(
    key: ShareKey, state: ShareState, start_offset: int, batches: Iterable[StateBatch]
) -> CoordinatorRecord:
    """Return the record of a change: the epochs and the count of state, and these batches."""
    value = schemas.ShareUpdateValue
    return CoordinatorRecord(
        schemas.ShareUpdateKey(**key._asdict()),
        value(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=[value.StateBatch(**batch._asdict()) for batch in batches],
        ),
    )


def tombstone(key: ShareKey) -> CoordinatorRecord:
    """Return the record that forgets a share partition."""
    return CoordinatorRecord(schemas.ShareSnapshotKey(**key._asdict()))


def key_of(key: schemas.ShareSnapshotKey | schemas.ShareUpdateKey) -> ShareKey:
    """Return the share partition of a record."""
    return ShareKey(key.group_id, key.topic_id, key.partition)


def state_of(value: schemas.ShareSnapshotValue) -> ShareState:
    """Return the state in a snapshot."""
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        batches_of(value.state_batches),
        value.create_timestamp,
        value.write_timestamp,
    )


def batches_of(
    batches: Iterable[schemas.ShareSnapshotValue.StateBatch | schemas.ShareUpdateValue.StateBatch],
) -> tuple[StateBatch, ...]:
    """Return the batches of a record."""
    return tuple(
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in batches
    )

"""The records of `__share_group_state` and their encoding.

Kafka: ShareCoordinatorRecordHelpers, ShareCoordinatorRecordSerde.

A key is the kind of record (int16: 0 snapshot, 1 update) and a message of version 0; a value is its
version (int16) and a message of that version.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.share.state import ShareKey, ShareState, StateBatch
from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.records import share as schemas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.protocol.schema import Struct

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
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in batches
    )

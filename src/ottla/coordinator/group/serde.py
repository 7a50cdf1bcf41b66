"""The records of `__consumer_offsets` as bytes.

A key is the number of the record's type (int16) and a message of version 0; a value is its version
(int16) and a message of that version.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.classic.records import RECORD_TYPES as CLASSIC_RECORDS
from ottla.coordinator.group.group_kind import RecordType
from ottla.coordinator.group.groups import KINDS
from ottla.coordinator.group.offsets import records as offset_records
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.records import group as schemas

if TYPE_CHECKING:
    from ottla.coordinator.group.groups import Kinds

_INT16: Final = Layout(">h")
_OFFSET_RECORDS: Final = (
    RecordType(0, schemas.LegacyOffsetCommitKey, schemas.LegacyOffsetCommitValue),
    RecordType(1, schemas.OffsetCommitKey, schemas.OffsetCommitValue),
)
_OFFSET_NUMBERS: Final = (0, 1)


class RecordSerde:
    """Encodes and decodes the records of some kinds of groups, of classic ones, and of offsets."""

    def __init__(self, kinds: Kinds = KINDS) -> None:
        types = [record for kind in kinds for record in kind.record_types()]
        self._types = {
            record.number: record for record in (*_OFFSET_RECORDS, *CLASSIC_RECORDS, *types)
        }
        self._numbers = {record.key: number for number, record in self._types.items()}

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return the bytes of key and value."""
        key, value, version = record
        if type(key) is offset_records.OffsetKey:
            return offset_records.encode(key, value, version)
        stored_key = _INT16.pack(self._numbers[type(key)]) + codec.to_bytes(key, 0)
        if value is None:
            return stored_key, None
        return stored_key, _INT16.pack(version) + codec.to_bytes(value, version)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Return the record; None for types not known here. Raises CorruptMessage."""
        record = self._types.get(_prefix(key))
        if record is None:
            return None
        decoded_key = codec.decode(record.key, 0, memoryview(key)[2:])
        decoded_value, version = None, 0
        if value is not None:
            version = _prefix(value)
            decoded_value = codec.decode(record.value, version, memoryview(value)[2:])
        if record.number in _OFFSET_NUMBERS:
            return offset_records.from_messages(decoded_key, decoded_value)
        return CoordinatorRecord(decoded_key, decoded_value, version)


def _prefix(data: bytes) -> int:
    if len(data) < 2:
        raise CorruptMessage("a coordinator record ends before its version")
    number: int = _INT16.unpack_from(data)[0]
    return number

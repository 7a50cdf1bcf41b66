"""Control records of the metadata log: encoding and decoding.

Kafka: org.apache.kafka.common.record.ControlRecordUtils, org.apache.kafka.raft.ControlRecord.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.errors import CorruptMessage
from ottla.protocol.codec import decode, to_bytes
from ottla.protocol.records.raft import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.records.raft import Voter as LeaderChangeVoter
from ottla.records.control import ControlRecordType, decode_control_type, encode_control_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.raft.voter_set import VoterSet
    from ottla.records.record import Record

ControlMessage: TypeAlias = (
    LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)

_CLASSES: Final[dict[ControlRecordType, type[ControlMessage]]] = {
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}
_TYPES: Final = {found: kind for kind, found in _CLASSES.items()}


def encode_control_messages(
    messages: Sequence[ControlMessage], *, base_offset: int, leader_epoch: int, timestamp: int
) -> bytearray:
    """Return one control batch; timestamp in ms. All messages are written as version 0."""
    return encode_control_batch(
        [(_TYPES[type(message)], to_bytes(message, 0)) for message in messages],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def decode_control_message(record: Record) -> ControlMessage:
    """Read a control record of the metadata log or of a snapshot; CorruptMessage for others."""
    kind = decode_control_type(record.key)
    found = _CLASSES.get(kind)
    if found is None or record.value is None:
        raise CorruptMessage(f"a control record of type {kind.name} is not valid here")
    version = 0
    if found is LeaderChangeMessage and len(record.value) >= 2:
        version = min(int.from_bytes(record.value[:2], "big", signed=True), 1)
    return decode(found, max(version, 0), record.value)


def leader_change(leader_id: int, voters: VoterSet, granting: Iterable[int]) -> LeaderChangeMessage:
    """Return the first record of an epoch, with those that voted for its leader."""
    return LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter.voter_id) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=one) for one in sorted(granting)],
    )

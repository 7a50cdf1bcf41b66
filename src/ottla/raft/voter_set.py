"""The voters, their history by offset, and the control records that carry them.

A record is in force as soon as it is in the log, and no longer once it is truncated; a snapshot
names those in force at its end.

Kafka: org.apache.kafka.raft.VoterSet; org.apache.kafka.raft.internals.{VoterSetHistory,
KRaftVersionHistory}; org.apache.kafka.common.record.ControlRecordUtils,
org.apache.kafka.raft.ControlRecord.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

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
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ottla.records.record import Record


class VoterAddress(NamedTuple):
    """An address of a voter on one controller listener."""

    listener_name: str
    host: str
    port: int


def address_on(endpoints: Iterable[VoterAddress], listener: str) -> tuple[str, int] | None:
    """Return host and port of the endpoint on a listener, None when there is none."""
    for end in endpoints:
        if end.listener_name == listener:
            return end.host, end.port
    return None


class Voter(NamedTuple):
    """One voter; without a directory id (static voters) any of its directories is valid."""

    voter_id: int
    directory_id: Uuid = ZERO_UUID
    endpoints: tuple[VoterAddress, ...] = ()
    lowest_kraft_version: int = 0
    highest_kraft_version: int = 1


class VoterSet:
    """An immutable set of voters by id."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._voters = {voter.voter_id: voter for voter in voters}

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    __hash__ = None  # type: ignore[assignment]  # equality by content, never a key

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())})"

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self._voters) // 2 + 1

    def get(self, voter_id: int) -> Voter | None:
        """Return the voter with this id."""
        return self._voters.get(voter_id)

    def is_voter(self, voter_id: int, directory_id: Uuid) -> bool:
        """Whether this node with this directory is a voter: a reformatted directory is not."""
        voter = self._voters.get(voter_id)
        if voter is None:
            return False
        return not voter.directory_id or voter.directory_id == directory_id

    def to_record(self) -> VotersRecord:
        """Return this set as a control record."""
        struct: Any = VotersRecord.Voter
        return VotersRecord(
            version=0,
            voters=[
                struct(
                    voter_id=voter.voter_id,
                    voter_directory_id=voter.directory_id,
                    endpoints=[
                        struct.Endpoint(name=name, host=host, port=port)
                        for name, host, port in voter.endpoints
                    ],
                    kraft_version_feature=struct.KRaftVersionFeature(
                        min_supported_version=voter.lowest_kraft_version,
                        max_supported_version=voter.highest_kraft_version,
                    ),
                )
                for voter in self
            ],
        )


def voter_set_of(record: VotersRecord) -> VoterSet:
    """Return the set of a control record."""
    voters: list[Any] = list(record.voters)
    return VoterSet(
        Voter(
            voter.voter_id,
            voter.voter_directory_id,
            tuple(VoterAddress(end.name, end.host, end.port) for end in voter.endpoints),
            voter.kraft_version_feature.min_supported_version,
            voter.kraft_version_feature.max_supported_version,
        )
        for voter in voters
    )


_BEFORE_THE_LOG = -1


class QuorumDescription(NamedTuple):
    """The voters and kraft.version from an offset on."""

    offset: int
    voters: VoterSet
    kraft_version: int


class VoterHistory:
    """Knows the voters at each offset of the log."""

    __slots__ = ("_entries", "configured")

    def __init__(self, voters: VoterSet, kraft_version: int = 0) -> None:
        """Begin with the configured voters, or with those of the first snapshot."""
        self.configured = voters
        """Those of controller.quorum.voters, for a log that names none."""
        self._entries = [QuorumDescription(_BEFORE_THE_LOG, voters, kraft_version)]

    @property
    def latest(self) -> VoterSet:
        """The voters at the end of the log, which are in force."""
        return self._entries[-1].voters

    @property
    def kraft_version(self) -> int:
        """The kraft.version at the end of the log."""
        return self._entries[-1].kraft_version

    @property
    def is_in_log(self) -> bool:
        """Whether the log or a snapshot of it holds the voters."""
        return self._entries[-1].offset > _BEFORE_THE_LOG

    @property
    def latest_offset(self) -> int:
        """The offset of the newest record, -1 for none."""
        return self._entries[-1].offset

    def at(self, end_offset: int) -> QuorumDescription:
        """Return what the records below an offset say."""
        return next(entry for entry in reversed(self._entries) if entry.offset < max(end_offset, 0))

    def apply(self, offset: int, message: ControlMessage) -> None:
        """Take a control record of the log; others than voters and version change nothing."""
        last = self._entries[-1]
        if isinstance(message, VotersRecord):
            self._add(QuorumDescription(offset, voter_set_of(message), last.kraft_version))
        elif isinstance(message, KRaftVersionRecord):
            self._add(QuorumDescription(offset, last.voters, message.kraft_version))

    def _add(self, entry: QuorumDescription) -> None:
        assert entry.offset >= self._entries[-1].offset, "control records come in order"
        self._entries.append(entry)

    def truncate(self, end_offset: int) -> None:
        """Forget the records at and above the log's new end."""
        first = self._entries[0].offset
        assert end_offset > first, (
            f"the log is truncated to {end_offset}; the records up to {first} are committed"
        )
        while self._entries[-1].offset >= end_offset:
            self._entries.pop()

    def restart(self, end_offset: int, voters: VoterSet, kraft_version: int) -> None:
        """Take what a snapshot says that the log begins with now."""
        self._entries = [QuorumDescription(end_offset - 1, voters, kraft_version)]

    def trim(self, start_offset: int) -> None:
        """Forget what is older than the records in force at the log's new start."""
        first = max(
            number
            for number, entry in enumerate(self._entries)
            if number == 0 or entry.offset < start_offset
        )
        del self._entries[:first]


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
    message_class = _CLASSES.get(kind)
    if message_class is None or record.value is None:
        raise CorruptMessage(f"a control record of type {kind.name} is not valid here")
    version = 0
    if message_class is LeaderChangeMessage and len(record.value) >= 2:
        version = min(int.from_bytes(record.value[:2], "big", signed=True), 1)
    return decode(message_class, max(version, 0), record.value)


def leader_change(leader_id: int, voters: VoterSet, granting: Iterable[int]) -> LeaderChangeMessage:
    """Return the first record of an epoch, with those that voted for its leader."""
    return LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter.voter_id) for voter in voters],
        granting_voters=[LeaderChangeVoter(voter_id=voter_id) for voter_id in sorted(granting)],
    )

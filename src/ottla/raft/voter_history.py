"""The voters and kraft.version by offset, from the control records of log and snapshot.

A record is in force as soon as it is in the log, and no longer once it is truncated; a snapshot
names those in force at its end. Kafka: org.apache.kafka.raft.internals.{VoterSetHistory,
KRaftVersionHistory}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.records.raft import KRaftVersionRecord, VotersRecord
from ottla.raft.voter_set import VoterSet, voter_set_of

if TYPE_CHECKING:
    from ottla.raft.control_records import ControlMessage

BEFORE_THE_LOG = -1


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
        self._entries = [QuorumDescription(BEFORE_THE_LOG, voters, kraft_version)]

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
        return self._entries[-1].offset > BEFORE_THE_LOG

    @property
    def latest_offset(self) -> int:
        """The offset of the newest record, -1 for none."""
        return self._entries[-1].offset

    def at(self, end_offset: int) -> QuorumDescription:
        """Return what the records below an offset say."""
        return next(one for one in reversed(self._entries) if one.offset < max(end_offset, 0))

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

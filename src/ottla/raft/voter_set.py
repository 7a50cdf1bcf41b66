"""The voters with their endpoints and directory ids.

Kafka: org.apache.kafka.raft.VoterSet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.protocol.records.raft import VotersRecord
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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

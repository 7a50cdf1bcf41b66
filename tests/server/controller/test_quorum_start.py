"""Which quorums a controller takes part in."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.requests import ReplicaKey
from ottla.raft.voter_set import Voter, VoterSet
from ottla.server.controller.quorum_start import check_voters
from ottla.types import Uuid

DISK = Uuid(b"d" * 16)


@pytest.mark.parametrize(
    "voters",
    [
        VoterSet([Voter(2)]),
        VoterSet([Voter(1, Uuid(b"e" * 16))]),
        VoterSet([Voter(1), Voter(2)]),
    ],
    ids=["not a voter", "another disk", "more than one"],
)
def test_a_quorum_it_cannot_serve_is_refused(voters: VoterSet) -> None:
    """A voter with another disk has lost its vote; several voters are not served yet."""
    with pytest.raises(KafkaError) as caught:
        check_voters(voters, ReplicaKey(1, DISK))
    assert caught.value.code == ErrorCode.INCONSISTENT_VOTER_SET


def test_a_lone_voter_with_its_disk_is_served() -> None:
    """The disk's id matters only where the voters name one."""
    check_voters(VoterSet([Voter(1, DISK)]), ReplicaKey(1, DISK))
    check_voters(VoterSet([Voter(1)]), ReplicaKey(1, DISK))

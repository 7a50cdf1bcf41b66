"""Which quorums a controller takes part in."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.requests import ReplicaKey
from ottla.raft.voter_set import Voter, VoterSet
from ottla.server.controller.controller_node import check_voters
from ottla.types import Uuid

DISK = Uuid(b"d" * 16)


@pytest.mark.parametrize(
    "voters",
    [
        VoterSet([Voter(1, Uuid(b"e" * 16))]),
    ],
    ids=["another disk"],
)
def test_a_quorum_that_only_a_lost_disk_could_lead_is_refused(voters: VoterSet) -> None:
    """Without this error the node would wait for ever."""
    with pytest.raises(KafkaError) as caught:
        check_voters(voters, ReplicaKey(1, DISK))
    assert caught.value.code == ErrorCode.INCONSISTENT_VOTER_SET


def test_others_are_served() -> None:
    """The disk's id matters only where the voters name one; an observer has no vote."""
    check_voters(VoterSet([Voter(2)]), ReplicaKey(1, DISK))
    check_voters(VoterSet([Voter(1, Uuid(b"e" * 16)), Voter(2)]), ReplicaKey(1, DISK))
    check_voters(VoterSet([Voter(1, DISK)]), ReplicaKey(1, DISK))
    check_voters(VoterSet([Voter(1)]), ReplicaKey(1, DISK))

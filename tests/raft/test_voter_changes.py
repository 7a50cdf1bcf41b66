"""Why voters are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.raft.voter_changes import check_addition, check_removal
from ottla.raft.voter_set import Voter, VoterSet
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

OWN, OTHER = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")
VOTERS = VoterSet([Voter(1, OWN)])
LISTENER = AddRaftVoterRequest.Listener(name="CONTROLLER", host="h", port=9)


def add(
    voter_id: int = 2,
    directory_id: Uuid = OTHER,
    *,
    cluster_id: str | None = None,
    listener: str = "CONTROLLER",
    kraft_version: int = 1,
) -> None:
    """Ask for a voter of cluster `c`."""
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=1,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[LISTENER],
    )
    check_addition(request, VOTERS, cluster_id="c", kraft_version=kraft_version, listener=listener)


def remove(
    voter_id: int = 1,
    directory_id: Uuid = OWN,
    *,
    cluster_id: str | None = None,
    kraft_version: int = 1,
    voters: VoterSet = VOTERS,
) -> None:
    """Ask for a voter of cluster `c` to go."""
    request = RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id
    )
    check_removal(request, voters, cluster_id="c", kraft_version=kraft_version)


def test_a_new_voter_is_welcome() -> None:
    """An unknown voter with an endpoint is valid, with or without the cluster id."""
    add()
    add(cluster_id="c")


def test_wrong_additions() -> None:
    """Each refusal has Kafka's code and words."""
    refusals: tuple[tuple[Callable[[], None], ErrorCode, str], ...] = (
        (lambda: add(cluster_id="x"), ErrorCode.INCONSISTENT_CLUSTER_ID, 'given id "x" doesn'),
        (lambda: add(-1), ErrorCode.INVALID_REQUEST, "didn't include a valid voter"),
        (lambda: add(2, Uuid()), ErrorCode.INVALID_REQUEST, "didn't include a valid voter"),
        (
            lambda: add(listener="OTHER"),
            ErrorCode.INVALID_REQUEST,
            "(Endpoints(endpoints={ListenerName(CONTROLLER)=h/<unresolved>:9})) for the default",
        ),
        (lambda: add(kraft_version=0), ErrorCode.UNSUPPORTED_VERSION, "kraft.version feature is 0"),
        (lambda: add(1), ErrorCode.DUPLICATE_VOTER, f"directoryId={OWN})]."),
    )
    for wrong, code, text in refusals:
        with pytest.raises(KafkaError) as caught:
            wrong()
        assert caught.value.code is code
        assert text in str(caught.value)


def test_wrong_removals() -> None:
    """An unknown voter, one with another directory id and the last one are refused."""
    two = VoterSet([Voter(1, OWN), Voter(2, OTHER)])
    remove(2, OTHER, voters=two)
    refusals: tuple[tuple[Callable[[], None], ErrorCode], ...] = (
        (lambda: remove(cluster_id="x"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (lambda: remove(-1), ErrorCode.INVALID_REQUEST),
        (lambda: remove(1, Uuid()), ErrorCode.INVALID_REQUEST),
        (lambda: remove(kraft_version=0), ErrorCode.UNSUPPORTED_VERSION),
        (lambda: remove(3, OTHER, voters=two), ErrorCode.VOTER_NOT_FOUND),
        (lambda: remove(1, OTHER, voters=two), ErrorCode.VOTER_NOT_FOUND),
        (remove, ErrorCode.VOTER_NOT_FOUND),
    )
    for wrong, code in refusals:
        with pytest.raises(KafkaError) as caught:
            wrong()
        assert caught.value.code is code

"""Leaders without an address, offline replicas: what clients of a listener are told."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.broker import BrokerRegistration, ListenerAddress
from ottla.metadata.partition import LOST_DIRECTORY, PartitionRegistration
from ottla.server.handlers.metadata import reachable, view_of
from ottla.types import Uuid

HOME, OTHER_HOME = Uuid(b"h" * 16), Uuid(b"o" * 16)
NONE, UNAVAILABLE = ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE


def broker(broker_id: int, *listeners: str, fenced: bool = False) -> BrokerRegistration:
    """Return a broker with one directory and an address on each listener."""
    return BrokerRegistration(
        broker_id,
        5,
        HOME,
        {name: ListenerAddress("h", 1, 0) for name in listeners},
        {},
        None,
        fenced,
        in_controlled_shutdown=False,
        log_directories=(HOME,),
    )


BROKERS = {
    1: broker(1, "IN", "OUT"),
    2: broker(2, "IN"),
    3: broker(3, "IN", "OUT", fenced=True),
}


def partition(leader: int, *replicas: int, directory: Uuid = HOME) -> PartitionRegistration:
    """Return a partition whose replicas all lie in such a directory."""
    return PartitionRegistration(
        replicas, (directory,) * len(replicas), replicas, leader, leader_epoch=0, partition_epoch=0
    )


@pytest.mark.parametrize(
    ("seen", "listener", "expected"),
    [
        (partition(1, 1, 2), "IN", (NONE, 1, [])),
        (partition(1, 1, 2), "OUT", (NONE, 1, [2])),
        (partition(2, 1, 2), "OUT", (ErrorCode.LISTENER_NOT_FOUND, -1, [2])),
        (partition(-1, 1, 3), "IN", (UNAVAILABLE, -1, [3])),
        (partition(9, 1, 9), "IN", (UNAVAILABLE, -1, [9])),
        (partition(1, 1, directory=OTHER_HOME), "IN", (NONE, 1, [1])),
        (partition(1, 1, directory=LOST_DIRECTORY), "IN", (NONE, 1, [1])),
        (partition(1, 1, directory=Uuid()), "IN", (NONE, 1, [])),
    ],
)
def test_views(
    seen: PartitionRegistration, listener: str, expected: tuple[ErrorCode, int, list[int]]
) -> None:
    """A replica is offline with its broker, its directory, or without an address there."""
    assert view_of(BROKERS, seen, listener) == expected


def test_only_brokers_with_an_address_are_reachable() -> None:
    """A fenced one has its address still."""
    assert reachable(BROKERS, [3, 2, 1, 9], "OUT") == [3, 1]

"""Which replica a consumer is referred to (KIP-392)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.metadata.broker import BrokerRegistration, ListenerAddress
from ottla.metadata.image.cluster import ClusterImage
from ottla.replication.leader_state import FollowerState
from ottla.replication.replica_set import LEADER, RackAwareReplicaSelector
from ottla.types import ZERO_UUID

NOW_MS = 50_000
RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def cluster() -> ClusterImage:
    """Return four brokers; 2 and 3 are in one rack."""
    image = ClusterImage()
    for number, rack in RACKS.items():
        addresses = {"CLIENT": ListenerAddress("host", 9090 + number, 0)}
        image.brokers[number] = BrokerRegistration(
            number, 0, ZERO_UUID, addresses, {}, rack, False, False
        )
    return image


def partition(
    ends: dict[int, int], isr: tuple[int, ...] = (1, 2, 3, 4), *, start: int = 0
) -> SimpleNamespace:
    """Return what broker 1 leads, with followers whose logs end there."""
    followers = {}
    for number, end in ends.items():
        followers[number] = follower = FollowerState(number)
        follower.fetched(end, start, 20, NOW_MS, 1)
        follower.last_caught_up_ms = NOW_MS
    leading = SimpleNamespace(followers=followers)
    return SimpleNamespace(is_leader=True, leader_id=1, isr=isr, leading=leading)


def select(
    replica: SimpleNamespace,
    rack: str = "b",
    offset: int = 10,
    image: ClusterImage | None = None,
    listener: str = "CLIENT",
) -> int:
    """Return the choice for a consumer."""
    selector = RackAwareReplicaSelector(image or cluster())
    return selector.select(cast("Any", replica), rack, listener, offset, NOW_MS)


def test_the_replica_of_the_rack_that_has_most_is_chosen() -> None:
    """Of equal ends the one that was in sync last; of equal ones the highest id."""
    assert select(partition({2: 15, 3: 12, 4: 20})) == 2
    assert select(partition({2: 15, 3: 15})) == 3
    late = partition({2: 15, 3: 15})
    late.leading.followers[3].last_caught_up_ms -= 100
    assert select(late) == 2


@pytest.mark.parametrize("rack", ["a", "nowhere"])
def test_the_leader_serves_its_own_rack_and_unknown_ones(rack: str) -> None:
    """It is not named: the consumer asks it already."""
    assert select(partition({2: 15, 3: 15, 4: 15}), rack) == LEADER


def test_a_replica_out_of_sync_or_without_the_offset_is_not_chosen() -> None:
    """Nor one that starts after it."""
    assert select(partition({2: 15}, isr=(1, 3, 4))) == LEADER
    assert select(partition({2: 9})) == LEADER
    assert select(partition({2: 15}, start=11)) == LEADER


def test_a_replica_that_the_client_cannot_reach_is_not_chosen() -> None:
    """A fenced broker, one without the listener, one that is not registered."""
    image = cluster()
    image.brokers[2] = image.brokers[2]._replace(fenced=True)
    assert select(partition({2: 15}), image=image) == LEADER
    assert select(partition({2: 15}), listener="OTHER") == LEADER
    del image.brokers[2]
    assert select(partition({2: 15}), image=image) == LEADER


def test_a_follower_chooses_no_replica() -> None:
    """KAFKA-13778: else two followers could send a consumer back and forth."""
    replica = partition({2: 15})
    replica.is_leader = False
    assert select(replica) == LEADER
    replica.is_leader, replica.leading = True, None
    assert select(replica) == LEADER

"""Placement of replicas over brokers and racks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.partitions.placement import UsableBroker, place
from ottla.errors import KafkaError


def _place(
    brokers: list[UsableBroker], partitions: int, factor: int, seed: int = 1
) -> list[tuple[int, ...]]:
    return place(
        partition_count=partitions,
        replication_factor=factor,
        brokers=brokers,
        rng=Random(seed),
    )


@given(
    racks=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    partitions=st.integers(1, 30),
    factor=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_replicas_differ_and_racks_are_used(
    racks: list[int], partitions: int, factor: int, seed: int
) -> None:
    """No partition has a broker twice, and it spans as many racks as it can."""
    brokers = [
        UsableBroker(number * 10 + index, f"rack{number}", fenced=False)
        for number, size in enumerate(racks)
        for index in range(size)
    ]
    if factor > len(brokers):
        with pytest.raises(KafkaError):
            _place(brokers, partitions, factor, seed)
        return
    rack_of = {broker.broker_id: broker.rack for broker in brokers}
    for replicas in _place(brokers, partitions, factor, seed):
        assert len(set(replicas)) == factor
        assert len({rack_of[replica] for replica in replicas}) == min(factor, len(racks))


def test_leaders_go_round() -> None:
    """Over as many partitions as brokers each broker leads once."""
    brokers = [UsableBroker(number, None, fenced=False) for number in range(5)]
    leaders = Counter(replicas[0] for replicas in _place(brokers, 5, 3))
    assert set(leaders.values()) == {1}


def test_fenced_brokers_never_lead() -> None:
    """A fenced broker may hold a replica, after one that is not fenced."""
    brokers = [UsableBroker(1, None, fenced=True), UsableBroker(2, None, fenced=False)]
    assert _place(brokers, 3, 2) == [(2, 1)] * 3


def test_an_unfenced_leader_comes_from_the_next_rack_and_the_others_from_the_first() -> None:
    """A rack of fenced brokers gives the second replica."""
    brokers = [
        UsableBroker(1, "a", fenced=True),
        UsableBroker(2, "b", fenced=False),
        UsableBroker(3, "c", fenced=False),
    ]
    for replicas in _place(brokers, 12, 2):
        assert replicas in {(2, 1), (3, 1), (2, 3), (3, 2)}
    assert (2, 1) in _place(brokers, 12, 2)


def test_the_followers_of_a_broker_vary() -> None:
    """The order is drawn again once each broker has led."""
    brokers = [UsableBroker(number, None, fenced=False) for number in range(6)]
    placed = _place(brokers, 120, 2)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {20}
    pairs = {replicas for replicas in placed if replicas[0] == 0}
    assert len(pairs) > 2


def test_racks_without_room_are_left_out() -> None:
    """More replicas than racks: the larger racks hold several."""
    brokers = [UsableBroker(number, f"r{min(number, 2)}", fenced=False) for number in range(5)]
    for replicas in _place(brokers, 10, 5):
        assert sorted(replicas) == [0, 1, 2, 3, 4]

"""Assignors, and the bytes of the consumer protocol."""

from __future__ import annotations

import random

import pytest

from ottla.clients.consumer.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    Member,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.errors import CorruptMessage
from ottla.types import TopicPartition


def _members(*topics: tuple[str, ...]) -> list[Member]:
    return [Member(f"m{index}", requested) for index, requested in enumerate(topics)]


def _plain(assignment: Assignment) -> dict[str, list[str]]:
    return {name: [str(p) for p in sorted(parts)] for name, parts in assignment.items()}


def test_range_gives_consecutive_partitions_and_the_rest_to_the_first() -> None:
    """Two topics of three partitions, two members: four and two."""
    divided = RangeAssignor().assign({"a": 3, "b": 3}, _members(("a", "b"), ("a", "b")))
    assert _plain(divided) == {
        "m0": ["a-0", "a-1", "b-0", "b-1"],
        "m1": ["a-2", "b-2"],
    }


def test_roundrobin_deals_out_over_topics() -> None:
    """The same input: three and three; members get only subscribed topics."""
    divided = RoundRobinAssignor().assign({"a": 3, "b": 3}, _members(("a", "b"), ("a", "b")))
    assert _plain(divided) == {"m0": ["a-0", "a-2", "b-1"], "m1": ["a-1", "b-0", "b-2"]}
    divided = RoundRobinAssignor().assign({"a": 2, "b": 2}, _members(("a",), ("a", "b")))
    assert all(p.topic == "a" for p in divided["m0"])


@pytest.mark.parametrize("seed", range(20))
def test_every_assignor_gives_each_wanted_partition_to_exactly_one_member(seed: int) -> None:
    """Disjoint, complete, and only subscribed topics."""
    rng = random.Random(seed)
    counts = {f"t{n}": rng.randrange(1, 8) for n in range(rng.randrange(1, 5))}
    members = [
        Member(f"m{n}", tuple(t for t in counts if rng.random() < 0.8))
        for n in range(rng.randrange(1, 6))
    ]
    requested = {
        TopicPartition(topic, number)
        for topic, count in counts.items()
        for number in range(count)
        if any(topic in member.topics for member in members)
    }
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor()):
        divided = assignor.assign(counts, members)
        every = [partition for parts in divided.values() for partition in parts]
        assert len(every) == len(set(every))
        assert set(every) == requested
        for member in members:
            assert {p.topic for p in divided[member.member_id]} <= set(member.topics)


def test_sticky_keeps_what_it_can_when_a_member_joins() -> None:
    """Six partitions of two members: a third one takes two, the other four stay."""
    owned = StickyAssignor().assign({"a": 6}, _members(("a",), ("a",)))
    members = [
        Member(name, ("a",), owned=tuple(parts), generation=1) for name, parts in owned.items()
    ]
    divided = CooperativeStickyAssignor().assign({"a": 6}, [*members, Member("m2", ("a",))])
    assert [len(divided[name]) for name in ("m0", "m1")] == [2, 2]
    assert divided["m2"] == []  # withheld until their owners have given them up
    assert set(divided["m0"]) <= set(owned["m0"])
    settled = [
        Member(name, ("a",), owned=tuple(parts), generation=2) for name, parts in divided.items()
    ]
    divided = CooperativeStickyAssignor().assign({"a": 6}, settled)
    assert sorted(len(parts) for parts in divided.values()) == [2, 2, 2]


def test_a_claim_of_an_older_generation_loses() -> None:
    """KIP-341: a member that slept through a rebalance does not get its old partitions back."""
    zero = TopicPartition("a", 0)
    members = [
        Member("m0", ("a",), owned=(zero,), generation=1),
        Member("m1", ("a",), owned=(zero,), generation=3),
    ]
    divided = CooperativeStickyAssignor().assign({"a": 1}, members)
    assert divided == {"m0": [], "m1": [zero]}


def test_cooperative_withholds_what_a_member_of_an_older_generation_still_reads() -> None:
    """It missed a rebalance and still reads the partition; two would read it at once."""
    owned = tuple(TopicPartition("a", number) for number in range(4))
    behind = Member("behind", ("a",), owned=owned, generation=4)
    new = Member("new", ("a",), generation=5)
    divided = _plain(CooperativeStickyAssignor().assign({"a": 4}, [behind, new]))
    assert divided == {"behind": ["a-0", "a-1"], "new": []}
    after = behind._replace(owned=owned[:2], generation=6)
    divided = _plain(CooperativeStickyAssignor().assign({"a": 4}, [after, new]))
    assert divided == {"behind": ["a-0", "a-1"], "new": ["a-2", "a-3"]}


def test_eager_sticky_reads_ownership_from_user_data() -> None:
    """What a member said about its last assignment is used."""
    assignor = StickyAssignor()
    two = TopicPartition("a", 2)
    data = assignor.user_data([two], 4)
    members = [Member("m0", ("a",)), Member("m1", ("a",), user_data=data)]
    assert two in assignor.assign({"a": 4}, members)["m1"]


def test_subscriptions_and_assignments_survive_the_wire() -> None:
    """Encode and decode; foreign bytes are an error, not a crash."""
    parts = (TopicPartition("a", 0), TopicPartition("b", 3))
    member = Member("m", ("a", "b"), "i", parts, 7, "rack", b"data")
    assert decode_subscription("m", "i", encode_subscription(member)) == member
    assert decode_assignment(encode_assignment(parts)) == list(parts)
    assert decode_assignment(b"") == []
    with pytest.raises(CorruptMessage):
        decode_assignment(b"\x00")
    with pytest.raises(CorruptMessage):
        decode_subscription("m", None, b"\x00\x03\x7f\xff\xff\xff")

"""The assignors of consumer groups: complete, disjoint, even and sticky."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.consumer.assignors import ASSIGNORS
from ottla.coordinator.group.consumer.assignors.uniform import AssignorInput, MemberInput
from ottla.purgatory.work import finish
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.consumer.group import TopicPartitions

TOPICS = [Uuid(bytes(15) + bytes([number])) for number in range(1, 5)]
counts = st.lists(st.integers(0, 12), min_size=4, max_size=4)
subscriptions = st.lists(
    st.lists(st.sampled_from(TOPICS), unique=True).map(sorted), min_size=1, max_size=8
)


def group(topics: list[list[Uuid]], partitions: list[int]) -> AssignorInput:
    members = [MemberInput(f"m{i}", None, one, {}) for i, one in enumerate(topics)]
    return AssignorInput(members, dict(zip(TOPICS, partitions, strict=True)))


def sizes(target: Mapping[str, TopicPartitions]) -> list[int]:
    return [sum(len(indexes) for indexes in one.values()) for one in target.values()]


def check(given_group: AssignorInput, target: Mapping[str, TopicPartitions]) -> None:
    found = [
        (topic_id, index)
        for one in target.values()
        for topic_id, indexes in one.items()
        for index in indexes
    ]
    read = {topic_id for member in given_group.members for topic_id in member.topic_ids}
    every = [(one, i) for one in read for i in range(given_group.partition_counts[one])]
    assert sorted(found) == sorted(every)
    for member in given_group.members:
        assert set(target[member.member_id]) <= set(member.topic_ids)


@given(subscriptions, counts, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_reader(
    topics: list[list[Uuid]], partitions: list[int], name: str
) -> None:
    """Each partition of a subscribed topic goes to one member that subscribes to it."""
    one = group(topics, partitions)
    check(one, finish(ASSIGNORS[name](one)))


@given(st.integers(1, 8), st.integers(1, 8), counts)
def test_uniform_is_even_and_sticky(before: int, after: int, partitions: list[int]) -> None:
    """With one subscription sizes differ by one at most, and members keep up to their quota."""
    first = group([TOPICS] * before, partitions)
    old = finish(ASSIGNORS["uniform"](first))
    second = group([TOPICS] * after, partitions)
    members = [one._replace(owned=old.get(one.member_id, {})) for one in second.members]
    new = finish(ASSIGNORS["uniform"](second._replace(members=members)))
    check(second, new)
    assert max(sizes(new)) - min(sizes(new)) <= 1
    quota = sum(partitions) // after
    for member in members:
        kept = sum(
            len(set(ones) & set(new[member.member_id].get(t, ())))
            for t, ones in member.owned.items()
        )
        had = sum(map(len, member.owned.values()))
        assert kept >= min(had, quota)


@given(subscriptions, counts)
def test_uniform_moves_nothing_without_a_reason(
    topics: list[list[Uuid]], partitions: list[int]
) -> None:
    """An assignment that is as even as it can be stays, whatever the subscriptions."""
    one = group(topics, partitions)
    target = finish(ASSIGNORS["uniform"](one))
    members = [member._replace(owned=target[member.member_id]) for member in one.members]
    assert finish(ASSIGNORS["uniform"](one._replace(members=members))) == target


def test_range_follows_instance_ids() -> None:
    """Members with an instance id come first, each with the same range of each topic."""
    members = [
        MemberInput("a", None, TOPICS[:2], {}),
        MemberInput("b", "i2", TOPICS[:2], {}),
        MemberInput("c", "i1", TOPICS[:2], {}),
    ]
    given = AssignorInput(members, {TOPICS[0]: 4, TOPICS[1]: 2})
    target = finish(ASSIGNORS["range"](given))
    assert target == {
        "c": {TOPICS[0]: (0, 1), TOPICS[1]: (0,)},
        "b": {TOPICS[0]: (2,), TOPICS[1]: (1,)},
        "a": {TOPICS[0]: (3,)},
    }

"""Classic groups of many members: their joins and syncs are answered in several turns."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group import GroupCoordinatorConfig
from ottla.coordinator.group.classic.join import MAX_MEMBERS_BYTES, MAX_SHARED_BYTES
from ottla.coordinator.group.classic.rebalance import ANSWERS_AT_ONCE
from ottla.errors import ErrorCode
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from tests.coordinator.harness import World, context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.purgatory.pending import Pending

COUNT = 2 * ANSWERS_AT_ONCE + 50
DELAY_MS = 100
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
Protocol = JoinGroupRequest.JoinGroupRequestProtocol
Assignment = SyncGroupRequest.SyncGroupRequestAssignment


def world() -> World:
    config = GroupCoordinatorConfig(
        offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=DELAY_MS
    )
    return World(config).elect()


def join(
    made: World, member_id: str = "", group_id: str = "g", metadata: bytes = SUBSCRIPTION
) -> Pending[Any]:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[Protocol(name="range", metadata=metadata)],
    )
    return made.coordinator.join_group(request, context(3))


def sync(made: World, joined: Any, assigned: Sequence[str] = ()) -> Pending[Any]:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[Assignment(member_id=name, assignment=name.encode()) for name in assigned],
    )
    return made.coordinator.sync_group(request, context(3))


def answered_each_ms(made: World, waiting: Sequence[Pending[Any]]) -> list[int]:
    """Let time pass until all are answered; return how many were in each millisecond."""
    counts = [0, sum(one.done for one in waiting)]
    while counts[-1] < len(waiting):
        made.advance(1)
        counts.append(sum(one.done for one in waiting))
    return [following - before for before, following in pairwise(counts)]


def test_joins_and_syncs_are_answered_in_slices() -> None:
    """All of one generation; each member gets its own assignment."""
    made = world()
    joins = [join(made) for _ in range(COUNT)]
    assert max(answered_each_ms(made, joins)) == ANSWERS_AT_ONCE
    joined = [one.value for one in joins]
    assert {one.generation_id for one in joined} == {1}
    (leader,) = [one for one in joined if one.members]
    assert len(leader.members) == COUNT
    names = [one.member_id for one in joined]
    syncs = [sync(made, one) for one in joined if one is not leader]
    syncs.append(sync(made, leader, names))
    assert max(answered_each_ms(made, syncs)) == ANSWERS_AT_ONCE
    others = [one.member_id for one in joined if one is not leader]
    assert [one.value.assignment.decode() for one in syncs] == [*others, leader.member_id]


def test_a_join_that_is_not_answered_counts_for_the_next_rebalance() -> None:
    """Its member has not seen the generation that ended before its turn."""
    made = world()
    joins = [join(made) for _ in range(COUNT)]
    while not any(one.done for one in joins):
        made.advance(1)
    first = [one for one in joins if one.done]
    assert len(first) == ANSWERS_AT_ONCE
    late = join(made)
    made.advance(20)
    assert sum(one.done for one in joins) == ANSWERS_AT_ONCE
    again = [join(made, one.value.member_id) for one in first]
    waiting = [*again, *(one for one in joins if one not in first), late]
    answered_each_ms(made, waiting)
    assert {one.value.generation_id for one in waiting} == {2}
    assert {one.value.error_code for one in waiting} == {ErrorCode.NONE}


def test_a_sync_that_is_not_answered_fails_with_its_generation() -> None:
    """The next generation ends the wait; a later sync is answered by its own generation alone."""
    made = world()
    joins = [join(made) for _ in range(COUNT)]
    answered_each_ms(made, joins)
    joined = [one.value for one in joins]
    (leader,) = [one for one in joined if one.members]
    syncs = {one.member_id: sync(made, one) for one in joined if one is not leader}
    sync(made, leader, [one.member_id for one in joined])
    assert sum(one.done for one in syncs.values()) < COUNT - 1
    again = [join(made, one.member_id) for one in joined]
    assert all(one.done for one in again[:ANSWERS_AT_ONCE])
    made.advance(20)
    assert all(one.done for one in (*again, *syncs.values()))
    codes = [one.value.error_code for one in syncs.values()]
    answered = codes.count(ErrorCode.NONE)
    assert answered + codes.count(ErrorCode.REBALANCE_IN_PROGRESS) == COUNT - 1
    assert answered >= ANSWERS_AT_ONCE - 1


@pytest.mark.soak
def test_a_group_that_fills_the_memory_shuts_no_other_out() -> None:
    """Members of others rejoin, with some more metadata as well; new groups have a share."""
    made = world()
    honest = join(made, metadata=bytes(8000))
    made.advance(DELAY_MS)
    member_id = honest.value.member_id
    count, last = divmod(MAX_MEMBERS_BYTES, 1_000_000)
    for size in (*[1_000_000] * count, last - 9000):
        join(made, group_id="hostile", metadata=bytes(size))
    for size in (8000, 8000, 9000):
        again = join(made, member_id, metadata=bytes(size))
        made.advance(DELAY_MS)
        assert again.value.error_code == ErrorCode.NONE
    others = [join(made, group_id=f"o{index}", metadata=bytes(20_000)) for index in range(10)]
    refused = [join(made, group_id="hostile", metadata=bytes(1_000_000)) for _ in range(10)]
    made.advance(DELAY_MS)
    assert {one.value.error_code for one in others} == {ErrorCode.NONE}
    assert {one.value.error_code for one in refused} == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    for index in range(5000):
        join(made, group_id=f"n{index}", metadata=bytes(MAX_SHARED_BYTES // (index + 13)))
    groups = made.coordinator.runtime.shard(0).classic
    assert groups.member_bytes <= 2 * MAX_MEMBERS_BYTES

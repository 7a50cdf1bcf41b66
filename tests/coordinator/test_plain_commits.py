"""Plain offsets are encoded and replayed together: bytes, state and answers stay equal."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest

from ottla.coordinator.group.offsets import commit as commits
from ottla.errors import ErrorCode
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.types import ZERO_UUID, TopicPartition
from tests.coordinator.harness import Topics, World, context, ready

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
Partition = Topic.OffsetCommitRequestPartition


def _random(rng: Random) -> OffsetCommitRequest:
    topics = [
        Topic(
            name=name,
            topic_id=rng.choice((ZERO_UUID, Topics.id_of(name))),
            partitions=[
                Partition(
                    partition_index=rng.randint(0, 40),
                    committed_offset=rng.choice((0, 5, 1 << 40)),
                    committed_leader_epoch=rng.choice((-1, 0, 7)),
                    committed_metadata=rng.choice(("", "", "", None, "m")),
                )
                for _ in range(rng.choice((0, 1, 3, 40)))
            ],
        )
        for name in rng.choice((("t",), ("t", "u"), ("long" * 30, "u")))
    ]
    return OffsetCommitRequest(
        group_id=rng.choice(("g", "another group" * 10)),
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=topics,
    )


def _commit(world: World, request: OffsetCommitRequest) -> object:
    return ready(world.coordinator.offset_commit(deepcopy(request), context(9)))


@pytest.mark.parametrize("seed", range(30))
def test_both_ways_give_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random commits, with metadata and too many offsets among them, on a log that is loaded."""
    rng = Random(seed)
    together, one_by_one = World().elect(), World().elect()
    for _ in range(8):
        request = _random(rng)
        answer = _commit(together, request)
        with monkeypatch.context() as patch:
            patch.setattr(commits, "_are_plain", lambda _request: False)
            assert answer == _commit(one_by_one, request)
        assert together.log.batches == one_by_one.log.batches
        offsets = together.shard().offsets
        assert offsets.by_group == one_by_one.shard().offsets.by_group
        assert offsets.commits == one_by_one.shard().offsets.commits
    loaded = World()
    loaded.log.batches = together.log.batches
    loaded.log.commit(0)
    assert loaded.elect().shard().offsets.by_group == together.shard().offsets.by_group


def test_offsets_that_are_not_written_are_not_committed() -> None:
    """A log that refuses the batch leaves the state before it."""
    world = World().elect()
    partition = Partition(partition_index=1, committed_offset=5, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[Topic(name="t", partitions=[partition])],
    )
    _commit(world, request)
    partition.committed_offset = 6
    world.log.next_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    _commit(world, request)
    found = world.shard().offsets.get("g", TopicPartition("t", 1))
    assert found is not None
    assert found.offset == 5

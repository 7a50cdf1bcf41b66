"""Removals of more offsets than one batch of the offsets topic can hold."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group import GroupCoordinatorConfig
from ottla.coordinator.group.offsets import removal
from ottla.coordinator.runtime import Result
from ottla.coordinator.runtime.shard import RECORDS_AT_ONCE
from ottla.errors import ErrorCode
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from tests.coordinator.harness import FaultyWorld, Topics, World, context
from tests.coordinator.test_runtime import Bench, Counter, code_of, count_record

if TYPE_CHECKING:
    from collections.abc import Sequence

Committed = OffsetCommitRequest.OffsetCommitRequestTopic
BATCH_BYTES = 300
GROUPS = [f"group-{number}" for number in range(50)]


def _with_offsets(
    retention_ms: int,
    group_ids: Sequence[str] = GROUPS,
    partitions: int = 1,
    *,
    config: GroupCoordinatorConfig | None = None,
) -> World:
    """Return a coordinator of groups that each have offsets, then with small batches."""
    config = config or GroupCoordinatorConfig(
        offsets_topic_num_partitions=1, offsets_retention_ms=retention_ms
    )
    world = World(config).elect()
    world.topics.counts["t"] = partitions
    for group_id in group_ids:
        committed = [
            Committed.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=7, committed_metadata=""
            )
            for index in range(partitions)
        ]
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[Committed(name="t", partitions=committed)],
        )
        assert world.coordinator.offset_commit(request, context(8)).done
    assert _offset_count(world) == len(group_ids)
    world.log.batch_bytes = BATCH_BYTES
    return world


def test_offsets_of_a_deleted_topic_go_with_a_later_pass_where_an_append_is_refused() -> None:
    """The passes that remove expired offsets look for them, until one finds none."""
    world = FaultyWorld().elect()
    interval_ms = world.config.offsets_retention_check_interval_ms
    for group_id in ("a", "b"):
        partition = Committed.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[Committed(name="t", partitions=[partition])],
        )
        assert world.coordinator.offset_commit(request, context(8)).done
    for _ in range(2):
        world.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
        world.coordinator.on_topics_deleted([("t", Topics.id_of("t"))])
        world.advance(10)
        assert _offset_count(world) == 2
    world.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.advance(interval_ms)
    assert _offset_count(world) == 2
    assert len(world.faults) == 3
    world.advance(interval_ms)
    assert _offset_count(world) == 0
    assert world.shard()._deleted_topics
    world.advance(interval_ms)
    assert not world.shard()._deleted_topics


def test_expired_offsets_of_a_deleted_topic_are_removed_once() -> None:
    """A pass finds them twice: as expired, and as those of a topic whose removal was refused."""
    partitions = 2 * RECORDS_AT_ONCE + 10
    world = _with_offsets(1000, ["a"], partitions)
    world.shard()._deleted_topics[("t", Topics.id_of("t"))] = None
    world.log.batch_bytes = 1 << 20
    before = len(world.log.record_batches(0))
    world.advance(world.config.offsets_retention_check_interval_ms)
    world.advance(100)
    assert _offset_count(world) == 0
    written = world.log.record_batches(0)[before:]
    assert sum(batch.record_count for batch in written) == partitions + 1, "the group's is the last"


def test_a_slice_of_the_offsets_of_deleted_topics_is_bounded() -> None:
    """A group with offsets of thousands of partitions is looked through in several turns."""
    world = _with_offsets(1_000_000_000, ["a"], 2 * RECORDS_AT_ONCE)
    ids = removal.ids_by_name([("t", Topics.id_of("t"))])
    tombstones, _ = removal.deleted_of_group(world.shard().groups, ids, "a")
    assert len(tombstones) == RECORDS_AT_ONCE


def _assert_gone(world: World) -> None:
    world.advance(10)
    assert not world.shard().offsets.by_group
    assert max(batch.size for batch in world.log.record_batches(0)) <= BATCH_BYTES
    world.resign()
    world.elect()
    assert not world.shard().offsets.by_group


def test_a_deleted_topics_offsets_go_in_as_many_batches_as_they_take() -> None:
    """None is above the topic's limit, and what is read back agrees."""
    world = _with_offsets(retention_ms=1_000_000_000)
    world.coordinator.on_topics_deleted([("t", Topics.id_of("t"))])
    _assert_gone(world)


def test_expired_offsets_go_in_as_many_batches_as_they_take() -> None:
    """Groups that end with their offsets do, too."""
    world = _with_offsets(retention_ms=1000)
    world.advance(world.config.offsets_retention_check_interval_ms)
    _assert_gone(world)
    assert not world.shard().groups.ids()


def test_many_offsets_go_in_slices() -> None:
    """No turn of the loop looks at all offsets of a shard, or writes all tombstones."""
    count = 2 * RECORDS_AT_ONCE + 10
    world = _with_offsets(1_000_000_000, [f"group-{number}" for number in range(count)])
    world.coordinator.on_topics_deleted([("t", Topics.id_of("t"))])
    removed = _removed_each_ms(world, count)
    assert sum(removed) == count
    assert max(removed) <= RECORDS_AT_ONCE


def test_shards_take_their_slices_in_turns() -> None:
    """The checks of all shards fall due together: they were loaded together."""
    config = GroupCoordinatorConfig(offsets_topic_num_partitions=4, offsets_retention_ms=1000)
    count = 3 * RECORDS_AT_ONCE
    world = _with_offsets(1000, [f"group-{number}" for number in range(count)], config=config)
    world.advance(config.offsets_retention_check_interval_ms - world.clock.time_ms - 10)
    assert _offset_count(world) == count
    removed = _removed_each_ms(world, count)
    assert sum(removed) == count
    assert max(removed) <= RECORDS_AT_ONCE


def _removed_each_ms(world: World, before: int) -> list[int]:
    left = [before, _offset_count(world)]
    while left[-1]:
        world.advance(1)
        left.append(_offset_count(world))
    return [one - following for one, following in pairwise(left)]


def _offset_count(world: World) -> int:
    partitions = range(world.config.offsets_topic_num_partitions)
    return sum(len(world.shard(partition).offsets.by_group) for partition in partitions)


def test_expired_offsets_of_a_large_group_are_counted_once() -> None:
    """The metric counts what is removed, however many slices that takes."""
    count = 2 * RECORDS_AT_ONCE + 10
    world = _with_offsets(1000, ["group"], count)
    world.advance(world.config.offsets_retention_check_interval_ms)
    world.advance(10)
    shard = world.shard()
    assert not shard.offsets.by_group
    assert not shard.groups.ids()
    assert shard.offsets.expirations == count


def test_a_deletion_of_many_topics_looks_at_each_offset_once() -> None:
    """The work of a group does not grow with the number of deleted topics."""
    looked_up = 0

    class Ids(dict[str, Any]):
        """Counts lookups."""

        def get(self, name: str, default: Any = None) -> Any:
            nonlocal looked_up
            looked_up += 1
            return super().get(name, default)

    world = _with_offsets(1_000_000_000, ["group"], partitions=3)
    ids = Ids({f"other-{number}": [Topics.id_of("u")] for number in range(1000)})
    assert removal.deleted_of_group(world.shard().groups, ids, "group")[0] == []
    assert looked_up == 3


def test_a_refused_part_is_reported_and_the_others_stay() -> None:
    """A removal has no client: its failure is reported as a fault."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.log.batch_bytes = 100
    names = ["a" * 20, "b" * 20, "c" * 200, "d"]

    def operation(_shard: Counter) -> Result[int]:
        return Result(1, [count_record(name) for name in names], atomic=False)

    assert code_of(bench.runtime.write(0, operation)) == ErrorCode.MESSAGE_TOO_LARGE
    assert dict(bench.runtime.shard(0).counts) == {"a" * 20: 1, "b" * 20: 1}
    assert bench.log.end_offset(0) == 2
    assert len(bench.faults) == 1
    assert bench.count("d").value == 1


def test_what_must_stand_together_is_refused_together() -> None:
    """A request's records are one batch or none."""
    bench = Bench()
    bench.runtime.on_elected(0, 1)
    bench.log.batch_bytes = 100
    assert code_of(bench.count("a" * 20, "b" * 20, "c" * 20)) == ErrorCode.MESSAGE_TOO_LARGE
    assert bench.log.end_offset(0) == 0
    assert not bench.faults

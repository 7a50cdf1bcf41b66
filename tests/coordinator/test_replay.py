"""What the shard makes of records in any order, and the bytes that it writes."""

from __future__ import annotations

import random
from itertools import permutations
from operator import itemgetter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    GroupDependencies,
    StreamsGroupConfig,
)
from ottla.coordinator.group.classic import group as records
from ottla.coordinator.group.classic.group import ClassicState, StoredGroup
from ottla.coordinator.group.offsets.committed import CommittedOffset
from ottla.coordinator.group.offsets.records import offset_commit, offset_tombstone
from ottla.coordinator.group.shard import GroupShard, _RecordSerde
from ottla.coordinator.runtime import CoordinatorRecord, ShardEnvironment, ShardTimers
from ottla.coordinator.runtime.java_hash import in_hash_map_order, partition_for, string_hash
from ottla.errors import CorruptMessage, UnsupportedVersion
from ottla.protocol.records import group as schemas
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.timeline import LATEST_EPOCH, SnapshotRegistry
from ottla.types import TopicPartition, Uuid
from tests.coordinator.harness import Topics, VirtualClock, loop_of

if TYPE_CHECKING:
    from collections.abc import Iterable

T0 = TopicPartition("t", 0)
SERDE = _RecordSerde()


def make_shard(registry: SnapshotRegistry | None = None) -> GroupShard:
    clock = VirtualClock()
    timer = TimingWheel(0)
    timers = ShardTimers(
        loop_of(timer, clock), lambda _operation, _retry: None, lambda _slices: Pending()
    )
    environment = ShardEnvironment(0, registry or SnapshotRegistry(), timers, clock)
    consumer = GroupDependencies(
        Topics(),
        lambda _group_id: ConsumerGroupConfig(),
        str,
        lambda _group_id: StreamsGroupConfig(),
    )
    return GroupShard(environment, GroupCoordinatorConfig(), str, consumer)


def offset(number: int, group_id: str = "g") -> CoordinatorRecord:
    return offset_commit(group_id, T0, CommittedOffset(number))


def group(generation: int, *members: str, group_id: str = "g") -> CoordinatorRecord:
    return CoordinatorRecord(
        schemas.GroupMetadataKey(group=group_id),
        schemas.GroupMetadataValue(
            protocol_type="consumer",
            generation=generation,
            protocol="range",
            leader=members[0] if members else None,
            members=[
                schemas.MemberMetadata(
                    member_id=name,
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=-1,
                    session_timeout=7000,
                    subscription=b"",
                    assignment=name.encode(),
                )
                for name in members
            ],
        ),
        3,
    )


def has_generation(shard: GroupShard) -> bool:
    stored = shard.groups.by_id.get("g")
    return type(stored) is StoredGroup and stored.generation is not None


def replay(shard: GroupShard, entries: Iterable[CoordinatorRecord], producer_id: int = -1) -> None:
    for index, record in enumerate(entries):
        shard.replay(index, producer_id, record)


def test_any_order_of_records_and_tombstones() -> None:
    """Compaction may leave any subset in any order: the last word on each key counts (bug 65)."""
    entries = [
        group(3, "m"),
        records.group_tombstone("g"),
        offset(5),
        offset_tombstone("g", T0),
    ]
    for order in permutations(entries):
        shard = make_shard()
        replay(shard, order)
        has_group = order.index(entries[0]) > order.index(entries[1])
        has_offset = order.index(entries[2]) > order.index(entries[3])
        assert has_generation(shard) == has_group
        assert (shard.offsets.get("g", T0) is not None) == has_offset
        found = shard.groups.find("g")
        removed, committed, deleted = (order.index(one) for one in entries[1:])
        is_simple = not committed < deleted < removed  # it had no offset when it was removed
        assert (found is not None) == (has_group or is_simple)
        if found is not None:
            state = found.state_at(LATEST_EPOCH)
            assert state is (ClassicState.STABLE if has_group else ClassicState.EMPTY)


def test_a_stored_generation_comes_back_whole() -> None:
    """Members, leader, assignments and timeouts of a loaded group are those written."""
    shard = make_shard()
    replay(shard, [group(3, "m", "n")])
    found = shard.classic.get("g")
    assert (found.generation_id, found.leader_id, found.protocol_name) == (3, "m", "range")
    assert {m.member_id: m.assignment for m in found.members.values()} == {"m": b"m", "n": b"n"}
    assert found.members["m"].rebalance_timeout_ms == 7000
    assert found.subscribed_topics is None
    assert found.is_subscribed_to("anything")


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("plain_first", [True, False])
def test_staged_against_plain_commit(*, commits: bool, plain_first: bool) -> None:
    """A staged offset takes effect at the marker unless a later plain commit is there (bug 67)."""
    shard = make_shard()
    if plain_first:
        shard.replay(0, -1, offset(1))
        shard.replay(1, 7, offset(2))
    else:
        shard.replay(0, 7, offset(2))
        shard.replay(1, -1, offset(1))
    assert shard.offsets.has_staged("g", T0)
    found = shard.offsets.get("g", T0)
    assert found is not None
    assert found.offset == 1
    shard.replay_end_transaction(7, committed=commits)
    shard.replay_end_transaction(8, committed=True)
    found = shard.offsets.get("g", T0)
    assert found is not None
    assert found.offset == (2 if commits and plain_first else 1)
    assert not shard.offsets.has_staged("g")


def test_tombstone_takes_staged_offsets_along() -> None:
    """Deleting an offset leaves nothing that a later marker could bring back (bug 67)."""
    shard = make_shard()
    shard.replay(0, 7, offset(2))
    shard.replay(1, 8, offset(3))
    shard.replay(2, -1, offset_tombstone("g", T0))
    for producer_id in (7, 8):
        shard.replay_end_transaction(producer_id, committed=True)
    assert shard.offsets.get("g", T0) is None
    assert not shard.offsets.has_staged("g")


def test_a_group_stays_when_its_last_offset_is_deleted() -> None:
    """A simple group exists from its first commit until its own tombstone."""
    shard = make_shard()
    replay(shard, [offset(5), offset_tombstone("g", T0)])
    found = shard.groups.find("g")
    assert found is not None
    assert found.is_empty
    assert shard.groups.ids() == ["g"]
    replay(shard, [records.group_tombstone("g")])
    assert shard.groups.find("g") is None


@given(st.integers(0, 10_000))
def test_revert_restores_everything(seed: int) -> None:
    """Whatever is replayed after a snapshot, reverting gives the state of the snapshot back."""
    rng = random.Random(seed)
    registry = SnapshotRegistry()
    shard = make_shard(registry)

    def step(number: int) -> None:
        group_id = rng.choice("gh")
        choice = rng.randrange(6)
        if choice == 0:
            shard.replay(number, -1, group(number, "m", group_id=group_id))
        elif choice == 1:
            shard.replay(number, -1, records.group_tombstone(group_id))
        elif choice == 2:
            shard.replay(number, rng.choice([-1, 7, 8]), offset(number, group_id))
        elif choice == 3:
            shard.replay(number, -1, offset_tombstone(group_id, T0))
        else:
            shard.replay_end_transaction(rng.choice([7, 8]), committed=rng.random() < 0.5)

    def state() -> str:
        offsets = shard.offsets
        return repr(
            [sorted(shard.groups.by_id.items(), key=itemgetter(0))]
            + [
                [
                    sorted(offsets.of_group(name, LATEST_EPOCH).items()),
                    offsets.staged_partitions(name),
                ]
                for name in "gh"
            ]
        )

    for number in range(10):
        step(number)
    registry.snapshot(10)
    before = state()
    for number in range(10, 20):
        step(number)
    registry.revert_to(10)
    assert sorted(state()) == sorted(before)


def test_legacy_offsets_are_read() -> None:
    """Keys of version 0, written before Kafka 0.9, still count."""
    shard = make_shard()
    key = schemas.LegacyOffsetCommitKey(group="g", topic="t", partition=0)
    value = schemas.LegacyOffsetCommitValue(offset=9, metadata="x", commit_timestamp=1)
    data = SERDE.encode(CoordinatorRecord(key, value, 0))
    decoded = SERDE.decode(*data)
    assert decoded is not None
    shard.replay(0, -1, decoded)
    found = shard.offsets.get("g", T0)
    assert found is not None
    assert (found.offset, found.metadata) == (9, "x")


def test_bytes() -> None:
    """Key: kind and fields; value: version and fields, flexible from version 4 of offsets on."""
    key, value = SERDE.encode(offset(5))
    assert key == b"\0\1\0\1g\0\1t\0\0\0\0"
    assert value == b"\0\4" + (5).to_bytes(8) + b"\xff" * 4 + b"\1" + b"\xff" * 8 + b"\0"
    key, value = SERDE.encode(offset_commit("g", T0, CommittedOffset(5, expire_timestamp_ms=7)))
    assert value == b"\0\1" + (5).to_bytes(8) + b"\0\0" + b"\xff" * 8 + (7).to_bytes(8)
    assert SERDE.encode(records.group_tombstone("g")) == (b"\0\2\0\1g", None)
    assert SERDE.decode(b"\0\x63rest", b"") is None


@given(
    st.tuples(st.text(max_size=9), st.text(max_size=9), st.integers(0, 2**31 - 1)),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=200),
    st.sampled_from((-1, 7)),
    st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
)
def test_bytes_of_offsets_are_those_of_the_messages(
    names: tuple[str, str, int],
    offset: int,
    epoch: int,
    metadata: str,
    expire_ms: int,
    topic_id: bytes,
) -> None:
    """Offsets are encoded without message objects; a decoded record is the same again."""
    group_id, topic, partition = names
    committed = CommittedOffset(offset, epoch, metadata, 1234, expire_ms, Uuid(topic_id))
    made = offset_commit(group_id, TopicPartition(topic, partition), committed)
    value = schemas.OffsetCommitValue(
        offset=offset,
        leader_epoch=epoch,
        metadata=metadata,
        commit_timestamp=1234,
        expire_timestamp=expire_ms,
        topic_id=Uuid(topic_id),
    )
    key = schemas.OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    message = CoordinatorRecord(key, value, made.value_version)
    stored = SERDE.encode(made)
    assert stored == SERDE.encode(message)
    if expire_ms == -1:  # the older version has neither epoch nor topic id
        assert SERDE.decode(*stored) == made


@given(st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_garbage_is_corrupt_or_unknown(key: bytes, value: bytes | None) -> None:
    """No bytes in the log raise anything but CorruptMessage or an unknown version."""
    try:
        SERDE.decode(key, value)
    except (CorruptMessage, UnsupportedVersion):
        return


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("group-1", 293427299),
        ("polygenelubricants", -(2**31)),
        ("é😀", 1996812),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    """String.hashCode as Java computes it; the partition is its absolute value's remainder."""
    assert string_hash(text) == value
    assert partition_for(text, 50) == (0 if value == -(2**31) else abs(value) % 50)


def test_hash_map_order() -> None:
    """Ties between protocols fall as they do in a java.util.HashMap."""
    names = ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert in_hash_map_order(names) == ["sticky", "range", "roundrobin", "cooperative-sticky"]

"""Bugs that other group coordinators had, on a virtual clock: docs/reliability.md by number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group import GroupCoordinatorConfig
from ottla.errors import ErrorCode
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.records.batches import iterate_batches
from ottla.replication.partition import Partition
from ottla.server.broker.coordinator_parts import TopicLog
from ottla.types import TopicPartition
from tests.coordinator.harness import Topics, VirtualClock, World, context
from tests.storage.logs import TOPIC_ID, new_log, put

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending

SESSION_MS = 10_000
REBALANCE_MS = 30_000
Committed = OffsetCommitRequest.OffsetCommitRequestTopic


def world(**settings: int) -> World:
    """Return a coordinator that leads one partition without an initial rebalance delay."""
    chosen: dict[str, Any] = {
        "group_initial_rebalance_delay_ms": 0,
        "offsets_topic_num_partitions": 1,
    } | settings
    return World(GroupCoordinatorConfig(**chosen)).elect()


def join(
    at: World,
    member: str = "",
    *,
    static: str | None = None,
    metadata: bytes = b"m",
    version: int = 3,
) -> Pending[Any]:
    """Send a JoinGroup; old versions join in one round."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member,
        group_instance_id=static,
        protocol_type="consumer",
        protocols=[protocol],
    )
    answer = at.coordinator.join_group(request, context(5 if static else version))
    at.advance(20)
    return answer


def wait(at: World, answer: Pending[Any], *, at_most_ms: int = REBALANCE_MS + 1000) -> Any:
    """Let time pass until the answer is there, not longer; return it."""
    while not answer.done and at_most_ms > 0:
        at.advance(250)
        at_most_ms -= 250
    assert answer.done
    return answer.value


def sync(at: World, member: str, generation: int, *others: str) -> Pending[Any]:
    """Send a SyncGroup; a leader names all members."""
    assignments = [
        SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=name.encode())
        for name in others
    ]
    request = SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member, assignments=assignments
    )
    answer = at.coordinator.sync_group(request, context(2))
    at.advance(20)
    return answer


def beat(at: World, member: str, generation: int) -> int:
    """Send a Heartbeat; return its error code."""
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
    answer = at.coordinator.heartbeat(request, context(2))
    at.advance(20)
    return int(answer.value.error_code)


def commit(at: World, offset: int, member: str = "", generation: int = -1, note: str = "") -> int:
    """Commit an offset of t-0; return the error code."""
    partition = Committed.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=note
    )
    topic = Committed(name="t", topic_id=Topics.id_of("t"), partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[topic],
    )
    answer = at.coordinator.offset_commit(request, context(8))
    at.advance(20)
    return int(answer.value.topics[0].partitions[0].error_code)


def committed(at: World) -> int:
    """Return the offset of t-0; -1 when there is none."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics(
        name="t", topic_id=Topics.id_of("t"), partition_indexes=[0]
    )
    request = OffsetFetchRequest(groups=[group(group_id="g", topics=[topic])])
    answer = at.coordinator.offset_fetch(request, context(8))
    at.advance(20)
    return int(answer.value.groups[0].topics[0].partitions[0].committed_offset)


def stable(at: World) -> tuple[str, int]:
    """Make a stable group of one; return member and generation."""
    joined = join(at).value
    assert sync(at, joined.member_id, joined.generation_id, joined.member_id).value.error_code == 0
    return joined.member_id, joined.generation_id


def restarted(at: World) -> World:
    """Let a new coordinator load the same log."""
    at.resign()
    at.coordinator = at.make()
    return at.elect()


def test_61_a_member_that_never_rejoins_does_not_hold_the_others() -> None:
    """PreparingRebalance ends with the rebalance timeout of the one who is silent."""
    at = world()
    first, generation = stable(at)
    second = join(at)
    assert not second.done
    assert wait(at, second).error_code == ErrorCode.NONE
    assert second.value.generation_id == generation + 1
    assert beat(at, first, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    mine = second.value.member_id
    assert sync(at, mine, generation + 1, mine).value.assignment == mine.encode()


@pytest.mark.parametrize("leader_beats", [False, True])
def test_61_a_leader_that_never_syncs_does_not_hold_the_others(*, leader_beats: bool) -> None:
    """CompletingRebalance ends too: the followers are told to join again, and can."""
    at = world()
    leader, generation = stable(at)
    follower = join(at)
    again = join(at, leader)
    assert again.value.generation_id == follower.value.generation_id == generation + 1
    waiting = sync(at, follower.value.member_id, generation + 1)
    assert not waiting.done
    name = follower.value.member_id
    while not waiting.done:
        at.advance(1000)
        beat(at, name, generation + 1)
        if leader_beats:
            beat(at, leader, generation + 1)
        assert at.clock.time_ms < 3 * REBALANCE_MS
    assert waiting.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    third = join(at, name)
    wait(at, third)
    mine = third.value.member_id
    assert sync(at, mine, third.value.generation_id, mine).value.error_code == ErrorCode.NONE


def test_61_a_static_member_next_to_one_that_is_not() -> None:
    """The static one restarts while the other's rebalance runs: the group gets stable."""
    at = world()
    static = join(at, static="one").value
    assert sync(at, static.member_id, 1, static.member_id).value.error_code == 0
    plain = join(at)
    reborn = join(at, static="one")
    assert [plain.done, reborn.done] == [True, True]  # at once, not when a deadline comes
    names = {plain.value.member_id, reborn.value.member_id}
    generation = reborn.value.generation_id
    answers = [sync(at, name, generation, *names) for name in sorted(names)]
    assert [answer.done for answer in answers] == [True, True]
    assert {answer.value.error_code for answer in answers} == {0}
    assert beat(at, static.member_id, generation) != ErrorCode.NONE


def test_62_a_group_never_gets_larger_than_its_limit() -> None:
    """Joins that wait in one rebalance are counted, ids that were handed out too."""
    at = world(group_max_size=3, group_initial_rebalance_delay_ms=1000)
    answers = [join(at) for _ in range(6)]
    at.advance(REBALANCE_MS)
    codes = [answer.value.error_code for answer in answers]
    assert codes.count(ErrorCode.NONE) == 3
    assert codes.count(ErrorCode.GROUP_MAX_SIZE_REACHED) == 3
    leader = next(one.value for one in answers if one.value.members)
    assert len(leader.members) == 3


def test_62_ids_that_were_handed_out_do_not_make_room() -> None:
    """Members that join with the ids they were given count like all others (KIP-394)."""
    at = world(group_max_size=3, group_initial_rebalance_delay_ms=1000)
    handed = [join(at, version=5).value for _ in range(6)]
    assert {answer.error_code for answer in handed} == {ErrorCode.MEMBER_ID_REQUIRED}
    answers = [join(at, answer.member_id, version=5) for answer in handed]
    at.advance(REBALANCE_MS)
    codes = [answer.value.error_code for answer in answers]
    assert codes.count(ErrorCode.NONE) == 3
    assert codes.count(ErrorCode.GROUP_MAX_SIZE_REACHED) == 3


def test_63_offsets_expire_after_a_load_when_they_would_have_without() -> None:
    """Retention is counted from the commit that was read, not from the load."""
    week_ms = GroupCoordinatorConfig().offsets_retention_ms
    at = world()
    assert commit(at, 5) == ErrorCode.NONE
    at.advance(week_ms - 3_600_000)
    at = restarted(at)
    assert committed(at) == 5
    at.advance(1_800_000)
    assert committed(at) == 5
    at.advance(5_400_000)
    assert committed(at) == -1


@pytest.mark.parametrize("size", [10, 100_000, 400_000])
def test_64_a_record_larger_than_the_buffer_is_loaded(size: int) -> None:
    """A group whose metadata fill more than one read loads, with a buffer of a few bytes."""
    at = world()
    joined = join(at, metadata=bytes(size)).value
    synced = sync(at, joined.member_id, 1, joined.member_id)
    assert synced.value.error_code == 0
    at.log.slice_bytes = 10
    at = restarted(at)
    assert beat(at, joined.member_id, 1) == ErrorCode.NONE  # what it says while it loads, too
    assert commit(at, 5, joined.member_id, 1) == ErrorCode.NONE


def test_64_the_log_gives_a_whole_batch_however_large() -> None:
    """What the loader reads of a partition begins with a whole batch, whatever its buffer."""
    log = new_log()
    put(log, size=900)
    replica = Partition(TopicPartition("t", 0), TOPIC_ID, log)
    replicas = SimpleNamespace(find=lambda *_: replica)
    topic_log = TopicLog("t", replicas, VirtualClock(), None)  # type: ignore[arg-type]  # all it needs
    (batch,) = iterate_batches(memoryview(topic_log.read(0, 0, 10)))
    assert batch.size > 900


def test_66_a_log_with_holes_is_loaded() -> None:
    """Compaction took batches out of the middle: the last word of each key is what counts."""
    at = world()
    for offset in range(20):
        assert commit(at, offset) == ErrorCode.NONE
    batches = at.log.batches[0]
    at.log.batches[0] = [batch for number, batch in enumerate(batches) if number % 3 == 1]
    at.log.batches[0].append(batches[-1])
    at = restarted(at)
    assert committed(at) == 19


def test_70_a_member_of_an_older_generation_changes_nothing() -> None:
    """It can neither commit nor be counted while and after the others rebalance."""
    at = world()
    old, generation = stable(at)
    assert commit(at, 5, old, generation) == ErrorCode.NONE
    newer = join(at)
    during = commit(at, 6, old, generation)
    assert during in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    wait(at, newer)
    assert commit(at, 7, old, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(at) < 7
    leave = LeaveGroupRequest(
        group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=old)]
    )
    answer = at.coordinator.leave_group(leave, context(4))
    at.advance(20)
    assert answer.value.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    mine = newer.value
    early = commit(at, 8, mine.member_id, mine.generation_id)
    assert early == ErrorCode.REBALANCE_IN_PROGRESS
    assert committed(at) < 7
    assert sync(at, mine.member_id, mine.generation_id, mine.member_id).value.error_code == 0


def changes_kept(at: World) -> int:
    """Return how many older values the timelines of the partition hold to go back to."""
    registry = at.coordinator.runtime._partitions[0]._registry
    assert len(registry.epochs) <= 2
    return sum(len(changes) for log in registry._undo_logs for changes in log.values())


def test_36_thousands_of_commits_leave_no_trail_in_memory() -> None:
    """Once committed, the timelines keep the newest state only, also while loading."""
    at = world()
    for offset in range(2000):
        assert commit(at, offset) == ErrorCode.NONE
    assert changes_kept(at) <= 2
    at = restarted(at)
    assert changes_kept(at) <= 2
    assert committed(at) == 1999


def test_37_expiry_waits_for_operations_under_way() -> None:
    """A timer that fires while a write is not committed sees and writes the newest state."""
    at = world()
    member, generation = stable(at)
    at.log.is_holding = True
    pending = at.coordinator.leave_group(
        LeaveGroupRequest(
            group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member)]
        ),
        context(4),
    )
    at.advance(3 * SESSION_MS)
    at.log.is_holding = False
    at.log.commit(0)
    at.advance(20)
    assert pending.done
    assert beat(at, member, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stable(at)[1] > generation


def test_a_join_without_a_deadline_and_a_member_without_a_session_are_stalls() -> None:
    """Also an assignment that no one sends, and a shard that expires no offsets."""
    at = world()
    member, _generation = stable(at)
    timers = at.shard().classic.timers
    assert not list(at.coordinator.runtime.stalls())
    waiting = join(at, static="other")
    assert not waiting.done
    assert not list(at.coordinator.runtime.stalls())
    timers.cancel(("join", "g"))
    assert list(at.coordinator.runtime.stalls()) == ["group g waits for joins without a deadline"]
    at = world()
    stable(at)
    timers = at.shard().classic.timers
    timers.cancel(("heartbeat", "g", member))
    timers.cancel("expire-group-metadata")
    assert list(at.coordinator.runtime.stalls()) == [
        "no timer expires offsets",
        f"member {member} of g has no session",
    ]


def test_37_expiry_never_runs_inside_another_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ends in the middle of a write is ended after it, and written behind it."""
    at = world()
    member, generation = stable(at)
    append = at.log.append

    def slow(partition: int, batch: bytearray, leader_epoch: int, **transaction: Any) -> int:
        monkeypatch.undo()
        at.pass_time(SESSION_MS + 1000)
        return append(partition, batch, leader_epoch, **transaction)

    monkeypatch.setattr(at.log, "append", slow)
    assert commit(at, 5, member, generation) == ErrorCode.NONE
    assert committed(at) == 5
    keys = [next(iter(batch.records())).key for batch in at.log.record_batches(0)]
    assert [key[:2] for key in keys[-2:] if key is not None] == [b"\0\1", b"\0\2"]
    assert beat(at, member, generation) == ErrorCode.UNKNOWN_MEMBER_ID

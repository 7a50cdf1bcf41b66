"""Target assignments of large groups are computed and written in slices, while members go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group import slices
from ottla.errors import ErrorCode
from tests.coordinator.harness import World
from tests.transcripts.consumer_group_commands import ConsumerTranscript
from tests.transcripts.share_group_commands import ShareTranscript
from tests.transcripts.streams_group_commands import StreamsTranscript

if TYPE_CHECKING:
    from collections.abc import Iterable

COUNT = 24
GONE = 6
NAMES = [f"m{number:03}" for number in range(COUNT)]
NEVER_MS = 10**9


class Members:
    """The members of one group, and what they are assigned."""

    def __init__(self, kind: str) -> None:
        self.world = World()
        self.world.topics.counts["t"] = COUNT
        self.assign_every(0)
        self.kind = kind
        commands: type[ConsumerTranscript]
        self.verb, commands = {
            "consumer": ("beat", ConsumerTranscript),
            "share": ("share", ShareTranscript),
            "streams": ("stream", StreamsTranscript),
        }[kind]
        self.commands = commands(self.world.elect())
        self.owned: dict[str, str] = {}

    def assign_every(self, interval_ms: int) -> None:
        """Set the assignment interval."""
        world = self.world
        interval: dict[str, Any] = {"assignment_interval_ms": interval_ms}
        world.consumer_config = replace(world.consumer_config, **interval)
        world.share_config = replace(world.share_config, **interval, max_size=10**6)
        world.streams_config = replace(
            world.streams_config, **interval, initial_rebalance_delay_ms=0
        )

    @property
    def group(self) -> Any:
        """The group's state."""
        return getattr(self.world.shard(), self.kind).get("g")

    def beat(self, name: str, *options: str) -> str:
        """Send a heartbeat of a member that has done what it was last told."""
        joins = self.commands.generations.get(f"g/{name}", 0) == 0
        owned = {"consumer": "owned", "streams": "active"}.get(self.kind)
        told = [] if owned is None or joins or options else [f"{owned}={self.owned.get(name, '')}"]
        topology = ["topology=stateless"] if self.kind == "streams" and joins else []
        trace = self.commands.run(" ".join([self.verb, name, *told, *topology, *options]))
        answer = next(line for line in trace if line.startswith(f"{self.verb} {name}: "))
        if self.kind == "streams" and " active=" in answer:
            self.owned[name] = answer.partition(" active=")[2].split(" ")[0]
        elif "[" in answer:
            self.owned[name] = answer.partition("[")[2].rstrip("]").replace(",", "+")
        return answer

    def settle(self, names: Iterable[str]) -> None:
        """Let all members give up and take what they should."""
        for _ in range(4):
            for name in names:
                self.beat(name)

    def targets(self) -> dict[str, int]:
        """Return how many partitions each member should have."""
        found = {}
        for name, target in self.group.target.items():
            partitions = target.active if self.kind == "streams" else target
            found[name] = sum(len(one) for one in partitions.values())
        return found


@pytest.fixture(params=["consumer", "share", "streams"])
def members(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Members:
    """Return a group that counts as large, whose members share the partitions."""
    monkeypatch.setattr(slices, "SLICE", 4)
    monkeypatch.setattr(slices, "LARGE", COUNT // 2)
    made = Members(request.param)
    made.beat(NAMES[0])
    made.assign_every(NEVER_MS)
    for name in NAMES[1:]:
        made.beat(name)
    made.assign_every(0)
    made.beat(NAMES[0])
    made.world.advance(1000)
    made.settle(NAMES)
    made.world.advance(1000)
    made.settle(NAMES)
    return made


def test_a_change_is_assigned_in_slices(members: Members) -> None:
    """Until the last slice members keep epoch and assignment; then all is assigned again."""
    group = members.group
    assert group.assignment_epoch == group.epoch
    assert members.targets() == dict.fromkeys(NAMES, 1)
    left = NAMES[GONE:]
    for name in NAMES[:GONE]:
        members.beat(name, "epoch=-1")
    before = group.assignment_epoch
    assert f"epoch={before}" in members.beat(left[0])
    begin_ms = members.world.clock.now_ms()
    slices = 0
    while group.assignment_epoch == before:
        members.world.advance(1)
        slices += 1
        if slices == 3:
            assert f"epoch={before}" in members.beat(left[1])
    assert slices > 4
    assert group.assignment_timestamp_ms <= begin_ms + 1
    members.settle(left)
    assert sum(members.targets().values()) == (COUNT)
    assert f"epoch={group.epoch}" in members.beat(left[0])


def test_who_leaves_meanwhile_gets_no_target(members: Members) -> None:
    """The group epoch has risen: the next heartbeat begins another computation."""
    members.beat(NAMES[0], "epoch=-1")
    members.beat(NAMES[1])
    members.world.advance(2)
    members.beat(NAMES[2], "epoch=-1")
    members.world.advance(1000)
    assert NAMES[2] not in members.group.target
    assert members.group.assignment_epoch == members.group.epoch - 1
    members.beat(NAMES[1])
    members.world.advance(1000)
    assert members.group.assignment_epoch == members.group.epoch
    assert set(members.targets()) == set(NAMES) - {NAMES[0], NAMES[2]}


def test_a_slice_that_cannot_be_written_ends_the_computation(members: Members) -> None:
    """What was written before stays; the next heartbeat begins again."""
    members.beat(NAMES[0], "epoch=-1")
    members.beat(NAMES[1])
    log = members.world.log
    end = log.end_offset(0)
    while log.end_offset(0) == end:
        log.next_error = None
        members.world.advance(1)
    log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    members.world.advance(1000)
    group = members.group
    assert group.assignment_epoch < group.epoch
    members.beat(NAMES[1])
    members.world.advance(1000)
    assert group.assignment_epoch == group.epoch


def test_a_member_whose_end_cannot_be_written_ends_with_its_session(members: Members) -> None:
    """It left while too few replicas were in sync, and does not say so again."""
    gone, *staying = NAMES
    members.world.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    members.beat(gone, "epoch=-1")
    assert gone in members.group.members
    members.world.log.next_error = None
    for _ in range(8):
        members.world.advance(10_000)
        for name in staying:
            members.beat(name)
    assert set(members.group.members) == set(staying)
    assert set(members.targets()) == set(staying)


def test_a_new_coordinator_computes_again(members: Members) -> None:
    """Some slices were written before the coordinator moved; no member has a target twice."""
    members.beat(NAMES[0], "epoch=-1")
    members.beat(NAMES[1])
    members.world.advance(5)
    members.world.elect()
    members.beat(NAMES[1])
    members.world.advance(1000)
    members.settle(NAMES[1:])
    group = members.group
    assert group.assignment_epoch == group.epoch
    assert set(members.targets()) == set(NAMES[1:])


@pytest.mark.parametrize(
    ("timestamp_ms", "is_expected"),
    [(0, True), (1000, False), (900, True), (901, False), (1001, True)],
)
def test_an_assignment_of_the_future_makes_no_group_wait(
    timestamp_ms: int, *, is_expected: bool
) -> None:
    """The clock of the coordinator before was ahead, by an hour perhaps."""
    assert slices.is_due(timestamp_ms, interval_ms=100, now_ms=1000) is is_expected
    assert slices.is_due(timestamp_ms, interval_ms=0, now_ms=1000)


def test_only_groups_that_read_a_changed_topic_compare_its_metadata(members: Members) -> None:
    """However many topics change, each group is asked once."""
    coordinator, group = members.world.coordinator, members.group
    assert group.is_fresh
    coordinator.on_topics_changed([f"other-{number}" for number in range(1000)])
    assert group.is_fresh
    coordinator.on_topics_changed([*(f"other-{number}" for number in range(1000)), "t"])
    assert not group.is_fresh
    members.beat(NAMES[0])
    assert group.is_fresh

"""Members of a streams group in a cluster with faults (KIP-1071): no active task has two owners.

They speak the protocol themselves: a process joins, gives up tasks before it says so, takes what it
is given, leaves or is silent beyond its session. In the end the living share all tasks.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds
from tests.simulation.clusters.owners import OwnerChecks

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.coordinator.group.streams.group import StreamsMember
    from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatResponse
    from ottla.testing.simulation import SimulatedCluster

_Topology = StreamsGroupHeartbeatRequest.Topology
TOPIC, GROUP, COUNT, MEMBERS = "streamed", "tasks", 5, 3
SETTINGS: Final = {
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "4000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
_SUBTOPOLOGY: Final = "0"
_HEARTBEAT_S: Final = 0.5
_MAX_LIFE_S: Final = 20.0
_MAX_SILENCE_S: Final = 8.0
_ADMIN_LIMIT_S: Final = 60.0
_LEAVES, _JOINS = -1, 0
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


def has_streams(seed: int) -> bool:
    """Whether a seed has these members; they are there with those of a consumer group."""
    return seed % 7 == 6


def _active(member: StreamsMember) -> set[tuple[str, int]]:
    return {
        (name, index)
        for tasks in (member.assigned, member.pending_revocation)
        for name, indexes in tasks.active.items()
        for index in indexes
    }


class Process:
    """One member: what it runs, and what it says next."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = _JOINS
        self.active: frozenset[int] = frozenset()
        self._has_told = False
        """Whether a response came after the last report of what runs."""

    def request(self, *, leaves: bool = False) -> StreamsGroupHeartbeatRequest:
        """Return the next heartbeat; one that joins says everything."""
        joins = self.epoch == _JOINS
        tasks: list[TaskIds] | None = None
        if joins or not self._has_told:
            tasks = [TaskIds(subtopology_id=_SUBTOPOLOGY, partitions=sorted(self.active))]
        empty: list[TaskIds] | None = None if tasks is None else []
        return StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=_LEAVES if leaves else self.epoch,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=20_000 if joins else -1,
            topology=_topology() if joins else None,
            active_tasks=[] if joins else tasks,
            standby_tasks=empty,
            warmup_tasks=empty,
            process_id=self.name if joins else None,
        )

    def take(self, answer: StreamsGroupHeartbeatResponse) -> None:
        """Take new tasks, after the others were given up: the next heartbeat says so."""
        self.epoch = answer.member_epoch
        self._has_told = True
        if answer.active_tasks is not None:
            given = frozenset(index for one in answer.active_tasks for index in one.partitions)
            self._has_told = given == self.active
            self.active = given

    def report_again(self) -> None:
        """Report everything with the next heartbeat, as Kafka's client after a failure."""
        self._has_told = False

    def forget(self) -> None:
        """Give up everything, and join again."""
        self.epoch, self.active, self._has_told = _JOINS, frozenset(), False


def _topology() -> StreamsGroupHeartbeatRequest.Topology:
    one = _Topology.Subtopology(
        subtopology_id=_SUBTOPOLOGY,
        source_topics=[TOPIC],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return _Topology(epoch=0, subtopologies=[one])


class StreamsWork:
    """What the members do; `is_over` ends it once the living run all tasks, each once."""

    def __init__(self, seed: int, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.rng = Random(f"{seed}/streams")
        self.checks = OwnerChecks(StreamsGroup, GROUP, _active)
        self.is_over = False
        self.counts: dict[str, int] = {}
        self._living: dict[str, Process] = {}
        self._names = 0
        self._has_shared = False

    async def create(self) -> None:
        """Create the topic."""
        async with asyncio.timeout(_ADMIN_LIMIT_S), self.cluster.admin() as admin:
            await admin.create_topic(TOPIC, COUNT, 3, if_not_exists=True)

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run until `is_over`."""
        return [self._take_part() for _ in range(MEMBERS)]

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _is_done(self) -> bool:
        running = sorted(index for one in self._living.values() for index in one.active)
        if self.is_over and len(self._living) == MEMBERS and running == list(range(COUNT)):
            self._has_shared = True
        return self._has_shared

    async def _take_part(self) -> None:
        """Be one process after the other."""
        while not self._is_done():
            self._names += 1
            process = self._living[f"p{self._names}"] = Process(f"p{self._names}")
            lasts_s = self.cluster.loop.time() + self.rng.random() * _MAX_LIFE_S
            async with self.cluster.admin() as admin:
                while not self._is_done() and (self.is_over or self.cluster.loop.time() < lasts_s):
                    await self._beat(admin, process)
                    await asyncio.sleep(self._pause_s())
                if not self._is_done() and self.rng.random() < 0.5:
                    self._count("leaves")
                    await self._send(admin, process.request(leaves=True))
            if not self._is_done():
                del self._living[process.name]

    def _pause_s(self) -> float:
        if not self.is_over and self.rng.random() < 0.02:
            self._count("silences")
            return self.rng.random() * _MAX_SILENCE_S
        return _HEARTBEAT_S

    async def _beat(self, admin: AsyncAdmin, process: Process) -> None:
        answer = await self._send(admin, process.request())
        if answer is None:
            process.report_again()
            return
        code = ErrorCode(answer.error_code)
        if code in _LOST:
            self._count("fenced")
            process.forget()
        elif not code:
            self._count("heartbeats")
            process.take(answer)
        else:
            process.report_again()

    @staticmethod
    async def _send(
        admin: AsyncAdmin, request: StreamsGroupHeartbeatRequest
    ) -> StreamsGroupHeartbeatResponse | None:
        """Send to the coordinator; None for what a member tries again."""
        with suppress(KafkaError):
            answer: StreamsGroupHeartbeatResponse = await admin._coordinator_call(
                GROUP, request, error_of=_moved, timeout=5
            )
            return answer
        return None

    def check(self) -> None:
        """Check what the coordinators have replayed."""
        assert not self.checks.violations, self.checks.violations[0]
        assert self.checks.changes, "no process joined"


def _moved(answer: StreamsGroupHeartbeatResponse) -> int:
    """Return the code for which the coordinator is looked up again."""
    moved = (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
    return answer.error_code if answer.error_code in moved else 0

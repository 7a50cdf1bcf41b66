"""Consumers of the classic protocol as state machines that make mistakes, for the simulation."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from tests.coordinator.harness import context

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.purgatory.pending import Pending
    from tests.coordinator.harness import World

PROTOCOL = JoinGroupRequest.JoinGroupRequestProtocol
COMMIT_TOPIC = OffsetCommitRequest.OffsetCommitRequestTopic
PARTITIONS = 8
START_OVER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


@dataclass
class History:
    """What the clients were told, held against what may be told."""

    assignments: dict[tuple[str, int], int] = field(default_factory=dict)
    newest_generation: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    commit_count: int = 0
    assignment_count: int = 0
    sync_count: int = 0
    trace: list[str] = field(default_factory=list)

    def on_assignment(self, group_id: str, generation: int, member_id: str, data: bytes) -> None:
        """Check an assignment: one a generation, of this member, and never of an older one."""
        assignment = json.loads(data)
        self.sync_count += 1
        assert member_id in assignment["members"], (member_id, assignment)
        assert assignment["generation"] == generation
        first = self.assignments.setdefault((group_id, generation), assignment["number"])
        assert first == assignment["number"], "two assignments in one generation"
        newest = self.newest_generation.get(group_id, 0)
        assert generation >= newest, f"generation {generation} handed out after {newest}"
        self.newest_generation[group_id] = generation


class Client:
    """One consumer process: joins, syncs, heartbeats, commits; may stop at any moment."""

    def __init__(
        self, name: str, group_id: str, world: World, history: History, instance: str | None
    ) -> None:
        self.name = name
        self.group_id = group_id
        self.world = world
        self.history = history
        self.instance = instance
        self.version = 9
        self.is_alive = True
        self.incarnation = 0
        self._forget()

    def _forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.phase = "out"
        self.is_waiting = False
        self.since_ms = 0
        self.assignment: dict[str, Any] | None = None
        self.incarnation += 1

    def crash(self) -> None:
        """Stop without a word; what was asked is never listened to."""
        self.is_alive = False
        self._forget()

    def restart(self) -> None:
        """Restart, without memory."""
        self.is_alive = True
        self._forget()

    # ---------------------------------------------------------------- what it may do next

    def act(self) -> None:
        """Do the next thing that a consumer would do, unless it waits for an answer."""
        if not self.is_alive or self.is_waiting:
            return
        if self.phase == "out":
            self.join()
        elif self.phase == "joined":
            self.sync([])
        elif self.phase == "stable":
            self.heartbeat()

    def join(self) -> None:
        """Join, or rejoin."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="sim",
            protocols=[PROTOCOL(name="p", metadata=self.name.encode())],
        )
        self.phase = "joining"
        self._ask(self.world.coordinator.join_group(request, self._context()), self._on_join)

    def _on_join(self, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.phase = "out"
        elif code == ErrorCode.NONE:
            self.member_id = answer.member_id
            self.generation = answer.generation_id
            self.phase = "joined"
            if answer.leader == self.member_id and not answer.skip_assignment:
                self.sync([member.member_id for member in answer.members])
        else:
            self._on_error(code)

    def sync(self, members: list[str]) -> None:
        """Ask for an assignment; as a leader give one."""
        parts = []
        if members:
            self.history.assignment_count += 1
            for index, member_id in enumerate(members):
                assignment = {
                    "generation": self.generation,
                    "number": self.history.assignment_count,
                    "members": members,
                    "partitions": list(range(index, PARTITIONS, len(members))),
                }
                parts.append(
                    SyncGroupRequest.SyncGroupRequestAssignment(
                        member_id=member_id, assignment=json.dumps(assignment).encode()
                    )
                )
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="sim",
            protocol_name="p",
            assignments=parts,
        )
        self.phase = "syncing"
        self._ask(self.world.coordinator.sync_group(request, self._context(5)), self._on_sync)

    def _on_sync(self, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code != ErrorCode.NONE:
            self._on_error(code)
            return
        if answer.assignment:  # the leader may not know a static member's newest id
            assignment = json.loads(answer.assignment)
            if self.instance is None:
                data = answer.assignment
                self.history.on_assignment(self.group_id, self.generation, self.member_id, data)
            self.assignment = assignment
        self.phase = "stable"

    def heartbeat(self) -> None:
        """Say that it lives."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        self._ask(self.world.coordinator.heartbeat(request, self._context(4)), self._on_heartbeat)

    def _on_heartbeat(self, answer: Any) -> None:
        if answer.error_code:
            self._on_error(ErrorCode(answer.error_code))

    def commit(self) -> None:
        """Commit the next number at the group's one offset, and remember it when acknowledged."""
        if self.phase != "stable" or self.is_waiting:
            return
        self.history.commit_count += 1
        number = self.history.commit_count
        partition = COMMIT_TOPIC.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=number, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[COMMIT_TOPIC(name="t", partitions=[partition])],
        )

        def on_commit(answer: Any) -> None:
            code = answer.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                before = self.history.acknowledged.get(self.group_id, 0)
                self.history.acknowledged[self.group_id] = max(before, number)
            else:
                self._on_error(ErrorCode(code))

        self._ask(self.world.coordinator.offset_commit(request, self._context(9)), on_commit)

    def leave(self) -> None:
        """Leave the group, then join again later."""
        if not self.member_id or self.instance is not None:
            return
        request = LeaveGroupRequest(
            group_id=self.group_id,
            members=[LeaveGroupRequest.MemberIdentity(member_id=self.member_id)],
        )
        self.world.coordinator.leave_group(request, self._context(5))
        self.crash()

    # ---------------------------------------------------------------- inside

    def _on_error(self, code: ErrorCode) -> None:
        """React as consumers do."""
        assert code != ErrorCode.UNKNOWN_SERVER_ERROR
        if code in START_OVER:
            self._forget()
        elif code in REJOIN or self.phase in ("joining", "syncing"):
            self.phase = "out"

    def _context(self, version: int | None = None) -> Any:
        return context(self.version if version is None else version, self.name)

    def _ask(self, pending: Pending[Any], listen: Callable[[Any], None]) -> None:
        incarnation = self.incarnation
        self.is_waiting = True
        self.since_ms = self.world.clock.time_ms

        def finished(done: Pending[Any]) -> None:
            self.history.trace.append(
                f"{self.world.clock.time_ms} {self.name} {self.phase} "
                f"{getattr(done.value, 'error_code', '')} {self.member_id} {self.generation}"
            )
            if incarnation == self.incarnation:
                self.is_waiting = False
                listen(done.value)

        pending.on_done(finished)

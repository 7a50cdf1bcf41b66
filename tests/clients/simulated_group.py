"""A group coordinator for simulated clusters: the classic protocol, one group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from tests.clients.simulated import FakeCluster


class FakeGroup:
    """Members, a generation, and joins and syncs that wait for each other."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.generation = 0
        self.members: dict[str, JoinGroupRequest] = {}
        self.joining: dict[str, Pending[Any]] = {}
        self.syncing: dict[str, Pending[Any]] = {}
        self.assignments: dict[str, bytes] | None = None
        self.remaining: list[str] = []
        self.leader_came_back = False  # a static one (KIP-345): the division stays
        self._count = 0
        cluster.handlers[JoinGroupRequest] = self.join
        cluster.handlers[SyncGroupRequest] = self.sync
        cluster.handlers[HeartbeatRequest] = self.heartbeat
        cluster.handlers[LeaveGroupRequest] = self.leave

    def join(self, request: JoinGroupRequest) -> Any:
        """Wait until every known member has joined."""
        member_id = request.member_id
        if not member_id:
            self._count += 1
            fresh = f"m{self._count}"
            return JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED,
                protocol_name=None,
                leader="",
                member_id=fresh,
                members=[],
            )
        self.members[member_id] = request
        pending: Pending[Any] = Pending()
        self.joining[member_id] = pending
        self._complete_join()
        return pending

    def _complete_join(self) -> None:
        if not self.members or set(self.joining) != set(self.members):
            return
        self.generation += 1
        if self.leader_came_back and self.assignments:
            self.assignments = dict(zip(self.members, self.assignments.values(), strict=True))
        else:
            self.assignments = None
        leader = next(iter(self.members))
        common = [
            one.name
            for one in self.members[leader].protocols
            if all(one.name in {p.name for p in m.protocols} for m in self.members.values())
        ]
        waiting, self.joining = self.joining, {}
        for member_id, pending in waiting.items():
            members = [
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=name,
                    group_instance_id=request.group_instance_id,
                    metadata=next(p.metadata for p in request.protocols if p.name == common[0]),
                )
                for name, request in self.members.items()
            ]
            pending.complete(
                JoinGroupResponse(
                    error_code=0,
                    generation_id=self.generation,
                    protocol_type="consumer",
                    protocol_name=common[0],
                    leader=leader,
                    member_id=member_id,
                    members=members if member_id == leader else [],
                    skip_assignment=self.leader_came_back,
                )
            )

    def _check(self, member_id: str, generation: int) -> int:
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def sync(self, request: SyncGroupRequest) -> Any:
        """Wait for the leader's assignment."""
        code = self._check(request.member_id, request.generation_id)
        if not code and self.joining:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            return SyncGroupResponse(error_code=code, assignment=b"")
        if request.assignments:
            self.assignments = {one.member_id: one.assignment for one in request.assignments}
        pending: Pending[Any] = Pending()
        self.syncing[request.member_id] = pending
        if self.assignments is not None:
            waiting, self.syncing = self.syncing, {}
            for member_id, one in waiting.items():
                assignment = self.assignments.get(member_id, b"")
                one.complete(SyncGroupResponse(error_code=0, assignment=assignment))
        return pending

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Report rebalances."""
        code = self._check(request.member_id, request.generation_id)
        if not code and self.joining:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(error_code=code)

    def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove a member."""
        for one in request.members:
            self.expel(one.member_id)
        return LeaveGroupResponse(error_code=0)

    def expel(self, member_id: str) -> None:
        """Remove a member and let the others rebalance."""
        self.remaining.append(member_id)
        self.members.pop(member_id, None)
        self.joining.pop(member_id, None)
        self.generation += 1

"""A worker's membership of its group, on the membership core of the clients.

The herder hears of each step by `GroupEvents`, and answers from its own thread: it calls
`join` when it is prepared, and `accept` when an assignment is carried out.

Kafka: org.apache.kafka.connect.runtime.distributed.{WorkerCoordinator, WorkerGroupMember}.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from ottla.clients.membership.classic import ClassicGroupMember, GroupState
from ottla.connect.distributed.protocol import (
    PROTOCOL_TYPE,
    VERSIONS,
    Assignment,
    decode_assignment,
    decode_state,
    encode_assignment,
    encode_state,
)
from ottla.errors import CorruptMessage
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clients.client import Client
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.membership.classic import GroupMemberSettings
    from ottla.connect.distributed.protocol import WorkerState
    from ottla.protocol.apis.join_group import JoinGroupResponse
    from ottla.types import Buffer

    class GroupEvents(Protocol):
        """Who hears of the membership; called in the member's loop, never waits."""

        def prepare(self, life: int) -> None:
            """Get ready to join, then call `join` with the number of the membership."""

        def divide(
            self,
            version: int,
            states: Mapping[str, WorkerState],
            member_id: str,
            generation: int,
            answer: Callable[[Mapping[str, Assignment]], None],
        ) -> None:
            """Divide the work of all, as leader, and call `answer`."""

        def assigned(
            self, assignment: Assignment, member_id: str, generation: int, version: int
        ) -> None:
            """Carry out an assignment, then call `accept`."""

        def lost(self) -> None:
            """Stop everything: the membership has ended."""


log = logging.getLogger("ottla.connect")
_LOG_AGAIN_MS: Final = 30_000
"""Between two lines on the same error, which each attempt has."""


class ConnectMember(ClassicGroupMember):
    """The membership of one worker; all calls come from its loop."""

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        settings: GroupMemberSettings,
        client: Client,
        coordinator: CoordinatorLookup,
        events: GroupEvents,
        protocols: Mapping[str, int] = VERSIONS,
    ) -> None:
        """Take the protocols that this worker speaks, the preferred one first."""
        super().__init__(settings, client, coordinator)
        self._events = events
        self._protocols = protocols
        self._state: WorkerState | None = None
        self._assignment: Assignment | None = None
        self._awaits_herder = False
        """Whether the herder has heard of the present state, and will answer."""
        self._is_stopped = False
        self._life = 0
        """Counts memberships: the answer to a question of an earlier one states lost work."""
        self._log_at_ms: dict[int, int] = {}
        self._known_ms = 0
        """When the coordinator was known last."""

    def poll(self, now_ms: int) -> None:
        """Do what is due, and notify the herder of what it has to do."""
        if self._is_stopped:
            return
        super().poll(now_ms)
        self._log_errors(now_ms)
        if self.coordinator.known:
            self._known_ms = now_ms
        elif self.is_member and now_ms > self._known_ms + self._member.session_timeout_ms:
            self._forget(lost=True)  # the group goes on without this worker
        if self._awaits_herder:
            return
        if self.state is GroupState.ASSIGNED and self._assignment is not None:
            self._awaits_herder = True
            version = self._protocols[self.protocol_name or ""]
            self._events.assigned(self._assignment, self.member_id, self.generation, version)
        elif self.wants_to_join:
            self._awaits_herder = True
            self._events.prepare(self._life)

    def _log_errors(self, now_ms: int) -> None:
        """Log errors that need an operator, such as a missing right; the member tries again."""
        while (error := self.errors.pop()) is not None:
            if now_ms >= self._log_at_ms.get(error.code, 0):
                self._log_at_ms[error.code] = now_ms + _LOG_AGAIN_MS
                log.error("the worker cannot join its group: %s", error)

    def join(self, state: WorkerState, life: int) -> None:
        """Join with a worker's state, after `prepare`."""
        if life != self._life:
            return
        self._awaits_herder = False
        self._state = state
        if self.wants_to_join:
            self.may_join()

    def accepted(self, generation: int) -> None:
        """Make an assignment the current one, if it is still that of this generation."""
        if self.state is GroupState.ASSIGNED and self.generation == generation:
            self._awaits_herder = False
            self.accept()
            self.client.transport.wake()

    # ------------------------------------------------------------ hooks of the member

    def _is_prepared(self) -> bool:
        return self._state is not None

    def _join_metadata(self) -> Mapping[str, bytes]:
        state = self._state
        assert state is not None
        current = Assignment("", "", state.offset, state.work)
        if self._assignment is not None:
            leader, url = self._assignment.leader_id, self._assignment.leader_url
            current = Assignment(leader, url, self._assignment.offset, state.work)
        return {
            name: encode_state(state, version, current) for name, version in self._protocols.items()
        }

    def _assign(self, response: JoinGroupResponse) -> Pending[Mapping[str, bytes]]:
        result: Pending[Mapping[str, bytes]] = Pending()
        if response.skip_assignment:
            result.complete({})
            return result
        version = self._protocols[self.protocol_name or ""]
        try:
            states = {it.member_id: decode_state(it.metadata) for it in response.members}
        except CorruptMessage as error:
            result.fail(error)
            return result

        def answer(assignments: Mapping[str, Assignment]) -> None:
            encoded = {it: encode_assignment(of, version) for it, of in assignments.items()}
            if not result.done:
                result.complete(encoded)
            self.client.transport.wake()

        self._events.divide(version, states, self.member_id, self.generation, answer)
        return result

    def _take_assignment(self, data: Buffer) -> None:
        self._assignment = decode_assignment(data)
        self._awaits_herder = False

    def _ended(self, *, lost: bool) -> None:
        self._assignment = None
        self._awaits_herder = False
        self._life += 1
        if lost:
            self._state = None  # it says what this worker no longer has
            self._events.lost()

    def end(self) -> None:
        """Leave the group for good; a rebalance follows at the others."""
        self.leave("the worker stops")
        self._is_stopped = True

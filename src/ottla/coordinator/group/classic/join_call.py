"""A JoinGroup request while it is processed.

Kafka: the arguments of GroupMetadataManager.classicGroupJoinToClassicGroup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.coordinator.group.responses import join_error
from ottla.coordinator.runtime.result import Result, empty_result

if TYPE_CHECKING:
    from ottla.coordinator.group.context import RequestContext
    from ottla.errors import ErrorCode
    from ottla.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
    from ottla.purgatory.pending import Pending


@dataclass(frozen=True, slots=True)
class Join:
    """A join in progress: the request, its context and the pending response."""

    request: JoinGroupRequest
    context: RequestContext
    answer: Pending[JoinGroupResponse]
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def timeouts_ms(self) -> tuple[int, int]:
        """Rebalance and session timeout; version 0 has only the latter."""
        session_ms = self.request.session_timeout_ms
        if self.context.api_version == 0:
            return session_ms, session_ms
        return self.request.rebalance_timeout_ms, session_ms

    def refuse(self, error: ErrorCode, member_id: str = "") -> Result[None]:
        """Complete the response with an error."""
        self.answer.complete(join_error(error, member_id))
        return empty_result()


def make_join(
    request: JoinGroupRequest, context: RequestContext, answer: Pending[JoinGroupResponse]
) -> Join:
    """Return the join of a request."""
    protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    return Join(request, context, answer, protocols)

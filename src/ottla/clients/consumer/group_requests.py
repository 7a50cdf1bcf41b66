"""The requests of a member of a classic group.

Kafka: the request builders of org.apache.kafka.clients.consumer.internals.AbstractCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.consumer.assignors.interface import (
    PROTOCOL_TYPE,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.consumer.assignors.interface import Assignment, Member
    from ottla.clients.offsets import CommitIdentity
    from ottla.clients.settings import ValidatedSettings

MAX_REASON_CHARS = 255


class GroupRequests:
    """Builds the requests with the values of the settings."""

    def __init__(self, settings: ValidatedSettings, group_id: str) -> None:
        self._settings = settings
        self._group_id = group_id

    def join(
        self, member_id: str, subscriptions: Mapping[str, Member], reason: str
    ) -> JoinGroupRequest:
        """Return JoinGroup with a subscription per assignor; the broker logs the reason."""
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(
                    name=name, metadata=encode_subscription(member)
                )
                for name, member in subscriptions.items()
            ],
            reason=reason[:MAX_REASON_CHARS],
        )

    def sync(
        self, member: CommitIdentity, protocol_name: str | None, assignment: Assignment
    ) -> SyncGroupRequest:
        """Return SyncGroup; the leader's contains the assignment of all members."""
        return SyncGroupRequest(
            group_id=self._group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=name, assignment=encode_assignment(partitions)
                )
                for name, partitions in assignment.items()
            ],
        )

    def heartbeat(self, member: CommitIdentity) -> HeartbeatRequest:
        """Return Heartbeat."""
        return HeartbeatRequest(
            group_id=self._group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )

    def leave(self, member_id: str, reason: str) -> LeaveGroupRequest:
        """Return LeaveGroup."""
        return LeaveGroupRequest(
            group_id=self._group_id,
            members=[LeaveGroupRequest.MemberIdentity(member_id=member_id, reason=reason)],
        )

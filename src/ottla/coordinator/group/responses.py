"""Error responses of JoinGroup and SyncGroup, and errors that heartbeats have in common.

Kafka: the builders of JoinGroupResponseData and SyncGroupResponseData; the throwIf… methods of
GroupCoordinatorService and GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.coordinator.group.member_group import JOIN_EPOCH
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.join_group import JoinGroupResponse
from ottla.protocol.apis.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return the response to a failed join."""
    return JoinGroupResponse(
        error_code=code, protocol_name=None, leader="", member_id=member_id, members=[]
    )


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    """Return the response to a failed sync."""
    return SyncGroupResponse(error_code=code, assignment=b"")


def require(condition: bool, text: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise INVALID_REQUEST unless a condition holds."""
    if not condition:
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def require_filled(text: str | None, name: str) -> None:
    """Raise INVALID_REQUEST for a text that is there but blank."""
    require(text is None or bool(text.strip()), f"{name} can't be empty.")


def fenced_epoch(
    kind: str, relation: str, epoch: int, known_epoch: int, detail: str = ""
) -> KafkaError:
    """Return the error of a heartbeat whose epoch is greater or smaller than the member's."""
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({known_epoch}){detail}. "
        "The member must abandon all its partitions and rejoin.",
    )


def check_epoch(
    kind: str, member: Any, epoch: int, owned: T, is_within: Callable[[T, Any], bool]
) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the member is at this epoch, or joins.

    The previous epoch is accepted where the response with the new one may have been lost: if what
    the member owns is within its assignment.
    """
    if epoch in (member.member_epoch, JOIN_EPOCH):
        return
    if epoch > member.member_epoch:
        relation = "greater"
    elif epoch == member.previous_member_epoch and is_within(owned, member):
        return
    else:
        relation = "smaller"
    raise fenced_epoch(kind, relation, epoch, member.member_epoch)


def full_group(kind: str, limit: int) -> KafkaError:
    """Return the error of a member for which a group has no room."""
    return KafkaError(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The {kind} group has reached its maximum capacity of {limit} members.",
    )

"""The rebalance of a classic group: join phase, sync phase, deadlines and session timeouts.

Kafka: GroupMetadataManager.{prepareRebalance, completeClassicGroupJoin, expirePendingSync,
expireClassicGroupMemberHeartbeat, removeMemberAndUpdateClassicGroup, …}. A session that expires
starts a rebalance, and a rebalance restarts sessions.

Join phase: ends when all members have rejoined, or after the longest rebalance timeout; dynamic
members that have not joined by then are removed. The first rebalance of an empty group waits
group.initial.rebalance.delay.ms instead, repeated while new members arrive. Sync phase: the
leader's assignment is written to the log; once it is committed the group is Stable and the syncs
are answered. Members that do not sync within the rebalance timeout are removed.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.coordinator.group.classic import group as records
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.groups import heartbeat_key, join_key, sync_key
from ottla.coordinator.group.responses import sync_error
from ottla.coordinator.runtime.shard import Result, empty_result
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.coordinator.group.classic.group import ClassicMember
    from ottla.coordinator.group.classic.groups import ClassicGroups
    from ottla.protocol.apis.join_group import JoinGroupResponse
    from ottla.protocol.apis.sync_group import SyncGroupResponse
    from ottla.purgatory.pending import Pending

log = logging.getLogger("ottla.groups")
P = TypeVar("P")
ANSWERS_AT_ONCE: Final = 100
"""Joins or syncs that are answered at once: each response is encoded and sent in the same turn."""
_ANSWERS: Final = "answers"
_WITH_GENERATION: Final = (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)


def prepare_or_complete(groups: ClassicGroups, group: ClassicGroup) -> Result[None]:
    """Start a rebalance, or complete the join phase of the current one if all have joined."""
    if group.can_rebalance:
        return prepare_rebalance(groups, group)
    return maybe_complete_join_phase(groups, group)


def prepare_rebalance(groups: ClassicGroups, group: ClassicGroup) -> Result[None]:
    """Start the join phase."""
    if group.is_in(ClassicState.COMPLETING_REBALANCE):
        reset_assignments(groups, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    groups.timers.cancel(sync_key(group.group_id))
    is_initial = group.is_in(ClassicState.EMPTY)
    text = "group %s rebalances: it was %s with generation %d and has %d members"
    before = group.state.value, group.generation_id, len(group.members)
    log.info(text, group.group_id, *before, extra={"event": "group.rebalance"})
    if is_initial:
        delay_ms = groups.config.group_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        _schedule_initial(groups, group, delay_ms, remaining_ms)
    group.move_to(ClassicState.PREPARING_REBALANCE, groups.clock.now_ms())
    return empty_result() if is_initial else _complete_or_schedule(groups, group)


def maybe_complete_join_phase(groups: ClassicGroups, group: ClassicGroup) -> Result[None]:
    """Complete the join phase when all have joined; an initial rebalance waits for its delay."""
    is_open = group.is_in(ClassicState.PREPARING_REBALANCE)
    if not is_open or group.previous_state == ClassicState.EMPTY:
        return empty_result()
    return complete_join_phase(groups, group) if group.has_all_members_joined else empty_result()


def _complete_or_schedule(groups: ClassicGroups, group: ClassicGroup) -> Result[None]:
    if group.has_all_members_joined:
        return complete_join_phase(groups, group)
    _schedule_join_deadline(groups, group)
    return empty_result()


def _schedule_join_deadline(groups: ClassicGroups, group: ClassicGroup) -> None:
    groups.timers.schedule(
        join_key(group.group_id),
        group.rebalance_timeout_ms,
        lambda: _on_join_deadline(groups, group.group_id),
    )


def _on_join_deadline(groups: ClassicGroups, group_id: str) -> Result[None]:
    group = groups.find(group_id)
    if group is None or not group.is_in(ClassicState.PREPARING_REBALANCE):
        return empty_result()
    return complete_join_phase(groups, group)


def _schedule_initial(
    groups: ClassicGroups, group: ClassicGroup, delay_ms: int, remaining_ms: int
) -> None:
    group_id = group.group_id
    groups.timers.schedule(
        join_key(group_id),
        delay_ms,
        lambda: _on_initial_delay(groups, group_id, delay_ms, remaining_ms),
    )


def _on_initial_delay(
    groups: ClassicGroups, group_id: str, delay_ms: int, remaining_ms: int
) -> Result[None]:
    """Wait again if new members arrived, at most for the rebalance timeout in total."""
    group = groups.find(group_id)
    if group is None or not group.is_in(ClassicState.PREPARING_REBALANCE):
        return empty_result()
    if not group.new_member_added or remaining_ms == 0:
        return complete_join_phase(groups, group)
    group.new_member_added = False
    next_delay_ms = min(groups.config.group_initial_rebalance_delay_ms, remaining_ms)
    _schedule_initial(groups, group, next_delay_ms, max(remaining_ms - delay_ms, 0))
    return empty_result()


def complete_join_phase(groups: ClassicGroups, group: ClassicGroup) -> Result[None]:
    """Start the next generation with the joined members, or empty the group."""
    groups.timers.cancel(join_key(group.group_id))
    for member in tuple(group.members.values()):
        if member.awaiting_join is None and member.group_instance_id is None:
            _log_removed(group, member.member_id, "did not rejoin within its rebalance timeout")
            group.remove(member.member_id)
            groups.timers.cancel(heartbeat_key(group.group_id, member.member_id))
    if group.members and not group.elect_joined_leader():
        _schedule_join_deadline(groups, group)  # only absent static members: keep waiting
        return empty_result()
    group.begin_generation(groups.clock.now_ms())
    groups.rebalances += 1
    extra = {"event": "group.generation"}
    if group.is_in(ClassicState.EMPTY):
        log.info("group %s is empty, generation %d", *_generation(group), extra=extra)
        return Result(None, [records.group_metadata(group, {})])
    text = "group %s has generation %d with %d members"
    log.info(text, *_generation(group), len(group.members), extra=extra)
    _answer_joins(groups, group)
    _schedule_sync_deadline(groups, group)
    return empty_result()


def _answer_joins(groups: ClassicGroups, group: ClassicGroup) -> None:
    generation_id = group.generation_id
    members = group.described_members()

    def answer(member: ClassicMember, join: Pending[JoinGroupResponse] | None) -> None:
        """Answer a join, unless the next rebalance has begun: then it counts for that one."""
        if group.generation_id != generation_id or not group.is_in(*_WITH_GENERATION):
            return
        if member.awaiting_join is not join or group.members.get(member.member_id) is not member:
            return
        response = group.join_success(member.member_id)
        if group.is_leader(member.member_id):
            response.members = members
        group.complete_join(member, response)
        reschedule(groups, group, member)
        member.is_new = False

    waiting = [(member, member.awaiting_join) for member in group.members.values()]
    for member_id in group.members:
        group.pending_sync[member_id] = None
    _answer_each(groups, group, waiting, answer)


def _answer_each(
    groups: ClassicGroups,
    group: ClassicGroup,
    waiting: Iterable[tuple[ClassicMember, P]],
    answer: Callable[[ClassicMember, P], None],
) -> None:
    """Answer the members of a group, those of a large one between other work of the loop."""
    remaining = iter(waiting)
    for member, pending in islice(remaining, ANSWERS_AT_ONCE):
        answer(member, pending)

    def answer_rest() -> Iterator[None]:
        for member, pending in remaining:
            answer(member, pending)
            yield

    groups.timers.write_all((_ANSWERS, group.group_id, answer), answer_rest())


def _schedule_sync_deadline(groups: ClassicGroups, group: ClassicGroup) -> None:
    group_id, generation_id = group.group_id, group.generation_id
    groups.timers.schedule(
        sync_key(group_id),
        group.rebalance_timeout_ms,
        lambda: _on_sync_deadline(groups, group_id, generation_id),
    )


def _on_sync_deadline(groups: ClassicGroups, group_id: str, generation_id: int) -> Result[None]:
    group = groups.find(group_id)
    if group is None or group.generation_id != generation_id or not group.pending_sync:
        return empty_result()
    if not group.is_in(ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
        return empty_result()
    for member_id in tuple(group.pending_sync):
        _log_removed(group, member_id, "did not sync within its rebalance timeout")
        group.remove(member_id)
        groups.timers.cancel(heartbeat_key(group_id, member_id))
    return prepare_rebalance(groups, group)


def note_sync(groups: ClassicGroups, group: ClassicGroup, member_id: str) -> None:
    """Remove the member from the list of missing syncs."""
    group.pending_sync.pop(member_id, None)
    if not group.pending_sync:
        groups.timers.cancel(sync_key(group.group_id))


def set_assignments(
    groups: ClassicGroups, group: ClassicGroup, assignments: dict[str, bytes]
) -> None:
    """Set each member's assignment and complete the pending syncs."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    _answer_syncs(groups, group, ErrorCode.NONE)


def reset_assignments(groups: ClassicGroups, group: ClassicGroup, error: ErrorCode) -> None:
    """Clear all assignments and complete the pending syncs with error."""
    for member in group.members.values():
        member.assignment = b""
    _answer_syncs(groups, group, error)


def _answer_syncs(groups: ClassicGroups, group: ClassicGroup, error: ErrorCode) -> None:
    generation_id = group.generation_id

    def answer(member: ClassicMember, sync: Pending[SyncGroupResponse] | None) -> None:
        """Answer a sync, unless that was done: by a later one, or by the member's end."""
        if sync is None or member.awaiting_sync is not sync:
            return
        if error != ErrorCode.NONE:
            response = sync_error(error)
        elif group.generation_id != generation_id:
            response = sync_error(ErrorCode.REBALANCE_IN_PROGRESS)
        else:
            response = group.sync_success(member.assignment)
        group.complete_sync(member, response)
        reschedule(groups, group, member)

    waiting = [(member, member.awaiting_sync) for member in group.members.values()]
    _answer_each(groups, group, waiting, answer)


def _generation(group: ClassicGroup) -> tuple[str, int]:
    return group.group_id, group.generation_id


def _log_removed(group: ClassicGroup, member_id: str, reason: str) -> None:
    text = "member %s removed from group %s: it %s"
    log.info(text, member_id, group.group_id, reason, extra={"event": "member.removed"})


# ---------------------------------------------------------------- sessions


def reschedule(
    groups: ClassicGroups,
    group: ClassicGroup,
    member: ClassicMember,
    delay_ms: int | None = None,
) -> None:
    """Restart the member's session, for delay_ms or by default its session timeout."""
    timeout_ms = member.session_timeout_ms if delay_ms is None else delay_ms
    groups.schedule_heartbeat(group, member.member_id, timeout_ms, expire)


def expire(groups: ClassicGroups, group_id: str, member_id: str) -> Result[None]:
    """Remove a member, or a pending one, whose session has expired."""
    group = groups.find(group_id)
    if group is None:
        return empty_result()
    if member_id in group.pending_join:
        return remove_pending(groups, group, member_id)
    member = group.members.get(member_id)
    if member is None or member.has_satisfied_heartbeat:
        return empty_result()
    _log_removed(group, member_id, f"sent no heartbeat for {member.session_timeout_ms} ms")
    return remove_member(groups, group, member)


def remove_member(
    groups: ClassicGroups, group: ClassicGroup, member: ClassicMember
) -> Result[None]:
    """Remove a member; the others rebalance, or complete the join phase that waited for it."""
    group.remove(member.member_id)
    if group.is_in(ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        return prepare_or_complete(groups, group)
    return _complete_if_all_joined(groups, group)


def remove_pending(groups: ClassicGroups, group: ClassicGroup, member_id: str) -> Result[None]:
    """Remove a member that received an id and never joined with it."""
    group.remove(member_id)
    return _complete_if_all_joined(groups, group)


def _complete_if_all_joined(groups: ClassicGroups, group: ClassicGroup) -> Result[None]:
    if group.is_in(ClassicState.PREPARING_REBALANCE) and group.has_all_members_joined:
        return complete_join_phase(groups, group)
    return empty_result()


# ---------------------------------------------------------------- progress


def stalls(groups: ClassicGroups, group: ClassicGroup, *, is_writing: bool) -> Iterator[str]:
    """Yield the joins, syncs and members of a group that nothing that is to come ends."""
    group_id, timers = group.group_id, groups.timers
    is_answering = any(type(key) is tuple and key[:2] == (_ANSWERS, group_id) for key in timers)
    if group.is_in(ClassicState.PREPARING_REBALANCE) and join_key(group_id) not in timers:
        yield f"group {group_id} waits for joins without a deadline"
    for member_id, member in group.members.items():
        waits_for_join, waits_for_sync = (
            waiting is not None and not waiting.done
            for waiting in (member.awaiting_join, member.awaiting_sync)
        )
        if waits_for_join and not (
            is_writing or group.is_in(ClassicState.PREPARING_REBALANCE) or is_answering
        ):
            yield f"member {member_id} of {group_id} waits for its join's answer: {group.state}"
        if waits_for_sync and not (is_writing or sync_key(group_id) in timers or is_answering):
            yield f"member {member_id} of {group_id} waits for its assignment: {group.state}"
        if not (waits_for_join or waits_for_sync) and (
            heartbeat_key(group_id, member_id) not in timers
        ):
            yield f"member {member_id} of {group_id} has no session"
    for member_id in group.pending_join:
        if heartbeat_key(group_id, member_id) not in timers:
            yield f"pending member {member_id} of {group_id} has no session"

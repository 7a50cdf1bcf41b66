"""What consumer, share and streams groups of one shard have in common: table, members' timers.

Kafka: what recurs for each kind in org.apache.kafka.coordinator.group.GroupMetadataManager.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from ottla.coordinator.runtime.result import Result, empty_result
from ottla.errors import ErrorCode, KafkaError
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.clock import Clock
    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.group.member_group import MemberGroup
    from ottla.coordinator.runtime import ShardTimers
    from ottla.timeline import SnapshotRegistry

log = logging.getLogger("ottla.groups")
_RETRY_MS: Final = 1000


class MemberTimer(Enum):
    """What a member has to do before a timer fires."""

    SESSION = "send a heartbeat"
    REBALANCE = "give up partitions or tasks"
    JOIN = "rejoin, by the classic protocol"
    SYNC = "sync, by the classic protocol"


class Settings(Protocol):
    """The settings that groups of all kinds have."""

    @property
    def session_timeout_ms(self) -> int:
        """The time within which a member sends a heartbeat."""


class RevokingMember(Protocol):
    """A member that has to give up partitions or tasks."""

    @property
    def member_id(self) -> str:
        """The member's id."""

    @property
    def member_epoch(self) -> int:
        """The epoch of its assignment."""

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time within which it has to give them up."""

    @property
    def state(self) -> Enum:
        """Its progress towards its target."""


G = TypeVar("G", bound="MemberGroup[Any, Any]")
S = TypeVar("S", bound=Settings)


@dataclass(slots=True, eq=False, kw_only=True)
class KindOfGroups(Generic[G, S]):
    """The groups of one kind, with what their decisions depend on.

    settings returns a group's settings in force: those of the broker, bounded, and the group's own.
    `by_id` is replayed state; timers and the number of raised epochs since the load are soft.
    """

    kind: ClassVar[str]
    group_class: ClassVar[type[Any]]
    epoch_key: ClassVar[type[Any]]
    """The key of the record of a group's epoch, whose tombstone removes the group."""

    registry: SnapshotRegistry
    timers: ShardTimers
    clock: Clock
    topics: TopicNames
    settings: Callable[[str], S]
    rebalances: int = 0
    by_id: TimelineDict[str, G] = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = TimelineDict(self.registry)

    # ---------------------------------------------------------------- table

    def find(self, group_id: str) -> G | None:
        """Return the group; None if it does not exist."""
        found: G | None = self.by_id.get(group_id)
        return found

    def get(self, group_id: str) -> G:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            text = f"{self.kind} group {group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return group

    def to_leave(self, group_id: str) -> G:
        """Return the group of a member that leaves; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def new(self, group_id: str) -> G:
        """Return an empty group; its first record adds it."""
        made: G = self.group_class(group_id, self.registry)
        return made

    def restore(self, group_id: str) -> G:
        """Return the group of a record; add it if the record is its first."""
        group = self.find(group_id)
        if group is None:
            group = self.by_id[group_id] = self.new(group_id)
        return group

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Compare the metadata of all groups that read these topics at their next heartbeat."""
        changed = frozenset(names)
        for group in self.by_id.values():
            if group.reads_any(changed):
                group.fresh_epoch = None

    # ---------------------------------------------------------------- members' timers

    def expect(
        self,
        what: MemberTimer,
        group_id: str,
        member_id: str,
        delay_ms: int,
        otherwise: Callable[[], Result[None]],
    ) -> None:
        """Run an operation after a delay, unless the timer is cancelled: the member has acted."""
        self.timers.schedule(
            self._key(what, group_id, member_id), delay_ms, otherwise, retry_ms=_RETRY_MS
        )

    def expects(self, what: MemberTimer, group_id: str, member_id: str) -> bool:
        """Whether this timer of the member is running."""
        return self._key(what, group_id, member_id) in self.timers

    def cancel(self, what: MemberTimer, group_id: str, member_id: str) -> None:
        """End a timer of a member."""
        self.timers.cancel(self._key(what, group_id, member_id))

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """Cancel the timers of a member that is removed, except its session, which then finds none.

        Where the tombstones cannot be written the member remains, and its session removes it.
        """
        for what in MemberTimer:
            if what is not MemberTimer.SESSION:
                self.cancel(what, group_id, member_id)

    def _key(
        self, what: MemberTimer, group_id: str, member_id: str
    ) -> tuple[str, str, MemberTimer, str]:
        return self.kind, group_id, what, member_id

    # ---------------------------------------------------------------- sessions

    def start_session(
        self,
        group_id: str,
        member_id: str,
        remove: Callable[[G, Any], Result[None]],
        timeout_ms: int | None = None,
    ) -> None:
        """Remove the member unless another heartbeat comes within its session."""
        if timeout_ms is None:
            timeout_ms = self.settings(group_id).session_timeout_ms
        key = self._key(MemberTimer.SESSION, group_id, member_id)
        if self.timers.postpone(key, timeout_ms):
            return
        self.expect(
            MemberTimer.SESSION,
            group_id,
            member_id,
            timeout_ms,
            lambda: self.fence(group_id, member_id, "the member session expired.", remove),
        )

    def start_all(self, start: Callable[[str, Any], None]) -> Iterator[None]:
        """Call start(group id, member) for all members, after the log was loaded, in steps."""
        for group_id, group in list(self.by_id.items()):
            for member_id in list(group.members):
                member = group.members.get(member_id)
                if member is not None:  # it may have left between two steps
                    start(group_id, member)
                yield

    def follow_revocation(
        self,
        group_id: str,
        member: RevokingMember,
        remove: Callable[[G, Any], Result[None]],
        *,
        is_revoking: bool,
    ) -> None:
        """Start or cancel the timer of a revocation, for a member whose state has changed."""
        if is_revoking:
            self.await_revocation(group_id, member, remove)
        else:
            self.cancel(MemberTimer.REBALANCE, group_id, member.member_id)

    def await_revocation(
        self, group_id: str, member: RevokingMember, remove: Callable[[G, Any], Result[None]]
    ) -> None:
        """Remove a member that does not complete its revocation within its rebalance timeout."""
        member_id, epoch = member.member_id, member.member_epoch

        def expire() -> Result[None]:
            group = self.find(group_id)
            known = None if group is None else group.members.get(member_id)
            if known is None or known.member_epoch != epoch or known.state is not member.state:
                return empty_result()
            reason = "the member failed to transition from epoch within its rebalance timeout."
            return self.fence(group_id, member_id, reason, remove)

        self.expect(MemberTimer.REBALANCE, group_id, member_id, member.rebalance_timeout_ms, expire)

    def fence(
        self, group_id: str, member_id: str, reason: str, remove: Callable[[G, Any], Result[None]]
    ) -> Result[None]:
        """Remove a member for a reason; no effect where it has left."""
        group = self.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return empty_result()
        log.info(
            "member %s of %s group %s is fenced: %s",
            member_id,
            self.kind.lower(),
            group_id,
            reason,
            extra={"event": "member.fenced"},
        )
        return remove(group, member)

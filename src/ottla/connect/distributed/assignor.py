"""The leader's division of connectors and tasks among the workers of a group.

`Cooperative` moves as little as possible (KIP-415): a round first revokes what is above a worker's
share, the next one assigns it. The work of a worker that has left waits `max_delay_ms` for its
return, so that a restart moves nothing; new and returning workers without work are the first to get
it then. Rounds that revoke again and again wait longer and longer.

Kafka: org.apache.kafka.connect.runtime.distributed.{IncrementalCooperativeAssignor,
EagerAssignor}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.connect.distributed.protocol import NO_WORK, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.connect.runtime.state import ConnectorTaskId

_T = TypeVar("_T")
_BACKOFF_BASE: Final = 40
"""As in Kafka: successive rounds that revoke wait 40, 1600, … ms, up to the delay of lost work."""


class Division(NamedTuple):
    """The outcome of a round, by member."""

    assigned: dict[str, Work]
    """What is new."""
    revoked: dict[str, Work]
    delay_ms: int


class _Load:
    """The work of one worker after the round."""

    def __init__(self, member: str, work: Work) -> None:
        self.member = member
        self.connectors, self.tasks = set(work.connectors), set(work.tasks)

    @property
    def work(self) -> Work:
        return Work(frozenset(self.connectors), frozenset(self.tasks))

    def remove(self, work: Work) -> None:
        self.connectors -= work.connectors
        self.tasks -= work.tasks


def divide_eagerly(configured: Work, members: Iterable[str]) -> dict[str, Work]:
    """Deal connectors, then tasks, to the members in turn."""
    order = sorted(members)
    loads = [_Load(it, NO_WORK) for it in order]
    turn = 0
    for name in sorted(configured.connectors):
        loads[turn % len(loads)].connectors.add(name)
        turn += 1
    for task in sorted(configured.tasks):
        loads[turn % len(loads)].tasks.add(task)
        turn += 1
    return {it.member: it.work for it in loads}


class Cooperative:
    """What a leader remembers from round to round."""

    def __init__(self, max_delay_ms: int) -> None:
        """Take `scheduled.rebalance.max.delay.ms`."""
        self._max_delay_ms = max_delay_ms
        self._delay_ms = 0
        self._scheduled_ms = 0
        """When lost work is assigned again; 0 for never."""
        self._candidates: set[str] = set()
        """Workers without work during the delay: lost work may be theirs."""
        self._previous = NO_WORK
        self._previous_revocation = NO_WORK
        self._previous_generation = -1
        self._previous_members: set[str] = set()
        self._has_revoked = False
        self._revoking_rounds = 0

    def divide(
        self,
        configured: Work,
        members: Mapping[str, Work],
        *,
        generation: int,
        last_generation: int,
        now_ms: int,
    ) -> Division:
        """Return the outcome of a round.

        `members` have the work that each goes on with; `last_generation` is the last one whose
        assignment this leader received, -1 for none.
        """
        if self._previous_generation != last_generation:
            self._previous = NO_WORK  # the last round did not reach the workers
        active, duplicated = _active(members)
        if self._previous_revocation & active:
            self._previous = active  # a revocation did not take effect
        self._previous_revocation = NO_WORK
        deleted = self._previous - configured
        lost = self._previous - active - deleted
        created = configured - self._previous - active
        revoked = {it: (work & (deleted | duplicated)) for it, work in members.items()}
        # Work that a worker brings from before the leader's time, and that is configured no more.
        revoked = {it: work | (members[it] - configured) for it, work in revoked.items()}
        loads = [_Load(it, members[it] - revoked[it]) for it in sorted(members)]
        again = self._lost(lost, loads, now_ms)
        if not self._delay_ms:
            self._balance(configured, loads, revoked, now_ms)
        fresh = created | again
        _deal(loads, fresh.connectors, lambda it: it.connectors)
        _deal(loads, fresh.tasks, lambda it: it.tasks)
        taken = NO_WORK
        for work in revoked.values():
            taken |= work
        following = NO_WORK
        for load in loads:
            following |= load.work
        self._previous = (following - taken) | lost
        self._previous_revocation = taken
        self._previous_generation = generation
        self._previous_members = set(members)
        assigned = {it.member: it.work - members[it.member] for it in loads}
        return Division(assigned, revoked, self._delay_ms)

    # ------------------------------------------------------------ lost work

    def _lost(self, lost: Work, loads: list[_Load], now_ms: int) -> Work:
        """Decide on lost work: return what is dealt in this round as if it were new."""
        if not lost and not self._has_revoked:
            self._reset_delay()
            return NO_WORK
        members = {it.member for it in loads}
        if not self._scheduled_ms and self._previous_members <= members:
            return lost  # all members are there: an assignment did not arrive
        if not self._max_delay_ms:
            return lost
        if self._scheduled_ms and now_ms >= self._scheduled_ms:
            candidates = [it for it in loads if it.member in self._candidates]
            self._reset_delay()
            self._has_revoked = False
            if not candidates:
                return lost
            _deal(candidates, lost.connectors, lambda it: it.connectors)
            _deal(candidates, lost.tasks, lambda it: it.tasks)
            return NO_WORK
        self._candidates |= {it.member for it in loads if not it.work}
        if self._scheduled_ms:
            self._delay_ms = min(self._scheduled_ms - now_ms, self._max_delay_ms)
        else:
            self._delay_ms = self._max_delay_ms
        self._scheduled_ms = now_ms + self._delay_ms
        return NO_WORK

    def _reset_delay(self) -> None:
        self._candidates.clear()
        self._scheduled_ms = self._delay_ms = 0

    # ------------------------------------------------------------ balance

    def _balance(
        self, configured: Work, loads: list[_Load], revoked: dict[str, Work], now_ms: int
    ) -> None:
        """Revoke what is above a worker's share, unless a round just did."""
        excess = _excess(configured, loads)
        if not excess:
            if self._has_revoked:
                self._has_revoked, self._revoking_rounds = False, 0
            return
        if self._has_revoked:
            self._revoking_rounds += 1
            wait_ms = min(_BACKOFF_BASE**self._revoking_rounds, self._max_delay_ms)
            if wait_ms:
                self._delay_ms, self._scheduled_ms = wait_ms, now_ms + wait_ms
                return
        self._has_revoked = True
        for load in loads:
            work = excess.get(load.member, NO_WORK)
            load.remove(work)
            revoked[load.member] |= work


def _active(members: Mapping[str, Work]) -> tuple[Work, Work]:
    """Return the work of all, and what more than one has."""
    active = duplicated = NO_WORK
    for work in members.values():
        duplicated |= active & work
        active |= work
    return active, duplicated


def _excess(configured: Work, loads: list[_Load]) -> dict[str, Work]:
    """Return by member what it has above its share of what is configured."""
    if not any(it.work for it in loads):
        return {}
    connectors = _above_share(loads, len(configured.connectors), lambda it: it.connectors)
    tasks = _above_share(loads, len(configured.tasks), lambda it: it.tasks)
    return {
        it.member: Work(connectors[it.member], tasks[it.member])
        for it in loads
        if connectors[it.member] or tasks[it.member]
    }


def _above_share(
    loads: list[_Load], total: int, of: Callable[[_Load], set[_T]]
) -> dict[str, frozenset[_T]]:
    least, extras = divmod(total, len(loads))
    above = {}
    for load in loads:
        share = least
        if extras and len(of(load)) > least:
            share, extras = least + 1, extras - 1
        # the number of a round decides nothing: any of them may go, in a fixed order
        above[load.member] = frozenset(sorted(of(load), key=str)[share:])
    return above


def _deal(loads: list[_Load], items: Iterable[_T], of: Callable[[_Load], set[_T]]) -> None:
    """Give each item to the worker that has the fewest."""
    for item in sorted(items, key=_order):
        of(min(loads, key=lambda it: (len(of(it)), it.member))).add(item)


def _order(item: object) -> tuple[str, int]:
    task: ConnectorTaskId | str = item  # type: ignore[assignment] # these two only
    return (task, -1) if isinstance(task, str) else (task.connector, task.task)

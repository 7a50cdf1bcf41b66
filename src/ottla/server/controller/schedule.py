"""Periodic tasks of the active controller: expired sessions and tokens, elections, NoOp records.

Kafka: the tasks of org.apache.kafka.controller.PeriodicTaskControlManager.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.server.system.timers import next_aligned_tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.controller.result import Decision
    from ottla.controller.runtime import ControllerRuntime
    from ottla.purgatory.pending import Pending


class _Task:
    """A periodic task."""

    __slots__ = ("due_ms", "operation", "period_ms")

    def __init__(self, operation: Callable[[], Decision[None]], period_ms: int) -> None:
        self.operation = operation
        self.period_ms = period_ms
        self.due_ms = 0

    def run(self, runtime: ControllerRuntime, now_ms: int) -> None:
        runtime.write(self.operation)
        self.schedule(now_ms)

    def schedule(self, now_ms: int) -> None:
        self.due_ms = next_aligned_tick(now_ms, self.period_ms)


class Schedule:
    """Call `run` while the controller is active, when its deadline comes."""

    def __init__(self, runtime: ControllerRuntime, config: BrokerConfig, clock: Clock) -> None:
        self._runtime = runtime
        self._idle_ms: int = config.metadata_max_idle_interval_ms
        elections = runtime.controller.elections
        self._tasks = [
            _Task(elections.elect_unclean_leaders, config.unclean_leader_election_interval_ms)
        ]
        if config.delegation_token_secret_key is not None:
            tokens = runtime.controller.tokens
            period_ms = config.delegation_token_expiry_check_interval_ms
            self._tasks.append(_Task(lambda: tokens.sweep(clock.now_ms()), period_ms))
        if config.auto_leader_rebalance_enable:
            period_ms = config.leader_imbalance_check_interval_seconds * 1000
            self._tasks.append(_Task(elections.balance_leaders, period_ms))
        self._lost_brokers: dict[int, int] = {}
        """When the sessions of lost brokers would expire, in monotonic ms."""
        self._fencing: set[int] = set()
        """Brokers with an expired session that are being fenced."""
        self._interval_ms: int = config.broker_heartbeat_interval_ms
        self._session_ms: int = config.broker_session_timeout_ms
        self._due_ms: int | None = None
        """When the next run is due."""
        self._listens_until_ms = 0
        """No broker is fenced before: this controller was stalled, and heartbeats may wait."""
        self._listening_limit_ms: int | None = None
        """The end of a session that began after the first of several stalls, without the others."""

    def begin(self, now_ms: int) -> None:
        """Reset all deadlines when this controller becomes active."""
        self._lost_brokers.clear()
        self._due_ms = None
        self._runtime.controller.leadership.lost_brokers.clear()
        for task in self._tasks:
            task.schedule(now_ms)

    def await_lost_broker(self, broker_id: int, due_ms: int) -> None:
        """Allow unclean elections of a lost broker's partitions when its session would expire."""
        self._lost_brokers[broker_id] = due_ms

    def _expire_lost_brokers(self, now_ms: int) -> int | None:
        """Return when the next session would expire."""
        lost = self._runtime.controller.leadership.lost_brokers
        for broker_id in [one for one, due_ms in self._lost_brokers.items() if due_ms <= now_ms]:
            del self._lost_brokers[broker_id]
            lost.discard(broker_id)
            self._tasks[0].due_ms = now_ms
        return min(self._lost_brokers.values(), default=None)

    def run(self, now_ms: int) -> int:
        """Run the tasks that are due; return the next deadline. Times are monotonic ms."""
        runtime = self._runtime
        self._notice_stall(now_ms)
        deadlines: list[int | None] = [now_ms + self._interval_ms]
        deadlines += self._fence_silent_brokers(now_ms), self._expire_lost_brokers(now_ms)
        for task in self._tasks:
            if now_ms >= task.due_ms and runtime.active:
                task.run(runtime, now_ms)
            deadlines.append(task.due_ms)
        if self._idle_ms > 0 and runtime.active:
            if now_ms >= next_aligned_tick(runtime.last_append_ms, self._idle_ms):
                runtime.write_no_op()
            deadlines.append(next_aligned_tick(runtime.last_append_ms, self._idle_ms))
        self._due_ms = min(deadline for deadline in deadlines if deadline is not None)
        return self._due_ms

    def _notice_stall(self, now_ms: int) -> None:
        """Listen for two heartbeat intervals after a stall of this process or machine.

        Kafka counts a heartbeat when a request thread reads it, however long it then waits in the
        queue of the controller (BrokerHeartbeatTracker). After repeated stalls it is less, so that
        a broker is fenced which is silent while this controller runs.
        """
        stall_ms = 0 if self._due_ms is None else now_ms - self._due_ms
        if stall_ms < self._interval_ms:
            return
        limit_ms = self._listening_limit_ms
        limit_ms = now_ms + self._session_ms if limit_ms is None else limit_ms + stall_ms
        self._listening_limit_ms = limit_ms
        left_ms = max(limit_ms - now_ms, self._interval_ms // 2)
        self._listens_until_ms = now_ms + min(left_ms, 2 * self._interval_ms)

    def _fence_silent_brokers(self, now_ms: int) -> int | None:
        """Return when the next session ends."""
        if now_ms < self._listens_until_ms:
            return self._listens_until_ms
        self._listening_limit_ms = None
        runtime, controller = self._runtime, self._runtime.controller
        heartbeats = controller.cluster.heartbeats
        for broker_id in heartbeats.stale(self._watched(), now_ms):
            if runtime.active:
                self._fencing.add(broker_id)
                fence = partial(controller.fence_stale_broker, broker_id, now_ms)
                runtime.write(fence).on_done(partial(self._fenced, broker_id))
        return heartbeats.next_expiry_ms(self._watched())

    def _watched(self) -> list[int]:
        """Return the brokers whose sessions may expire, without those that are being fenced."""
        unfenced = self._runtime.controller.cluster.unfenced_ids()
        return [broker_id for broker_id in unfenced if broker_id not in self._fencing]

    def _fenced(self, broker_id: int, _done: Pending[None]) -> None:
        self._fencing.discard(broker_id)

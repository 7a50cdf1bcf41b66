"""The herder of a worker in a group: what it owns comes from the group's leader.

It goes on with its work during a rebalance, gives up what the leader revokes, and stops everything
when its membership ends: another worker may have the work by then.

    OUTSIDE --prepare--> JOINING --assigned--> WORKING --prepare--> JOINING
    JOINING --assigned, behind the leader's configuration--> BEHIND --config_caught_up--> WORKING
    any --lost--> OUTSIDE

Kafka: org.apache.kafka.connect.runtime.distributed.DistributedHerder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.connect.distributed.assignor import Cooperative, divide_eagerly
from ottla.connect.distributed.protocol import CONFIG_MISMATCH, NO_WORK, Assignment, Work
from ottla.connect.distributed.records import (
    RESTART,
    SESSION_KEY,
    TopicUse,
    parse_status,
    parse_status_key,
    topic_value,
)
from ottla.connect.distributed.signing import SessionKey, parse_session_key
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.herder import (
    Herder,
    MakeTaskConfigs,
    SetTarget,
    StartConnector,
    StopConnector,
    WriteConfig,
)
from ottla.connect.runtime.state import (
    COMMIT,
    CONNECTOR,
    ConnectorTaskId,
    RunState,
    TargetState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class GroupPhase(Enum):
    """The states of a worker towards its group."""

    OUTSIDE = "outside"
    JOINING = "joining"
    BEHIND = "behind"
    WORKING = "working"


MOVES: Final = {
    GroupPhase.OUTSIDE: {GroupPhase.OUTSIDE, GroupPhase.JOINING},
    # JOINING again: an error of the round, or a leader that was behind
    GroupPhase.JOINING: {
        GroupPhase.JOINING,
        GroupPhase.BEHIND,
        GroupPhase.WORKING,
        GroupPhase.OUTSIDE,
    },
    GroupPhase.BEHIND: {
        GroupPhase.BEHIND,
        GroupPhase.WORKING,
        GroupPhase.JOINING,
        GroupPhase.OUTSIDE,
    },
    GroupPhase.WORKING: {GroupPhase.JOINING, GroupPhase.OUTSIDE},
}


class RequestTarget(ConnectException):
    """The request is for another worker, at `url`; None while it is unknown."""

    def __init__(self, text: str, url: str | None) -> None:
        super().__init__(text)
        self.url = url


class GroupWorker(NamedTuple):
    """A worker as the leader knows it in a round."""

    url: str
    offset: int
    work: Work


@dataclass(frozen=True, slots=True)
class Accept:
    """Tell the member that the assignment is carried out."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Have the group rebalance."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """Read the config topic to its end, then call `config_caught_up`."""

    offset: int
    """What should be read then."""


@dataclass(frozen=True, slots=True)
class ForwardTaskConfigs:
    """Send the settings of a connector's tasks to the leader."""

    name: str
    configs: tuple[Mapping[str, str], ...]
    url: str | None


@dataclass(frozen=True, slots=True)
class WriteTopic:
    """Append a used topic to the status topic; None deletes it."""

    use: TopicUse
    value: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class MakeSessionKey:
    """Draw a new key and write it to the config topic."""


class DistributedHerder(Herder):
    """The decisions of one worker of a group."""

    def __init__(
        self,
        worker_id: str,
        url: str,
        type_of: Callable[[Mapping[str, str]], str],
        *,
        max_delay_ms: int,
        key_ttl_ms: int,
    ) -> None:
        """Take the worker's address, its URL, and the delays of lost work and of keys."""
        super().__init__(worker_id, type_of)
        self.url = url
        self.phase = GroupPhase.OUTSIDE
        self.offset = -1
        """The offset after the last record of the config topic that was read."""
        self.work = NO_WORK
        self.assignment: Assignment | None = None
        self.session_key: SessionKey | None = None
        self._connectors: set[str] = set()
        """The connectors that run here."""
        self._member_id = ""
        self._cooperative = Cooperative(max_delay_ms)
        self._owners: dict[str, GroupWorker] = {}
        self._key_ttl_ms = key_ttl_ms
        self._rejoin_at_ms: int | None = None
        self._is_eager = False

    def _move(self, phase: GroupPhase) -> None:
        assert phase in MOVES[self.phase], (self.phase, phase)
        self.phase = phase

    @property
    def is_leader(self) -> bool:
        """Whether this worker leads its generation."""
        return self.assignment is not None and self.assignment.leader_id == self._member_id

    @property
    def leader_url(self) -> str | None:
        """The leader's address, None while it is unknown."""
        return self.assignment.leader_url if self.assignment else None

    # ------------------------------------------------------------ the group

    def prepare(self) -> None:
        """Prepare to join: the cooperative protocols go on with their work."""
        if self._is_eager:
            self._give_up(self.work)
            self.work = NO_WORK
        self._rejoin_at_ms = None
        self._move(GroupPhase.JOINING)

    def divide(
        self,
        version: int,
        members: Mapping[str, GroupWorker],
        member_id: str,
        generation: int,
        now_ms: int,
    ) -> dict[str, Assignment]:
        """Return the assignments of a generation, as its leader."""
        newest = max(it.offset for it in members.values())
        blank = Assignment(member_id, self.url, newest)
        if self.offset < newest:  # all read to the end, and join again
            return dict.fromkeys(members, replace(blank, error=CONFIG_MISMATCH))
        blank = replace(blank, offset=self.offset)
        configured = self._configured()
        if version == 0:
            dealt = divide_eagerly(configured, members)
            self._owners = {it: of._replace(work=dealt[it]) for it, of in members.items()}
            return {it: replace(blank, assigned=work) for it, work in dealt.items()}
        last = self.generation if self.assignment is not None else -1
        division = self._cooperative.divide(
            configured,
            {it: of.work for it, of in members.items()},
            generation=generation,
            last_generation=last,
            now_ms=now_ms,
        )
        self._owners = {
            it: of._replace(work=(of.work - division.revoked[it]) | division.assigned[it])
            for it, of in members.items()
        }
        return {
            it: replace(
                blank,
                assigned=division.assigned[it],
                revoked=division.revoked[it],
                delay_ms=division.delay_ms,
            )
            for it in members
        }

    def _configured(self) -> Work:
        connectors = self.configs.connectors
        tasks = {
            ConnectorTaskId(name, number)
            for name in connectors
            if name not in self.configs.inconsistent
            for number in range(len(self.configs.tasks.get(name, ())))
        }
        return Work(frozenset(connectors), frozenset(tasks))

    def assigned(
        self, assignment: Assignment, member_id: str, generation: int, version: int, now_ms: int
    ) -> None:
        """Take the assignment of a generation: give up, then start."""
        self._is_eager = version == 0
        self._give_up(assignment.revoked)
        self.work = (self.work - assignment.revoked) | assignment.assigned
        self.assignment, self._member_id, self.generation = assignment, member_id, generation
        if assignment.delay_ms:
            self._rejoin_at_ms = now_ms + assignment.delay_ms
        if assignment.error or self.offset < assignment.offset:
            self._move(GroupPhase.BEHIND)
            self._effects.append(ReadConfig(assignment.offset))
        else:
            self._start_work()

    def config_caught_up(self) -> None:
        """Go on after `ReadConfig`: the config topic is read to its end, or the time is over."""
        assignment = self.assignment
        if self.phase is not GroupPhase.BEHIND or assignment is None:
            return
        if assignment.error or self.offset < assignment.offset:
            self._effects += [Accept(), Rejoin("the configuration was not read to its end")]
        else:
            self._start_work()

    def _start_work(self) -> None:
        self._move(GroupPhase.WORKING)
        for name in sorted(self.work.connectors - self._connectors):
            if name in self.configs.connectors:
                self._start_connector(name)
        fresh = sorted(self.work.tasks - self._running)
        for task in fresh:
            if task.connector in self.configs.connectors:
                self._start_tasks(task.connector, [task.task])
        if self.is_leader:
            self._clean_statuses()
            for name in self.configs.connectors:
                self._drop_tasks_of_stopped(name)
        self._effects.append(Accept())
        if self.assignment is not None and self.assignment.revoked:
            self._effects.append(Rejoin("what was revoked is to be assigned"))

    def _start_tasks(self, name: str, numbers: Sequence[int]) -> None:
        if name not in self.configs.inconsistent:
            super()._start_tasks(name, numbers)

    def _start_connector(self, name: str) -> None:
        config, target = self.configs.connectors[name], self.configs.target(name)
        self._connectors.add(name)
        self._effects.append(StartConnector(name, config, target))

    def _give_up(self, work: Work) -> None:
        """Stop work of this worker, and write that it has no owner."""
        tasks = sorted(work.tasks & self._running)
        for name in sorted(work.connectors & self._connectors):
            self._effects.append(StopConnector(name))
            self._connectors.discard(name)
            self._unassign(name)
        self._stop_tasks(tasks)
        for task in tasks:
            self._unassign(task)

    def _unassign(self, of: ConnectorTaskId | str) -> None:
        """Write UNASSIGNED, unless a worker of a later generation has written already."""
        known = self.statuses.get(of)
        is_stale = known is not None and known.worker_id != self.worker_id
        if not is_stale or (known is not None and known.generation <= self.generation):
            self._set_status(of, RunState.UNASSIGNED)

    def _clean_statuses(self) -> None:
        """Delete the statuses of what is configured no more, as leader after a rebalance."""
        configured = self._configured()
        for task in sorted(set(self.statuses.tasks) - configured.tasks):
            self._write_status(task, None)
        for name in sorted(set(self.statuses.connectors) - configured.connectors):
            self._write_status(name, None)
        for name in sorted(set(self.statuses.topics) - configured.connectors):
            self.reset_topics(name)

    def lost(self) -> None:
        """Stop everything: the membership has ended, and others may have the work."""
        self._give_up(Work(frozenset(self._connectors), frozenset(self._running)))
        self.work, self.assignment, self._rejoin_at_ms = NO_WORK, None, None
        self._move(GroupPhase.OUTSIDE)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Do what is due: join after the delay of lost work, renew the session key."""
        if self._rejoin_at_ms is not None and now_ms >= self._rejoin_at_ms:
            self._rejoin_at_ms = None
            self._rejoin("the delay of lost work is over")
        key = self.session_key
        is_due = key is None or wall_ms >= key.created_ms + self._key_ttl_ms
        if is_due and self.phase is GroupPhase.WORKING and self.is_leader and not self._is_eager:
            self._effects.append(MakeSessionKey())

    def _rejoin(self, reason: str) -> None:
        if self.phase is not GroupPhase.OUTSIDE:
            self._effects.append(Rejoin(reason))

    # ------------------------------------------------------------ records

    def read_config(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Take a record of the config topic."""
        if key == SESSION_KEY:
            self.session_key = parse_session_key(value) or self.session_key
            return
        if key.startswith(RESTART):
            if value is not None and self.phase is not GroupPhase.OUTSIDE:
                self._restart_own(key.removeprefix(RESTART), value)
            return
        is_known = key.removeprefix(CONNECTOR) in self.configs.connectors
        change = self.configs.apply(key, value)
        if change is not None:
            self._changed(change.kind, change.connector, is_known=is_known)

    def _changed(self, kind: str, name: str, *, is_known: bool) -> None:
        own = self._running_of(name)
        if kind != "connector":
            self._drop_tasks_of_stopped(name)
        if kind == "target":
            if name in self._connectors or own:
                self._effects.append(SetTarget(name, self.configs.target(name)))
        elif kind == "tasks":
            config = self.configs.connectors.get(name)
            if config is None:
                return  # a commit that a deletion left behind
            self._applied[name] = config
            self._give_up(Work(tasks=frozenset(own)))
            self._rejoin(f"tasks of {name} have new settings")
        elif name not in self.configs.connectors:
            self._applied.pop(name, None)
            # at once: a new connector of this name must not be taken for the old one
            self._give_up(Work(frozenset({name}), frozenset(own)))
            self._rejoin(f"{name} was deleted")
        elif not is_known:
            self._rejoin(f"{name} is new")
        elif name in self._connectors:
            self._effects.append(StopConnector(name))
            self._start_connector(name)

    def _drop_tasks_of_stopped(self, name: str) -> None:
        """Write, as leader, that a stopped connector has no tasks.

        Settings that were under way when it was stopped may have been committed after it.
        """
        is_stopped = self.configs.target(name) is TargetState.STOPPED
        if is_stopped and self.configs.tasks.get(name) and self.is_leader:
            self._effects.append(WriteConfig(COMMIT + name, {"tasks": 0}))

    def config_read(self, offset: int) -> None:
        """Note how far the config topic was read."""
        self.offset = max(self.offset, offset)

    def read_status(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Take a record of the status topic."""
        of = parse_status_key(key)
        if of is None:
            return
        if isinstance(of, TopicUse):
            topics = self.statuses.topics.setdefault(of.connector, {})
            if value is None:
                topics.pop(of.topic, None)
            elif isinstance(value.get("topic"), dict):
                topics[of.topic] = value["topic"].get("discoverTimestamp", 0)
            if not topics:
                del self.statuses.topics[of.connector]
            return
        self.statuses.put(of, None if value is None else parse_status(value))

    # ------------------------------------------------------------ requests

    def _require_leader(self) -> None:
        if not self.is_leader:
            raise RequestTarget("Only the leader can process this request.", self.leader_url)

    def put(
        self,
        name: str,
        config: Mapping[str, str],
        *,
        may_replace: bool,
        initial: TargetState | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Create or replace a connector, as leader."""
        self._require_leader()
        return super().put(name, config, may_replace=may_replace, initial=initial)

    def delete(self, name: str) -> None:
        """Delete a connector, as leader."""
        self._require_leader()
        super().delete(name)

    def set_target(self, name: str, target: TargetState) -> None:
        """Pause or resume a connector at any worker; stop it as leader."""
        if target is TargetState.STOPPED:
            self._require_leader()
        super().set_target(name, target)

    def require_stopped(self, name: str) -> dict[str, str]:
        """Return the configuration of a connector whose offsets the leader may change now."""
        self._require_leader()
        return super().require_stopped(name)

    def restart(self, name: str) -> None:
        """Restart a connector, as its owner."""
        self._known(name, f"Unknown connector: {name}")
        if name not in self._connectors:
            self._require_leader()
            owner = next((it for it in self._owners.values() if name in it.work.connectors), None)
            text = "Cannot restart connector since it is not assigned to this member"
            raise RequestTarget(text, None if owner is None else owner.url)
        super().restart(name)

    def restart_task(self, task: ConnectorTaskId) -> None:
        """Restart a task, as its owner."""
        if task not in self._running:
            self._known(task.connector, f"Unknown connector: {task.connector}")
            if task.task < len(self.configs.tasks.get(task.connector, ())):
                self._require_leader()
                owner = next((it for it in self._owners.values() if task in it.work.tasks), None)
                text = "Cannot restart task since it is not assigned to this member"
                raise RequestTarget(text, None if owner is None else owner.url)
        super().restart_task(task)

    def restart_with_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> dict[str, Any]:
        """Have all workers restart their parts of a connector, as leader (KIP-745)."""
        self._require_leader()
        self._known(name, f"Unknown connector: {name}")
        answer = self.status(name)
        connector, tasks = self._restart_plan(name, include_tasks, only_failed)
        shown = RunState.RESTARTING.value
        if connector:
            answer["connector"]["state"] = shown
        for status in answer["tasks"]:
            if ConnectorTaskId(name, status["id"]) in tasks:
                status["state"] = shown
        request = {"include-tasks": include_tasks, "only-failed": only_failed}
        self._effects.append(WriteConfig(RESTART + name, request))
        return answer

    def _restart_own(self, name: str, request: Mapping[str, Any]) -> None:
        """Restart what a request of all workers means here."""
        if name not in self.configs.connectors:
            return
        flags = bool(request.get("include-tasks")), bool(request.get("only-failed"))
        connector, tasks = self._restart_plan(name, *flags)
        own = [it for it in tasks if it in self._running]
        restarts = connector and name in self._connectors
        if restarts:
            self._effects.append(StopConnector(name))
            self._set_status(name, RunState.RESTARTING)
        self._stop_tasks(own)
        for task in own:
            self._set_status(task, RunState.RESTARTING)
        if restarts:
            self._start_connector(name)
        self._start_tasks(name, [it.task for it in own])

    def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Write the settings of a connector's tasks, as leader."""
        self._require_leader()
        self._known(name, f"Connector {name} not found")
        if self._is_new(name, configs):
            self._write_task_configs(name, configs)

    # ------------------------------------------------------------ reports

    def connector_report(
        self, name: str, state: RunState, *, trace: str | None = None, version: str | None = None
    ) -> None:
        """Take the state of a connector that runs here."""
        if name in self._connectors:
            super().connector_report(name, state, trace=trace, version=version)

    def request_task_configs(self, name: str) -> None:
        """Have a connector that runs here make new settings of its tasks."""
        if name in self._connectors and name in self.configs.connectors:
            self._effects.append(MakeTaskConfigs(name))

    def task_configs_made(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Take the settings of tasks; the leader writes them."""
        if name not in self._connectors or not self._is_new(name, configs):
            return
        if self.is_leader:
            self.put_task_configs(name, configs)
        else:
            self._effects.append(ForwardTaskConfigs(name, tuple(configs), self.leader_url))

    def topic_used(self, task: ConnectorTaskId, topic: str, now_ms: int) -> None:
        """Take a topic that a task has used for the first time."""
        if topic not in self.statuses.topics.get(task.connector, ()):
            super().topic_used(task, topic, now_ms)
            use = TopicUse(task.connector, topic)
            self._effects.append(WriteTopic(use, topic_value(use, task.task, now_ms)))

    def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has used."""
        for topic in self.topics(name):
            self._effects.append(WriteTopic(TopicUse(name, topic), None))
        super().reset_topics(name)

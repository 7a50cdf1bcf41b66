"""A distributed worker: the herder's thread, the group's member, the topics, and their wiring.

Kafka: org.apache.kafka.connect.runtime.distributed.{DistributedHerder, WorkerGroupMember}.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.coordinator import CoordinatorLookup
from ottla.clients.membership.classic import GroupMemberSettings
from ottla.clients.settings import CONSUMER, read_settings
from ottla.clients.transport import Runtime
from ottla.config.client import ConsumerConfig
from ottla.connect.distributed.exchange import exchange, send_task_configs
from ottla.connect.distributed.herder import (
    Accept,
    DistributedHerder,
    ForwardTaskConfigs,
    GroupWorker,
    MakeSessionKey,
    ReadConfig,
    Rejoin,
    WriteTopic,
)
from ottla.connect.distributed.member import ConnectMember
from ottla.connect.distributed.protocol import VERSIONS, WorkerState
from ottla.connect.distributed.records import SESSION_KEY, status_key, status_value
from ottla.connect.distributed.settings import DISTRIBUTED
from ottla.connect.distributed.signing import KEY_BYTES, SessionKey
from ottla.connect.distributed.topics import (
    InternalTopics,
    client_settings,
    create_topics,
)
from ottla.connect.plugins import Plugins
from ottla.connect.runtime.herder import WriteConfig, WriteStatus
from ottla.connect.runtime.metrics import RebalanceMetrics
from ottla.connect.runtime.offset_topic import OffsetTopic, TopicOffsets
from ottla.connect.runtime.rest_server import forwarding_context
from ottla.connect.runtime.standalone import CONNECTORS, HerderThread
from ottla.connect.runtime.validation import GroupRules, connector_type
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from ottla.connect.distributed.protocol import Assignment
    from ottla.connect.metrics import MBean

log = logging.getLogger("ottla.connect")
_TURN_S: Final = 0.25
"""Between looks at what is due: the herder's delays are seconds and more."""
_RETRY_S: Final = 0.25
_RETRY_MAX_S: Final = 60.0
"""Between attempts to hand the settings of tasks to the leader, as in Kafka."""
_KEY_RETRY_S: Final = 5.0
"""Time until a session key that could not be written is drawn again."""
_LEAVE_S: Final = 1.0
"""Time for the coordinator to hear that the worker leaves."""


class Distributed(HerderThread):
    """One worker of a group."""

    _herder: DistributedHerder

    def __init__(self, settings: Mapping[str, str], worker_id: str, url: str) -> None:
        """Take a worker's settings, address and URL; returns when the topics are read.

        Raises ConfigErrors for invalid settings, ConnectException for unfit topics.
        """
        values, plugins = DISTRIBUTED.parse(settings), Plugins(*CONNECTORS)
        self._forwarding_context = forwarding_context(settings)
        create_topics(settings, values)
        herder = DistributedHerder(
            worker_id,
            url,
            lambda it: connector_type(plugins, it),
            max_delay_ms=values["scheduled.rebalance.max.delay.ms"],
            key_ttl_ms=values["inter.worker.key.ttl.ms"],
        )
        self._topics = InternalTopics(
            settings,
            values,
            on_config=lambda key, value: self._hear(lambda: herder.read_config(key, value)),
            on_config_read=lambda offset: self._hear(lambda: herder.config_read(offset)),
            on_status=lambda key, value: self._hear(lambda: herder.read_status(key, value)),
        )
        self._retry_s: dict[str, float] = {}
        self._rebalances, self._version = RebalanceMetrics(), 0
        self._records: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._answers: list[Callable[[ConnectMember], None]] = []
        self._is_stopping = False
        self._due_s = self._key_due_s = 0.0
        self._member: ConnectMember | None = None
        self._group_rules = GroupRules(values["group.id"], has_exactly_once=False)
        store = TopicOffsets(OffsetTopic(self._topics.thread, self._topics.offsets))
        super().__init__(settings, values, plugins, store, herder)
        self._topics.start()
        self._start_member(settings)

    def _start_member(self, settings: Mapping[str, str]) -> None:
        values = self.values
        protocol = values["connect.protocol"].lower()
        names = list(VERSIONS)
        spoken = names[names.index("default" if protocol == "eager" else protocol) :]
        own = {
            **client_settings(settings, ConsumerConfig),
            "client.id": f"connect-{self._herder.worker_id}",
        }
        clients = read_settings(CONSUMER, own, {})
        self._runtime = Runtime(clients)
        client = self._runtime.client
        self._member = member = ConnectMember(
            GroupMemberSettings(
                session_timeout_ms=values["session.timeout.ms"],
                heartbeat_interval_ms=values["heartbeat.interval.ms"],
                rebalance_timeout_ms=values["rebalance.timeout.ms"],
                request_timeout_ms=clients.request_timeout_ms,
                retry_backoff_ms=clients.retry_backoff_ms,
            ),
            client,
            CoordinatorLookup(client, values["group.id"]),
            self,
            {name: VERSIONS[name] for name in spoken},
        )

        async def join() -> None:
            self._runtime.attach()
            member.polled(self._runtime.now_ms())
            client.register(member)
            self._runtime.wake()

        self._topics.thread.call(join())

    # ------------------------------------------------------------ threads

    def _post(self, step: Callable[[], None]) -> None:
        """Run a step on the herder's thread, and log what goes wrong."""

        def ended(done: Future[None]) -> None:
            error = done.exception()
            if error is not None:
                log.error("a step of the worker failed", exc_info=error)

        self.call(lambda _: step()).add_done_callback(ended)

    def _hear(self, step: Callable[[], None]) -> None:
        """Take a record, before any request that comes after it."""
        self._records.put(step)
        self._calls.put(self._settle)

    def _read_records(self) -> None:
        while not self._records.empty():
            try:
                self._records.get()()
            except Exception:
                log.exception("a record of an internal topic is not understood")

    def _in_loop(self, step: Callable[[ConnectMember], None]) -> None:
        """Call the member in its loop."""
        member = self._member
        if member is None:
            return

        def run() -> None:
            with self._runtime.lock:
                step(member)
            self._runtime.wake()

        self._topics.thread.loop.call_soon_threadsafe(run)

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=_TURN_S)
            except queue.Empty:
                call = self._turn
            if call is None:
                return
            self._read_records()
            call()
            if self._due_s <= time.monotonic():
                self._turn()

    def _turn(self) -> None:
        self._due_s = time.monotonic() + _TURN_S
        if self._member is None:
            return
        self._in_loop(lambda it: it.polled(self._runtime.now_ms()))
        self._herder.tick(self._runtime.now_ms(), time.time_ns() // 1_000_000)
        self._settle()

    def _settle(self) -> None:
        """Do what records and time have decided."""
        try:
            self._carry_out()
        except Exception:
            log.exception("the worker could not do what was due")

    def _later(self, delay_s: float, step: Callable[[], None]) -> None:
        timer = threading.Timer(delay_s, lambda: self._post(step))
        timer.daemon = True
        timer.start()

    def stop(self) -> None:
        """Stop all work, leave the group, and close."""
        self._is_stopping = True
        self.call(lambda _: self._herder.lost()).result()
        member = self._member
        assert member is not None

        async def leave() -> None:
            with self._runtime.lock:
                member.end()
            self._runtime.wake()
            await self._runtime.sleep(_LEAVE_S * 1000 / 5)
            await self._runtime.aclose()

        try:
            self._topics.thread.call(leave(), _LEAVE_S * 5)
        except (KafkaError, TimeoutError) as error:
            log.warning("the group does not hear that the worker leaves: %s", error)
        super().stop()
        self._topics.stop()

    # ------------------------------------------------------------ effects

    def _do(self, effect: Any) -> None:
        match effect:
            case WriteConfig(key, value):
                self._topics.write_config(key, value)
                self._read_records()  # the next decision knows of it
            case WriteStatus(of, status):
                self._topics.write_status(status_key(of), status_value(status))
            case WriteTopic(use, value):
                self._topics.write_status(status_key(use), value)
            case Accept():
                generation = self._herder.generation
                self._in_loop(lambda it: it.accepted(generation))
            case Rejoin(reason):
                self._in_loop(lambda it: it.request_rejoin(reason))
            case ReadConfig():
                threading.Thread(target=self._read_config, daemon=True).start()
            case ForwardTaskConfigs(name, configs, url):
                self._forward(name, configs, url)
            case MakeSessionKey():
                self._make_session_key()
            case _:
                super()._do(effect)

    def _read_config(self) -> None:
        try:
            self._topics.read_config(self.values["worker.sync.timeout.ms"] / 1000)
        finally:  # the worker joins again, whatever it was
            self._post(self._herder.config_caught_up)

    def _make_session_key(self) -> None:
        if time.monotonic() < self._key_due_s:
            return
        algorithm = self.values["inter.worker.key.generation.algorithm"]
        key = SessionKey(secrets.token_bytes(KEY_BYTES), algorithm, time.time_ns() // 1_000_000)
        before, self._herder.session_key = self._herder.session_key, key
        try:
            self._topics.write_config(SESSION_KEY, key.record())
        except Exception:
            self._herder.session_key = before  # the others sign with that one
            self._key_due_s = time.monotonic() + _KEY_RETRY_S
            raise

    def task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Take the settings of a connector's tasks; try again what could not be written."""

        def step(herder: Any) -> None:
            herder.task_configs_made(name, self._stored(name, configs))

        def ended(done: Future[None]) -> None:
            error = done.exception()
            if error is not None:
                self._retry(name, error)
            elif self._herder.is_leader:  # else the leader's answer says so
                self._retry_s.pop(name, None)

        self.call(step).add_done_callback(ended)

    def forward(
        self, url: str, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> Future[tuple[int, bytes, str | None]]:
        """Send a request to another worker; return status, body and location of the answer."""
        context = self._forwarding_context
        return self._aside(lambda: exchange(url, method, target, body, headers, context=context))

    def _forward(self, name: str, configs: Sequence[Mapping[str, str]], url: str | None) -> None:
        key = self._herder.session_key
        algorithm = self.values["inter.worker.signature.algorithm"]

        def run() -> None:
            try:
                context = self._forwarding_context
                send_task_configs(url, key, algorithm, name, configs, context=context)
            except Exception as error:  # noqa: BLE001 - tried again
                self._retry(name, error)
            else:
                self._retry_s.pop(name, None)

        threading.Thread(target=run, name=f"forward-{name}", daemon=True).start()

    def _retry(self, name: str, error: BaseException) -> None:
        """Ask the connector again, later and later."""
        delay_s = self._retry_s.get(name, _RETRY_S)
        self._retry_s[name] = min(delay_s * 2, _RETRY_MAX_S)
        log.warning("%s: tasks could not be reconfigured, again in %g s: %s", name, delay_s, error)
        self._later(delay_s, lambda: self._herder.request_task_configs(name))

    # ------------------------------------------------------------ events of the member

    def prepare(self, life: int) -> None:
        """Get ready to join."""

        def step() -> None:
            herder = self._herder
            self._rebalances.started()
            herder.prepare()
            state = WorkerState(herder.url, herder.offset, herder.work)
            self._answers.append(lambda it: it.join(state, life))

        self._ask(step)

    def divide(
        self,
        version: int,
        states: Mapping[str, WorkerState],
        member_id: str,
        generation: int,
        answer: Callable[[Mapping[str, Assignment]], None],
    ) -> None:
        """Divide the work of all, as leader."""

        def step() -> None:
            members = {it: GroupWorker(of.url, of.offset, of.work) for it, of in states.items()}
            now_ms = self._runtime.now_ms()
            made = self._herder.divide(version, members, member_id, generation, now_ms)
            self._answers.append(lambda _: answer(made))

        self._ask(step)

    def _ask(self, step: Callable[[], None]) -> None:
        """Run a step, then what it decides, then its answers in the member's loop."""

        def run() -> None:
            try:
                step()
                self._carry_out()
            finally:  # the member waits for its answer, and asks no more
                answers, self._answers = self._answers, []
                for answer in answers:
                    self._in_loop(answer)

        if not self._is_stopping:
            self._post(run)

    def assigned(
        self, assignment: Assignment, member_id: str, generation: int, version: int
    ) -> None:
        """Carry out an assignment."""
        now_ms = self._runtime.now_ms()

        def step() -> None:
            self._herder.assigned(assignment, member_id, generation, version, now_ms)
            self._version = version
            self._rebalances.completed()

        if not self._is_stopping:
            self._post(step)

    def _beans(self) -> list[MBean]:
        herder = self._herder
        names = {number: name for name, number in VERSIONS.items()}
        protocol = names[self._version].upper()
        protocol = "EAGER" if protocol == "DEFAULT" else protocol
        leader = herder.leader_url or "N/A"
        return [*super()._beans(), self._rebalances.bean(protocol, leader, herder.generation)]

    def lost(self) -> None:
        """Stop everything: the tasks at once, as the herder may wait for the config topic."""
        self._worker.end_tasks()
        self._post(self._herder.lost)

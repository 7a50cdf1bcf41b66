"""A worker that stands alone: configurations in memory, offsets in a file, one herder's thread.

Kafka: org.apache.kafka.connect.runtime.standalone.StandaloneHerder.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.connect.errors import BadRequestException, ConnectException
from ottla.connect.metrics import DOMAIN, MBean
from ottla.connect.plugins import Plugin, Plugins
from ottla.connect.runtime.herder import (
    Herder,
    MakeTaskConfigs,
    SetTarget,
    StartConnector,
    StartTask,
    StopConnector,
    StopTasks,
    WriteConfig,
)
from ottla.connect.runtime.metrics import UNMEASURED, StartMetrics, task_counts
from ottla.connect.runtime.offset_file import OffsetFile
from ottla.connect.runtime.offsets import OffsetStore
from ottla.connect.runtime.runtimes import Runtimes, WorkerParts
from ottla.connect.runtime.secrets import Secrets
from ottla.connect.runtime.sink_offsets import SinkOffsets
from ottla.connect.runtime.state import ConnectorTaskId, RunState
from ottla.connect.runtime.tolerance import trace_of
from ottla.connect.runtime.validation import (
    GroupRules,
    connector_type,
    find_connector,
    plugin_settings,
    require_valid,
    validate,
)
from ottla.connect.settings import STANDALONE, OverridePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.connect.runtime.offsets import OffsetStorage
    from ottla.connect.runtime.state import TargetState

log = logging.getLogger("ottla.connect")
_T = TypeVar("_T")
_ASIDES: Final = 32
"""Requests at a time that ask plug-ins, so that those of one that hangs do not pile up."""
_JAVA = "org.apache.kafka.connect.file.FileStream"
_JDBC = "io.confluent.connect.jdbc.Jdbc"
_MIRROR = "org.apache.kafka.connect.mirror.Mirror"
CONNECTORS = (
    Plugin(
        f"{_JAVA}SourceConnector", "source", "ottla.connect.file.source:FileStreamSourceConnector"
    ),
    Plugin(f"{_JAVA}SinkConnector", "sink", "ottla.connect.file.sink:FileStreamSinkConnector"),
    Plugin(f"{_JDBC}SourceConnector", "source", "ottla.connect.jdbc.source:JdbcSourceConnector"),
    Plugin(f"{_JDBC}SinkConnector", "sink", "ottla.connect.jdbc.sink:JdbcSinkConnector"),
    Plugin(
        f"{_MIRROR}SourceConnector", "source", "ottla.connect.mirror.source:MirrorSourceConnector"
    ),
    Plugin(
        f"{_MIRROR}CheckpointConnector",
        "source",
        "ottla.connect.mirror.checkpoint:MirrorCheckpointConnector",
    ),
    Plugin(
        f"{_MIRROR}HeartbeatConnector",
        "source",
        "ottla.connect.mirror.heartbeat:MirrorHeartbeatConnector",
    ),
    Plugin(
        "io.confluent.kafka.connect.datagen.DatagenConnector",
        "source",
        "ottla.connect.generator.source:Generator",
    ),
    Plugin(
        "ottla.connect.DirectorySinkConnector",
        "sink",
        "ottla.connect.directory.sink:DirectorySinkConnector",
    ),
    Plugin(
        "ottla.connect.SparkFormatSourceConnector",
        "source",
        "ottla.connect.spark.formats:SparkFormatSourceConnector",
    ),
    Plugin(
        "ottla.connect.SparkFormatSinkConnector",
        "sink",
        "ottla.connect.spark.formats:SparkFormatSinkConnector",
    ),
)
"""The connectors of this package."""


class HerderThread:
    """One worker; requests and reports run on its thread, one after the other."""

    _group_rules: GroupRules | None = None
    """Of a worker in a group."""

    def __init__(
        self,
        settings: Mapping[str, str],
        values: Mapping[str, Any],
        plugins: Plugins,
        store: OffsetStore,
        herder: Herder,
    ) -> None:
        """Take the worker's settings, as texts without references and parsed."""
        self.values, self.plugins = values, plugins
        self._store, self._herder = store, herder
        self._secrets = Secrets(settings)
        # the handlers' for what connectors log by loggers of their own
        self._filtered = [log, *logging.getLogger().handlers]
        for it in self._filtered:
            it.addFilter(self._secrets)
        self._overrides = OverridePolicy.of(values)
        self._sink_offsets = SinkOffsets(settings, self._overrides)
        self._worker = Runtimes(WorkerParts(settings, values, plugins, store, self))
        self._starts = StartMetrics()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ottla-herder", daemon=True)
        self._asides = threading.BoundedSemaphore(_ASIDES)
        self._thread.start()

    # ------------------------------------------------------------ the thread

    def call(self, step: Callable[[Herder], _T]) -> Future[_T]:
        """Run a step on the herder's thread, then what it decides."""
        answer: Future[_T] = Future()

        def run() -> None:
            # a client that was answered 503 has cancelled it: later it would be too late to notice
            if not answer.set_running_or_notify_cancel():
                return
            try:
                result = step(self._herder)
                self._carry_out()
            except Exception as error:  # noqa: BLE001 - the caller's answer
                answer.set_exception(error)
            else:
                answer.set_result(result)

        self._calls.put(run)
        return answer

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _carry_out(self) -> None:
        """Do what was decided, also after a failure, which is raised at the end."""
        failure: Exception | None = None
        while effects := self._herder.take_effects():
            may_write = True
            for effect in effects:
                is_record = isinstance(effect, WriteConfig)
                if is_record and not may_write:
                    continue  # a commit must not follow settings of tasks that were not written
                try:
                    self._do(effect)
                except Exception as error:
                    if failure is not None:
                        log.exception("the worker could not do what was due")
                    may_write = may_write and not is_record
                    failure = failure or error
        if failure is not None:
            raise failure

    def _do(self, effect: Any) -> None:
        worker = self._worker
        match effect:
            case WriteConfig(key, value):
                self._herder.read_config(key, value)
            case StartConnector(name, config, target):
                self._starts.begin(name)
                try:
                    worker.start_connector(name, self._secrets.resolve(config), target)
                except Exception as error:
                    log.exception("connector %s cannot start", name)
                    self._starts.reported(name, RunState.FAILED)
                    trace = self._secrets.conceal(trace_of(error))
                    self._herder.connector_report(name, RunState.FAILED, trace=trace)
            case StopConnector(name):
                worker.stop_connector(name)
            case StartTask():
                self._starts.begin(effect.task)
                try:
                    resolve = self._secrets.resolve
                    worker.start_task(
                        replace(
                            effect,
                            connector_config=resolve(effect.connector_config),
                            config=resolve(effect.config),
                        )
                    )
                except Exception as error:
                    log.exception("task %s cannot start", effect.task)
                    self._starts.reported(effect.task, RunState.FAILED)
                    trace = self._secrets.conceal(trace_of(error))
                    self._herder.task_report(effect.task, RunState.FAILED, trace=trace)
            case StopTasks(tasks):
                worker.stop_tasks(tasks)
            case SetTarget(name, target):
                worker.set_target(name, target)
            case MakeTaskConfigs(name):
                worker.make_task_configs(name)

    def stop(self) -> None:
        """Stop all connectors and tasks, whose offsets are committed, and end the thread."""
        self.call(lambda _: self._worker.stop()).result()
        self._calls.put(None)
        self._thread.join()
        for it in self._filtered:
            it.removeFilter(self._secrets)

    # ------------------------------------------------------------ requests that ask plug-ins

    def _aside(self, run: Callable[[], _T]) -> Future[_T]:
        """Run what calls plug-ins or waits for brokers, on a thread that may hang alone."""
        answer: Future[_T] = Future()
        answer.set_running_or_notify_cancel()  # its answer may come after the client has gone

        def work() -> None:
            try:
                answer.set_result(run())
            except Exception as error:  # noqa: BLE001 - the caller's answer
                answer.set_exception(self._secrets.conceal_error(error))
            finally:
                self._asides.release()

        if self._asides.acquire(blocking=False):
            threading.Thread(target=work, name="ottla-request", daemon=True).start()
        else:
            text = f"{_ASIDES} requests wait for connectors or for brokers: try again later"
            answer.set_exception(ConnectException(text))
        return answer

    def put(
        self,
        name: str,
        config: Mapping[str, str],
        *,
        may_replace: bool,
        initial: TargetState | None = None,
    ) -> Future[tuple[bool, dict[str, Any]]]:
        """Validate a configuration; then create or replace the connector."""

        def run() -> tuple[bool, dict[str, Any]]:
            require_valid(self._validate(config))
            return self.call(
                lambda it: it.put(name, config, may_replace=may_replace, initial=initial)
            ).result()

        return self._aside(run)

    def patch(self, name: str, changes: Mapping[str, str | None]) -> Future[dict[str, Any]]:
        """Change some settings of a connector; None removes one."""

        def run() -> dict[str, Any]:
            info = None
            while info is None:
                base = self.call(lambda it: dict(it.config(name))).result()
                merged = {**base, **changes}
                config = {key: value for key, value in merged.items() if value is not None}
                require_valid(self._validate(config))
                info = self.call(partial(self._put_over, name, base, config)).result()
            return info

        return self._aside(run)

    @staticmethod
    def _put_over(
        name: str, base: Mapping[str, str], config: Mapping[str, str], herder: Herder
    ) -> dict[str, Any] | None:
        """Replace a configuration; None if it is another one by now."""
        if herder.config(name) != base:
            return None
        return herder.put(name, config, may_replace=True)[1]

    def validate(self, config: Mapping[str, str]) -> Future[dict[str, Any]]:
        """Say what is right and wrong with a configuration."""
        return self._aside(lambda: self._validate(config))

    def _validate(self, config: Mapping[str, str]) -> dict[str, Any]:
        """Validate the values of references; the answer has the references."""
        resolved = self._secrets.resolve(config)
        infos = validate(self.plugins, resolved, self._overrides, self._group_rules)
        return self._secrets.conceal_answer(infos, config)

    def plugin_settings(self, name: str) -> Future[list[dict[str, Any]]]:
        """Return the definitions of a plug-in's settings."""
        return self._aside(lambda: plugin_settings(self.plugins, name))

    def offsets(self, name: str) -> Future[list[dict[str, Any]]]:
        """Return the offsets of a connector."""

        def run() -> list[dict[str, Any]]:
            config = self._secrets.resolve(self.call(lambda it: it.config(name)).result())
            if find_connector(self.plugins, config).type == "sink":
                return self._sink_offsets.all_of(name, config)
            stored = self._store.all_of(name)
            return [{"partition": partition, "offset": offset} for partition, offset in stored]

        return self._aside(run)

    def alter_offsets(self, name: str, offsets: Sequence[Any] | None) -> Future[str]:
        """Set offsets of a stopped connector, or forget all; return the message of success."""

        def run() -> str:
            config = self.call(lambda it: it.require_stopped(name)).result()
            config = self._secrets.resolve(config)
            plugin = find_connector(self.plugins, config)
            connector = plugin.create()
            if plugin.type == "sink":
                looked = self._sink_offsets.alter(name, config, connector, offsets)
            else:
                looked = self._alter_source(name, config, connector, offsets)
            done = "altered" if offsets is not None else "reset"
            if looked:
                return f"The offsets for this connector have been {done} successfully"
            return (
                f"The Connect framework-managed offsets for this connector have been {done} "
                "successfully. However, if this connector manages offsets externally, they will "
                f"need to be manually {done} in the system that the connector uses."
            )

        return self._aside(run)

    def _alter_source(
        self, name: str, config: Mapping[str, str], connector: Any, offsets: Sequence[Any] | None
    ) -> bool:
        if offsets is None:
            entries = [(partition, None) for partition, _ in self._store.all_of(name)]
        else:
            entries = [(it["partition"], it["offset"]) for it in offsets]
        try:
            by_partition = {frozenset(partition.items()): it for partition, it in entries}
        except TypeError as error:
            raise BadRequestException("Partitions must be maps of simple values") from error
        looked: bool = connector.alter_offsets(config, by_partition)

        def step(herder: Herder) -> None:
            herder.require_stopped(name)  # still
            self._store.put(name, entries)

        self.call(step).result()
        return looked

    # ------------------------------------------------------------ metrics

    def metrics(self) -> Future[list[MBean]]:
        """Return the beans of the worker, its connectors and its tasks."""
        return self.call(lambda _: self._beans())

    def _beans(self) -> list[MBean]:
        worker, statuses = self._worker, self._herder.statuses
        metrics, tasks = worker.task_metrics(), worker.tasks
        counts = {"connector-count": len(worker.connectors), "task-count": len(tasks)}
        attributes = {**counts, **self._starts.attributes()}
        beans = [MBean(DOMAIN, "connect-worker-metrics", {}, attributes)]
        for name in worker.connectors:
            beans += self._connector_beans(name)
        states: dict[str, list[RunState]] = {}
        for task in tasks:
            status = statuses.tasks.get(task)
            state = RunState.UNASSIGNED if status is None else status.state
            states.setdefault(task.connector, []).append(state)
            beans += metrics.get(task, UNMEASURED).beans(task, state.value.lower())
        beans += [task_counts(name, of) for name, of in states.items()]
        return self._secrets.conceal_beans(beans)

    def _connector_beans(self, name: str) -> list[MBean]:
        config = self._herder.configs.connectors.get(name)
        status = self._herder.statuses.connectors.get(name)
        if config is None or status is None:
            return []
        try:
            plugin = find_connector(self.plugins, config)
        except (BadRequestException, ConnectException):
            return []
        attributes = {
            "status": status.state.value.lower(),
            "connector-class": plugin.java_class,
            "connector-type": plugin.type,
            "connector-version": plugin.version,
        }
        return [MBean(DOMAIN, "connector-metrics", {"connector": name}, attributes)]

    # ------------------------------------------------------------ reports of the worker

    def connector_state(
        self, name: str, state: RunState, trace: str | None, version: str | None
    ) -> None:
        """Take the state of a connector."""
        trace = trace and self._secrets.conceal(trace)

        def step(herder: Herder) -> None:
            self._starts.reported(name, state)
            herder.connector_report(name, state, trace=trace, version=version)

        self.call(step)

    def task_state(
        self, task: ConnectorTaskId, state: RunState, trace: str | None, version: str | None
    ) -> None:
        """Take the state of a task."""
        trace = trace and self._secrets.conceal(trace)

        def step(herder: Herder) -> None:
            self._starts.reported(task, state)
            herder.task_report(task, state, trace=trace, version=version)

        self.call(step)

    def task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Take the settings of a connector's tasks."""
        self.call(lambda it: it.task_configs_made(name, self._stored(name, configs)))

    def _stored(self, name: str, configs: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
        """Return the settings of tasks with references, as topics and answers have them."""
        config = self._herder.configs.connectors.get(name, {})
        return self._secrets.task_configs(config, configs)

    def task_configs_requested(self, name: str) -> None:
        """Hear that a connector's tasks need new settings."""
        self.call(lambda it: it.request_task_configs(name))

    def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        """Hear of a topic that a task uses for the first time."""
        if self.values["topic.tracking.enable"]:
            now_ms = time.time_ns() // 1_000_000
            self.call(lambda it: it.topic_used(task, topic, now_ms))


class Standalone(HerderThread):
    """A worker that has its configurations in memory, its offsets in a file or in `storage`."""

    def __init__(
        self, settings: Mapping[str, str], worker_id: str, storage: OffsetStorage | None = None
    ) -> None:
        """Take a worker's settings, without references; ConfigErrors for invalid ones."""
        values, plugins = STANDALONE.parse(settings), Plugins(*CONNECTORS)
        store = OffsetStore(storage or OffsetFile(values["offset.storage.file.filename"]))
        herder = Herder(worker_id, lambda it: connector_type(plugins, it))
        super().__init__(settings, values, plugins, store, herder)

"""The runtime `thread`: connectors and tasks, each on a thread of its own.

A connector or a task that hangs or fails harms no other: the herder never waits for one, but at the
stop of tasks, for task.shutdown.graceful.timeout.ms.

Kafka: org.apache.kafka.connect.runtime.{Worker, WorkerConnector}.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from ottla.clients.blocking import Consumer, Producer
from ottla.config.client import ConsumerConfig, ProducerConfig
from ottla.connect.connector import SinkTask, SourceTask
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.log_context import set_connector_context
from ottla.connect.runtime.pipeline import Converters, Pipeline, below, converter_plugin, steps_of
from ottla.connect.runtime.sink_offsets import connector_admin
from ottla.connect.runtime.sink_task import SinkContext, SinkLoop
from ottla.connect.runtime.source_task import OffsetReader, SourceLoop
from ottla.connect.runtime.state import ConnectorTaskId, RunState, TargetState
from ottla.connect.runtime.tasks import TaskControl
from ottla.connect.runtime.tolerance import DeadLetters, ErrorHandler, Tolerance, trace_of
from ottla.connect.settings import (
    SINK,
    SINK_CONSUMER,
    SOURCE,
    SOURCE_PRODUCER,
    OverridePolicy,
)
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.connect.connector import Connector
    from ottla.connect.plugins import Plugin, Plugins
    from ottla.connect.runtime.herder import StartTask
    from ottla.connect.runtime.metrics import TaskMetrics
    from ottla.connect.runtime.offsets import OffsetStore

    class Reports(Protocol):
        """Who hears of connectors and tasks; called from any thread, never waits."""

        def connector_state(
            self, name: str, state: RunState, trace: str | None, version: str | None
        ) -> None:
            """Take the state of a connector."""

        def task_state(
            self, task: ConnectorTaskId, state: RunState, trace: str | None, version: str | None
        ) -> None:
            """Take the state of a task."""

        def task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
            """Take the settings of a connector's tasks."""

        def task_configs_requested(self, name: str) -> None:
            """Hear that a connector's tasks need new settings."""

        def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
            """Hear of a topic that a task uses for the first time."""


log = logging.getLogger("ottla.connect")


class _ConnectorContext:
    """The context of a connector."""

    def __init__(self, thread: _ConnectorThread, store: OffsetStore) -> None:
        self._thread, self._store = thread, store

    def request_task_reconfiguration(self) -> None:
        self._thread.reports.task_configs_requested(self._thread.name)

    def raise_error(self, error: Exception) -> None:
        self._thread.fail(error)

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._store.get(self._thread.name, partition)


class _ConnectorThread:
    """One connector: its calls come from one thread, in the order of the requests."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, str],
        plugin: Plugin,
        reports: Reports,
        store: OffsetStore,
    ) -> None:
        self.name, self.reports = name, reports
        self._config, self._plugin, self._store = config, plugin, store
        self._connector: Connector | None = None
        self._has_failed = False
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_stopping = False
        threading.Thread(target=self._run, name=f"connector-{name}", daemon=True).start()

    def set_target(self, target: TargetState) -> None:
        self._calls.put(lambda: self._change(target))

    def make_task_configs(self) -> None:
        self._calls.put(self._make_task_configs)

    def stop(self) -> None:
        self._is_stopping = True
        self._calls.put(None)

    def fail(self, error: Exception) -> None:
        self._has_failed = True
        self._report(RunState.FAILED, trace_of(error))

    def _run(self) -> None:
        set_connector_context(f"[{self.name}|worker] ")
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception as error:
                log.exception("connector %s failed", self.name)
                self.fail(error)
        self._end()

    def _report(self, state: RunState, trace: str | None = None) -> None:
        if not self._is_stopping:
            self.reports.connector_state(self.name, state, trace, self._plugin.version)

    def _change(self, target: TargetState) -> None:
        if self._has_failed:
            return  # only a restart helps
        if target is TargetState.STARTED:
            if self._connector is None:
                connector: Connector = self._plugin.create()
                connector.context = _ConnectorContext(self, self._store)
                connector.start(self._config)
                self._connector = connector
            self._report(RunState.RUNNING)
        else:
            self._end()
            stopped = target is TargetState.STOPPED
            self._report(RunState.STOPPED if stopped else RunState.PAUSED)

    def _make_task_configs(self) -> None:
        if self._connector is None or self._has_failed:
            return
        limit = int(self._config.get("tasks.max", "1"))
        made = self._connector.task_configs(limit)
        enforces = self._config.get("tasks.max.enforce", "true").strip().lower() != "false"
        if len(made) > limit and enforces:
            raise ConnectException(
                f"The connector {self.name} has generated {len(made)} tasks, which is "
                f"greater than {limit}, the maximum number of tasks it is configured to create. "
                f"This behaviour "
                "should be considered a bug and is disallowed. If necessary, it can be permitted "
                "by reconfiguring the connector with 'tasks.max.enforce' set to false; however, "
                "this option will be removed in a future release of Kafka Connect."
            )
        task_class = self._plugin.java_class.removesuffix("Connector") + "Task"
        shared = {name: self._config[name] for name in _SINK_TOPICS if name in self._config}
        configs = [{**it, **shared, "task.class": task_class} for it in made]
        if not self._is_stopping:
            self.reports.task_configs(self.name, configs)

    def _end(self) -> None:
        connector, self._connector = self._connector, None
        if connector is not None:
            try:
                connector.stop()
            except Exception:
                log.exception("connector %s: stopping it failed", self.name)


_SINK_TOPICS = ("topics", "topics.regex")


class _TaskThread:
    def __init__(self, control: TaskControl, run: Callable[[], None]) -> None:
        self.control = control
        self.thread = threading.Thread(target=run, name=f"task-thread-{control.id}", daemon=True)
        self.thread.start()


class TaskWorker:
    """The connectors and tasks of this process, which share its memory: a `ConnectorRuntime`."""

    def __init__(
        self,
        settings: Mapping[str, str],
        values: Mapping[str, Any],
        plugins: Plugins,
        store: OffsetStore,
        reports: Reports,
    ) -> None:
        """Take the worker's settings as texts and parsed."""
        self._settings, self._values = settings, values
        self._plugins, self._store, self._reports = plugins, store, reports
        self._overrides = OverridePolicy.of(values)
        self._connectors: dict[str, _ConnectorThread] = {}
        self._tasks: dict[ConnectorTaskId, _TaskThread] = {}

    def start_connector(self, name: str, config: Mapping[str, str], target: TargetState) -> None:
        """Start a connector."""
        plugin = self.connector_plugin(config)
        started = _ConnectorThread(name, config, plugin, self._reports, self._store)
        self._connectors[name] = started
        started.set_target(target)

    def connector_plugin(self, config: Mapping[str, str]) -> Plugin:
        """Return the plug-in of a connector."""
        return self._plugins.find(config.get("connector.class", ""), "source", "sink")

    def stop_connector(self, name: str) -> None:
        """Stop a connector, without waiting."""
        stopped = self._connectors.pop(name, None)
        if stopped is not None:
            stopped.stop()

    def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop a connector and its tasks."""
        if name in self._connectors:
            self._connectors[name].set_target(target)
        for task, running in self._tasks.items():
            if task.connector == name:
                running.control.set_target(target)

    def make_task_configs(self, name: str) -> None:
        """Have a connector report the settings of its tasks."""
        if name in self._connectors:
            self._connectors[name].make_task_configs()

    def task_metrics(self) -> Mapping[ConnectorTaskId, TaskMetrics]:
        """Return the metrics of the tasks."""
        return {task: it.control.metrics for task, it in list(self._tasks.items())}

    def start_task(self, start: StartTask) -> None:
        """Start a task."""
        plugin = self.connector_plugin(start.connector_config)

        def report(state: RunState, trace: str | None) -> None:
            self._reports.task_state(start.task, state, trace, plugin.version)

        control = TaskControl(start.task, start.target, report)

        def run() -> None:
            set_connector_context(f"[{start.task.connector}|task-{start.task.task}] ")
            self._run(start, plugin, control)

        self._tasks[start.task] = _TaskThread(control, run)

    def end_tasks(self, tasks: Sequence[ConnectorTaskId] | None = None) -> None:
        """Have tasks end, from any thread; `stop_tasks` waits for them."""
        for task, running in list(self._tasks.items()):
            if tasks is None or task in tasks:
                running.control.stop()

    def stop_tasks(
        self, tasks: Sequence[ConnectorTaskId], end_s: float
    ) -> Sequence[ConnectorTaskId]:
        """Stop tasks and wait for them; return those that took too long and are abandoned."""
        self.end_tasks(tasks)
        abandoned = []
        for running in [self._tasks.pop(it) for it in tasks if it in self._tasks]:
            running.thread.join(max(0.0, end_s - time.monotonic()))
            if running.thread.is_alive():
                log.error("Graceful stop of task %s failed.", running.control.id)
                running.control.abandon()
                abandoned.append(running.control.id)
        return abandoned

    def stop(self, end_s: float) -> None:
        """Stop everything; offsets are committed."""
        for name in list(self._connectors):
            self.stop_connector(name)
        self.stop_tasks(list(self._tasks), end_s)

    # ------------------------------------------------------------ the thread of a task

    def _run(self, start: StartTask, plugin: Plugin, control: TaskControl) -> None:
        try:
            connector: Any = plugin.load()
            task = connector.task_class()
            control.metrics.texts = self._texts(start, plugin)
            if isinstance(task, SourceTask):
                self._run_source(start, task, control)
            else:
                self._run_sink(start, task, control)
        except Exception as error:
            log.exception("%s: Task threw an uncaught and unrecoverable exception", start.task)
            control.report(RunState.FAILED, trace_of(error))

    def _texts(self, start: StartTask, plugin: Plugin) -> dict[str, str]:
        """Return classes and versions for the metrics of a task."""
        texts = {
            "connector-class": plugin.java_class,
            "connector-type": plugin.type,
            "connector-version": plugin.version,
            "task-class": start.config.get("task.class", ""),
            "task-version": plugin.version,
        }
        for part in ("key", "value", "header"):
            converter, _ = converter_plugin(
                part, self._plugins, start.connector_config, self._settings
            )
            texts |= {
                f"{part}-converter-class": converter.java_class,
                f"{part}-converter-version": converter.version,
            }
        return texts

    def _usage(self, task: ConnectorTaskId) -> Callable[[str], None]:
        seen: set[str] = set()

        def use(topic: str) -> None:
            if topic not in seen:
                seen.add(topic)
                self._reports.topic_used(task, topic)

        return use

    def _run_source(self, start: StartTask, task: SourceTask, control: TaskControl) -> None:
        config = start.connector_config
        handler = ErrorHandler(
            start.task,
            Tolerance.of(SOURCE.parse(config)),
            now_s=control.now_s,
            wait=control.wait,
        )
        control.metrics.errors = handler.counts
        pipeline = Pipeline(
            steps_of(self._plugins, config),
            Converters.of(self._plugins, config, self._settings),
            handler,
        )
        task.context = OffsetReader(self._store, start.task.connector, start.config)
        loop = SourceLoop(
            control,
            task,
            pipeline,
            handler,
            producer=self._producer(start, "producer"),
            store=self._store,
            flush_interval_s=self._values["offset.flush.interval.ms"] / 1000,
            use_topic=self._usage(start.task),
        )
        loop.run(start.config)

    def _run_sink(self, start: StartTask, task: SinkTask, control: TaskControl) -> None:
        config = start.connector_config
        values = SINK.parse(config)
        dead_letters = None
        topic = values["errors.deadletterqueue.topic.name"]
        if topic:
            factor = values["errors.deadletterqueue.topic.replication.factor"]
            self._create_dead_letter_topic(config, topic, factor)
            producer = self._producer(start, "dlq-producer")
            control.close_producer = lambda: producer.close(0)
            with_context = values["errors.deadletterqueue.context.headers.enable"]
            dead_letters = DeadLetters(producer, topic, with_context=with_context)
        try:
            handler = ErrorHandler(
                start.task,
                Tolerance.of(values),
                now_s=control.now_s,
                wait=control.wait,
                dead_letters=dead_letters,
            )
            control.metrics.errors = handler.counts
            pipeline = Pipeline(
                steps_of(self._plugins, config),
                Converters.of(self._plugins, config, self._settings),
                handler,
            )
            consumer = self._consumer(start)
            task.context = context = SinkContext(start.config, consumer, handler)
            loop = SinkLoop(
                control,
                task,
                pipeline,
                consumer=consumer,
                context=context,
                commit_interval_s=self._values["offset.flush.interval.ms"] / 1000,
                use_topic=self._usage(start.task),
            )
            loop.run(start.config, values["topics"], values["topics.regex"] or None)
        finally:
            if dead_letters is not None:
                control.run_quietly(dead_letters.close, "closing the dead letters")

    def _create_dead_letter_topic(
        self, config: Mapping[str, str], topic: str, replication_factor: int
    ) -> None:
        """Create the topic unless it exists: without it a sink would wait at its first letter."""
        try:
            with connector_admin(self._settings, self._overrides, config) as admin:
                # listed first: whoever may not create topics can use one
                if all(it.name != topic for it in admin.list_topics()):
                    log.warning("Topic %s doesn't exist. Will attempt to create topic.", topic)
                    admin.create_topic(topic, 1, replication_factor, if_not_exists=True)
        except (KafkaError, TimeoutError) as error:
            text = f"Could not initialize dead letter queue with topic={topic}"
            raise ConnectException(text) from error

    # ------------------------------------------------------------ clients

    def _producer(self, start: StartTask, kind: str) -> Producer:
        settings = self._client_settings("producer", start, SOURCE_PRODUCER, ProducerConfig)
        settings.setdefault("client.id", f"connector-{kind}-{start.task}")
        return Producer(config=settings)

    def _consumer(self, start: StartTask) -> Consumer:
        settings = self._client_settings("consumer", start, SINK_CONSUMER, ConsumerConfig)
        settings.setdefault("client.id", f"connector-consumer-{start.task}")
        settings.setdefault("group.id", f"connect-{start.task.connector}")
        return Consumer(config=settings)

    def _client_settings(
        self, kind: str, start: StartTask, base: Mapping[str, str], table: Any
    ) -> dict[str, Any]:
        """Return defaults, the worker's settings for such clients, and the connector's own."""
        self._overrides.require(start.connector_config)
        settings: dict[str, Any] = {
            "bootstrap.servers": self._settings["bootstrap.servers"],
            **base,
            **below(self._settings, f"{kind}."),
            **below(start.connector_config, f"{kind}.override."),
        }
        unknown = [name for name in settings if name not in table.keys]
        for name in unknown:  # Kafka's clients warn of them, too
            log.warning("%s: unknown setting %s of its %s", start.task, name, kind)
            del settings[name]
        for name in _JAVA_ONLY:
            settings.pop(name, None)
        return settings


_JAVA_ONLY = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")

"""The runtime `spark`: each connector is one query, on one session of the worker.

Connect sees a single task, whose state is that of the query; `tasks.max` is the number of the
query's tasks in Spark.

Kafka: none; docs/decisions has why.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pyspark.errors import StreamingQueryException

from ottla.clients.admin.blocking import Admin
from ottla.clients.settings import CONSUMER, PRODUCER
from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.offsets import encode_json
from ottla.connect.runtime.pipeline import below
from ottla.connect.runtime.state import RunState
from ottla.connect.runtime.tolerance import trace_of
from ottla.connect.runtime.worker import TaskWorker
from ottla.connect.settings import (
    BATCH_RECORDS,
    CHECKPOINTS,
    OWN,
    PYTHON_MODULES,
    SINK,
    TRIGGER,
)
from ottla.connect.spark import formats
from ottla.connect.spark.offsets import OffsetLog, settle
from ottla.connect.spark.rows import (
    ROW_TYPES,
    TOPIC_COLUMNS,
    Row,
    TaskSettings,
    from_topics,
    to_topics,
)
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from ottla.connect.plugins import Plugin
    from ottla.connect.runtime.herder import StartTask
    from ottla.connect.runtime.state import TargetState
    from ottla.connect.runtime.tasks import TaskControl

log = logging.getLogger("ottla.connect")
_POLL_S: Final = 0.5
"""Between two looks at a query: it ends by itself only when it fails."""
_MASTER: Final = "spark.master"
_LOCAL: Final = "local[2]"
_OFFSETS_PARTITIONS: Final = 25
"""Of the offsets topic of a standalone worker; Kafka's default of a distributed one."""
_NO_OPTION: Final = frozenset(
    {"group.id", "client.id", "enable.auto.commit", "auto.offset.reset", "transactional.id"}
)


class SparkRuntime(TaskWorker):
    """The connectors of a worker that are queries of Spark: a `ConnectorRuntime`."""

    _session: SparkSession | None = None

    def __init__(self, *parts: Any) -> None:
        """Take the worker's parts; the session starts with the first query."""
        super().__init__(*parts)
        self._session_lock = threading.Lock()
        self._is_own_session = False

    def start_connector(self, name: str, config: Mapping[str, str], target: TargetState) -> None:
        """Start a connector, which makes the settings of one task: the query."""
        super().start_connector(name, {**config, "tasks.max": "1"}, target)

    def stop(self, end_s: float) -> None:
        """Stop everything, and Spark if it was started here."""
        super().stop(end_s)
        with self._session_lock:
            if self._session is not None and self._is_own_session:
                from ottla.spark import stop

                stop(self._session)
                self._session = None

    def _run(self, start: StartTask, plugin: Plugin, control: TaskControl) -> None:
        directory = Path(tempfile.mkdtemp(prefix="ottla-connect-"))
        try:
            _Query(self, start, control, directory).run(plugin.load())
        except Exception as error:
            log.exception("%s: Task threw an uncaught and unrecoverable exception", start.task)
            control.report(RunState.FAILED, trace_of(error))
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def spark(self, config: Mapping[str, str]) -> SparkSession:
        """Return the session, for the thread that calls; ConnectException for another master."""
        from pyspark import SparkContext

        from ottla.spark import session, use_in_this_thread

        settings = {k: v for k, v in self._settings.items() if k.startswith("spark.")}
        master = config.get(_MASTER) or settings.get(_MASTER) or _LOCAL
        settings.pop(_MASTER, None)
        with self._session_lock:
            if self._session is None:
                context = SparkContext._active_spark_context  # noqa: SLF001 - PySpark has no function
                self._is_own_session = context is None
                self._session = session("ottla connect", master=master, config=settings)
            running = self._session.sparkContext.master
        if config.get(_MASTER) not in (None, running):
            raise ConnectException(
                f"{_MASTER}={config[_MASTER]}: the session of this worker runs on {running}; a "
                "worker has one, for all of its connectors"
            )
        use_in_this_thread(self._session)
        return self._session

    def clients(self, kind: str, config: Mapping[str, str], table: Any) -> dict[str, str]:
        """Return the settings of clients that a query has: those of the worker's own tasks."""
        self._overrides.require(config)
        settings = {
            **{name: it for name, it in self._settings.items() if name in table.keys},
            **below(self._settings, f"{kind}."),
            **below(config, f"{kind}.override."),
        }
        return {k: v for k, v in settings.items() if k in table.keys and k not in _NO_OPTION}

    def offsets_topic(self, config: Mapping[str, str]) -> str:
        """Return the topic of the source's offsets, which is created for a standalone worker."""
        topic = config.get("offsets.storage.topic") or self._settings.get("offset.storage.topic")
        if not topic:
            raise ConnectException(
                "a source on Spark stores its offsets in a topic: set offset.storage.topic of the "
                "worker, or offsets.storage.topic of the connector"
            )
        with Admin(config=self.clients("admin", config, AdminConfig)) as admin:
            admin.create_topic(
                topic,
                int(self._settings.get("offset.storage.partitions", _OFFSETS_PARTITIONS)),
                int(self._settings.get("offset.storage.replication.factor", "-1")),
                configs={"cleanup.policy": "compact"},
                if_not_exists=True,
            )
        return topic

    def value(self, config: Mapping[str, str], name: str) -> Any:
        """Return a setting of the connector, else the worker's."""
        return OWN.parse(config)[name] if name in config else self._values[name]

    @property
    def converters(self) -> dict[str, str]:
        """Return the worker's converters."""
        return {k: v for k, v in self._settings.items() if ".converter" in k}

    @property
    def group(self) -> str:
        """Return a name of the worker's group."""
        return self._settings.get("group.id", "standalone")

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules of transforms in Python."""
        return tuple(self._values[PYTHON_MODULES])


def without_plan(text: str) -> str:
    """Return Spark's text of a failure without the query, whose options may be secrets."""
    return text.partition("=== Streaming Query ===")[0].rstrip()


class _Query:
    """One connector's query, on the thread of its task."""

    def __init__(
        self, runtime: SparkRuntime, start: StartTask, control: TaskControl, directory: Path
    ) -> None:
        self._runtime, self._control, self._directory = runtime, control, directory
        self._config, self._name = start.connector_config, start.task.connector
        self._task = TaskSettings(self._name, self._config, runtime.converters, runtime.modules)

    def run(self, connector: Any) -> None:
        """Run the query until the task is stopped; paused it does not exist."""
        if self._config.get("errors.deadletterqueue.topic.name"):
            raise ConnectException(
                "errors.deadletterqueue.topic.name: not with ottla.runtime=spark"
            )
        self._spark = self._runtime.spark(self._config)
        while not self._control.is_stopping:
            if self._control.wait_while_paused():
                continue
            try:
                self._run_query(connector)
            except StreamingQueryException as error:
                raise ConnectException(without_plan(str(error))) from None

    def _run_query(self, connector: Any) -> None:
        if hasattr(connector, "source_class"):
            self._watch(self._python_source(connector.source_class))
        elif hasattr(connector.task_class, "sink_class"):
            self._watch(self._python_sink(connector.task_class.sink_class))
        elif issubclass(connector, formats.SparkFormatSinkConnector):
            self._watch(self._format_sink())
        elif not issubclass(connector, formats.SparkFormatSourceConnector):
            raise ConnectException(
                f"{connector.__name__} has tasks of its own, which ottla.runtime=spark cannot "
                "divide: that takes a Source or a Sink (ottla.connect.simple)"
            )
        elif self._config.get(formats.GROWING):
            self._read_growing_table()
        else:
            frame = self._to_topics(formats.followed(self._spark, self._config))
            self._watch(self._start(frame, self._sink_options()))

    def _watch(self, query: Any) -> None:
        """Wait until the query is to stop; its error is that of the task."""
        self._control.report(RunState.RUNNING)
        if self._has_ended(query):
            raise ConnectException(f"the query of {self._name} has ended")

    def _has_ended(self, query: Any) -> bool:
        """Wait until a query has ended by itself, or stop it as soon as it is to stop."""
        try:
            while not self._is_over():
                if query.awaitTermination(_POLL_S):
                    return True
            return False
        finally:
            query.stop()

    def _is_over(self) -> bool:
        return self._control.is_stopping or self._control.is_paused

    # ------------------------------------------------------------ sources

    @property
    def _checkpoint(self) -> str:
        directory = self._runtime.value(self._config, CHECKPOINTS)
        if not directory:
            raise ConnectException(
                f"{CHECKPOINTS} is not set: queries are exactly once by their checkpoints"
            )
        name = quote(self._name, safe="")
        if name in {".", ".."}:  # they would lead out of the directory
            name = name.replace(".", "%2E")
        return f"{directory.rstrip('/')}/{name}"

    def _sink_options(self, **more: str) -> dict[str, str]:
        clients = self._runtime.clients("producer", self._config, ProducerConfig)
        return {
            **{f"kafka.{k}": v for k, v in clients.items() if k in PRODUCER},
            "kafka.group.id": f"connect-{self._runtime.group}-{self._name}",
            "decisionTopic": self._runtime.offsets_topic(self._config),
            **more,
        }

    def _start(self, frame: DataFrame, options: Mapping[str, str], *, once: bool = False) -> Any:
        trigger: dict[str, Any] = {"once": True} if once else {"processingTime": self._interval}
        return (
            frame.writeStream.format("ottla")
            .options(**options)
            .option("checkpointLocation", self._checkpoint)
            .trigger(**trigger)
            .start()
        )

    @property
    def _interval(self) -> str:
        return f"{self._runtime.value(self._config, TRIGGER)} milliseconds"

    def _to_topics(self, frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(partial(to_topics, self._task, self._config["topic"]), ROW_TYPES)

    def _python_source(self, source_class: type[Any]) -> Any:
        from ottla.connect.spark.source import FORMAT, SourceFormat, SourceQuery

        options = self._sink_options()
        described = SourceQuery(
            self._task,
            f"{source_class.__module__}:{source_class.__qualname__}",
            options["decisionTopic"],
            self._runtime.clients("consumer", self._config, ConsumerConfig),
            int(self._config.get("tasks.max", "1")),
            self._runtime.value(self._config, BATCH_RECORDS),
        )
        path = self._directory / "source.json"
        path.touch(mode=0o600)  # it may have secrets
        path.write_text(json.dumps(asdict(described)), "utf-8")
        settle(options, self._checkpoint)
        self._spark.dataSource.register(SourceFormat)
        frame = self._spark.readStream.format(FORMAT).option("settings", str(path)).load()
        return self._start(frame, options)

    def _read_growing_table(self) -> None:
        """Write the next rows with their offset, by a query of one batch for each read."""
        from pyspark.sql import functions

        values = formats.SOURCE_FORMAT.parse(self._config)
        options = self._sink_options()
        topic = options["decisionTopic"]
        settle(options, self._checkpoint)
        clients = self._runtime.clients("consumer", self._config, ConsumerConfig)
        # a pause does not end the wait: after a resume the offsets would be used, incomplete
        offsets = OffsetLog(topic, clients, lambda: self._control.is_stopping)
        table = formats.GrowingTable(self._spark, self._config)
        self._control.report(RunState.RUNNING)
        try:
            while not self._is_over():
                store = offsets.store()
                start = (store.get(self._name, formats.PARTITION) or {}).get(formats.OFFSET)
                end = table.end_after(start)
                if self._is_over():
                    break  # the offsets may not have been read to their end
                if end is None:
                    self._control.wait(values["poll.interval.ms"] / 1000)
                    continue
                key = store.stored_key(self._name, formats.PARTITION)
                mark = Row(topic, key=key, value=encode_json({formats.OFFSET: end}))
                tick = (
                    self._spark.readStream.format("rate-micro-batch")
                    .option("rowsPerBatch", 1)
                    .option("numPartitions", 1)
                    .load()
                )
                # in a stream, so that the sink decides on rows and offset as on one batch
                rows = table.rows(start, end)
                columns = [functions.col(f"`{name}`") for name in rows.columns]
                made = self._to_topics(
                    functions.broadcast(tick.select()).crossJoin(rows).select(*columns)
                )
                fields = [
                    functions.lit(value).cast(made.schema[name].dataType).alias(name)
                    for name, value in mark._asdict().items()
                ]
                batch = made.unionByName(tick.select(*fields))
                self._has_ended(self._start(batch, options, once=True))
        finally:
            offsets.close()

    # ------------------------------------------------------------ sinks

    def _topics(self, **options: str) -> DataFrame:
        """Return the stream of the sink's topics."""
        values = SINK.parse(self._config)
        topics = values["topics"]
        selection = (
            {"subscribe": ",".join(topics)}
            if topics
            else {"subscribePattern": values["topics.regex"]}
        )
        clients = self._runtime.clients("consumer", self._config, ConsumerConfig)
        return (
            self._spark.readStream.format("ottla")
            .options(**{f"kafka.{k}": v for k, v in clients.items() if k in CONSUMER})
            .options(**selection)
            .options(**options)
            .option("kafka.group.id", self._group)
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", self._runtime.value(self._config, BATCH_RECORDS))
            .load()
            .select(*TOPIC_COLUMNS)
        )

    @property
    def _group(self) -> str:
        return self._config.get("consumer.override.group.id", f"connect-{self._name}")

    def _format_sink(self) -> Any:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType

        values = formats.SINK_FORMAT.parse(self._config)
        schema = StructType.fromDDL(values["schema"])
        assert isinstance(schema, StructType)
        convert = partial(from_topics, self._task, to_arrow_schema(schema, timezone="UTC"))
        frame = self._topics(startingOffsets="earliest").mapInArrow(convert, schema)
        kind, options = values["format"], below(self._config, formats.OPTIONS)
        if kind in formats.FILES:
            writer = frame.writeStream.format(kind).options(**options)
            if values["partition.by"]:
                writer = writer.partitionBy(*values["partition.by"])
        else:

            def write(batch: DataFrame, batch_id: int) -> None:
                del batch_id
                made = batch.write.format(kind).options(**options).mode(values["write.mode"])
                (
                    made.partitionBy(*values["partition.by"]) if values["partition.by"] else made
                ).save()

            writer = frame.writeStream.foreachBatch(write)
        return (
            writer.option("checkpointLocation", self._checkpoint)
            .trigger(processingTime=self._interval)
            .start()
        )

    def _python_sink(self, sink_class: type[Any]) -> Any:
        """Start from the group's offsets, which follow each batch; no checkpoint is kept."""
        from ottla.connect.spark.sink import END_TYPES, write

        path = f"{sink_class.__module__}:{sink_class.__qualname__}"
        admin_config = self._runtime.clients("admin", self._config, AdminConfig)

        def take(batch: DataFrame, batch_id: int) -> None:
            del batch_id
            ends: dict[TopicPartition, int] = {}
            for row in batch.mapInArrow(partial(write, self._task, path), END_TYPES).collect():
                partition = TopicPartition(row.topic, row.partition)
                ends[partition] = max(row.end, ends.get(partition, 0))
            with Admin(config=admin_config) as admin:
                for error in admin.alter_group_offsets(self._group, ends).values():
                    if error is not None:
                        raise error

        checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=self._directory)
        return (
            self._topics(startingOffsets="group")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime=self._interval)
            .start()
        )

"""Streams: runs a topology as a streaming query of Spark, exactly once from topic to topic.

Kafka: org.apache.kafka.streams.KafkaStreams.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.blocking import Admin
from ottla.clients.blocking import Consumer
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import LATEST_TIMESTAMP
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.checkpoint_files import is_local
from ottla.spark.hadoop_settings import hadoop_settings, of_hadoop, settings_of
from ottla.spark.options import Options
from ottla.streams.errors import StreamsException
from ottla.streams.plan.plan import Plan, layout, plan_for
from ottla.streams.query.instances import Instance
from ottla.streams.run.checkpoints import (
    Start,
    check_cluster,
    check_options,
    check_tasks,
    check_topology,
    listed_offsets,
    noted_tasks,
    starting_offsets,
)
from ottla.streams.run.lifecycle import ApplicationState, Lifecycle
from ottla.streams.run.progress import Progress, read_progress
from ottla.streams.run.supervisor import advice
from ottla.streams.topology.topology import subscription
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.streams.data.serdes import Serde
    from ottla.streams.dsl.settings import Partitioner
    from ottla.streams.query.instances import KeyQueryMetadata, LagInfo, StreamsMetadata
    from ottla.streams.query.state_queries import StateQueryRequest, StateQueryResult
    from ottla.streams.query.stores import ReadOnlyStore
    from ottla.streams.run.lifecycle import StateListener
    from ottla.streams.topology.topology import Topology

FINISH_S: Final = 600
POLL_S: Final = 1
INTERNAL_TOPIC: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}
"""As Kafka makes its internal topics: the records' times may be of long ago."""


class Streams:
    """A topology, the cluster that it reads and writes, and the checkpoint that it goes on from.

    The application's id is the consumer group of its offsets.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        bootstrap_servers: str,
        checkpoint: str | Path,
        spark: SparkSession | None = None,
        config: Mapping[str, Any] | None = None,
        master: str = "local[2]",
        spark_config: Mapping[str, str] | None = None,
        log_level: str = "ERROR",
    ) -> None:
        """Take a topology; `config` has client settings and options of the source and the sink.

        Without a session one is made with `master` and `spark_config`, and ended by `stop`; the
        level of its log, which Spark writes to standard error, is `log_level`.
        """
        self._master = master
        self._log_level = log_level
        self._spark_config = dict(spark_config or {})
        self.topology = topology
        self._bootstrap = bootstrap_servers
        self._checkpoint = str(checkpoint)
        self._given = {name: str(value) for name, value in (config or {}).items()}
        self._owned: SparkSession | None = None
        self._spark = spark
        self._stream_time_ms = -1
        self._lifecycle = Lifecycle()
        self._is_available_now = False
        self.query: StreamingQuery | None = None

    def start(self) -> Streams:
        """Start to process, until `stop`."""
        self._check_not_running()
        self._launch(available_now=False)
        return self

    def process_available(
        self, timeout_s: int = FINISH_S, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        """Process what is in the topics now, and end; StreamsException after a timeout.

        `on_progress` gets the figures of each micro-batch within a second of its end.
        """
        self._check_not_running()
        if self.is_paused:
            raise StreamsException("the application is paused: resume() it first")
        try:
            plan, checkpoint = self._launch(available_now=True)
            self._finish(timeout_s, on_progress)
            while plan.real_topics and self._wrote_internally(plan, checkpoint):
                self._launch(available_now=True)
                self._finish(timeout_s, on_progress)
        finally:
            self._lifecycle.ended()

    def open(self) -> None:
        """Make the session, as `start` does; raises Spark's errors of its settings."""
        self._session()

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; raises the error of a failed micro-batch. A pause is no end."""
        ended = self._await(timeout_s)
        if ended:
            self._lifecycle.ended()
        return ended

    @property
    def state(self) -> ApplicationState:
        """The state, with Kafka's names."""
        query, state = self.query, self._lifecycle.state
        if state is ApplicationState.RUNNING and query is not None and not query.isActive:
            self._note_end(query)
        return self._lifecycle.state

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Call `listener(new, old)` with each change of the state; it is set before the start.

        The thread is the one that changes the state, or one that waits for the query's end.
        """
        self._lifecycle.set_listener(listener)

    @property
    def is_paused(self) -> bool:
        """Whether the application is paused."""
        return self._lifecycle.is_paused

    def pause(self) -> None:
        """Process nothing until `resume`; the state stays what it is, as in Kafka.

        Spark's query ends. Its micro-batch is aborted, and repeated by the next one.
        """
        self._lifecycle.pause(is_paused=True)
        if self.query is not None:
            self.query.stop()

    def resume(self) -> None:
        """Go on after `pause`, from the last micro-batch that was committed."""
        if not self.is_paused:
            return
        try:
            if self._lifecycle.state is ApplicationState.RUNNING:
                self._launch(available_now=self._is_available_now, is_paused=False)
        finally:
            self._lifecycle.pause(is_paused=False)

    def store(self, name: str) -> ReadOnlyStore:
        """Return a store, as of the last committed micro-batch."""
        from ottla.streams.query.stores import query_store

        return query_store(self.topology, self._checkpoint, name, self._session())

    def state_query(self, request: StateQueryRequest) -> StateQueryResult:
        """Return the answers to a query of a store by partition, as of the last micro-batch."""
        from ottla.streams.query.stores import query_state

        return query_state(self.topology, self._checkpoint, request, self._session())

    def query_metadata_for_key(
        self,
        store: str,
        key: Any,
        *,
        serde: Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> KeyQueryMetadata | None:
        """Return the partition of a store that has a key; None before the first micro-batch.

        `partitioner(topic, key, None, partitions)` is that of what was written, `serde` the key's,
        if it is not the store's.
        """
        return self._instance().key_metadata(store, key, serde, partitioner)

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """Return the instances, of which there is one; none before the first micro-batch."""
        return self._instance().metadata()

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that have a store."""
        return self._instance().metadata_for_store(store)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return how far the partitions of stores are behind the ends of the topics they depend on.

        The state is that of the last committed micro-batch; without one there are no partitions.
        """

        def ends_of(places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            with Admin(config=self._client_config) as admin:
                there = {
                    topic.name for topic in admin.list_topics()
                }  # one of a pattern may be deleted
                requested = [partition for partition in places if partition.topic in there]
                return listed_offsets(admin, dict.fromkeys(requested, LATEST_TIMESTAMP))

        return self._instance().lags(ends_of)

    def _instance(self) -> Instance:
        return Instance(self.topology, self._opened_checkpoint()[0])

    def progress(self) -> Progress | None:
        """Return the figures of the last micro-batch; None before the first."""
        report = None if self.query is None else self.query.lastProgress
        return None if report is None else self._read(report)

    def progress_after(self, last: Progress | None) -> list[Progress]:
        """Return the figures of the micro-batches since those, and of the last one; at most 100."""
        newest = self.progress()
        if newest is None or self.query is None:
            return []
        if last is not None and last.run == newest.run and newest.batch <= last.batch + 1:
            return [newest]
        recent = [self._read(report) for report in self.query.recentProgress]
        known = -1 if last is None or last.run != newest.run else last.batch
        return [progress for progress in recent if progress.batch > known]

    def _read(self, report: StreamingQueryProgress) -> Progress:
        found = read_progress(json.loads(report.json))
        self._stream_time_ms = max(self._stream_time_ms, found.stream_time_ms)
        return found._replace(stream_time_ms=self._stream_time_ms)

    def stop(self) -> None:
        """End the query and its micro-batch, and the session if it was made here.

        A next run goes on from the last micro-batch that was committed.
        """
        self._lifecycle.stopping()
        if self._owned is not None:
            from ottla.spark.jvm.local_session import silence

            silence(self._owned)
        if self.query is not None:
            self.query.stop()
            self.query = None
        if self._owned is not None:
            from ottla.spark.jvm.local_session import stop

            stop(self._owned)
            self._owned = self._spark = None
        self._lifecycle.ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _launch(
        self, *, available_now: bool, is_paused: bool | None = None
    ) -> tuple[Plan, Checkpoint]:
        """Plan and start the query, unless it is paused; what it needs is checked in any case."""
        self._is_available_now = available_now
        self._lifecycle.starting()
        try:
            plan, checkpoint, writer = self._planned(available_now=available_now)
            if not (self.is_paused if is_paused is None else is_paused):
                self.query = writer.start()
                self._watch(self.query)
        except BaseException:
            self._lifecycle.failed()
            raise
        self._lifecycle.running()
        return plan, checkpoint

    def _check_not_running(self) -> None:
        state = self.state
        if self._lifecycle.is_started:
            raise StreamsException(f"the application is already started: {state.name}")

    def _watch(self, query: StreamingQuery) -> None:
        """Find the end of a query in a thread, if there is a listener to be told."""

        def watch() -> None:
            with suppress(Exception):
                query.awaitTermination()
            with suppress(Exception):  # the session may be gone: then it was stopped
                self._note_end(query)

        if self._lifecycle.has_listener:
            Thread(target=watch, name="ottla-streams-state", daemon=True).start()

    def _note_end(self, query: StreamingQuery) -> None:
        """Note that a query has ended by itself: by an error, or stopped by others."""
        if query is not self.query or self.is_paused:
            return
        if query.exception() is not None:
            self._lifecycle.failed()
        elif not self._is_available_now:
            self._lifecycle.ended()

    def _await(self, timeout_s: float | None) -> bool:
        """Wait for the end of the query that runs, also after pauses."""
        end_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if timeout_s is None else max(0.001, end_s - time.monotonic())
            if self.is_paused and self._lifecycle.is_started:
                if not self._lifecycle.wait_while_paused(left_s):
                    return False
                if not self._lifecycle.is_started:
                    return True
                continue
            query = self._running()
            if not self._has_ended(query, left_s):
                return False
            if not self.is_paused and self.query in (query, None):
                return True

    def _has_ended(self, query: StreamingQuery, timeout_s: float | None) -> bool:
        try:
            return bool(query.awaitTermination(timeout_s))  # type: ignore[arg-type] # seconds
        except Exception as error:
            if query is self.query:
                self._lifecycle.failed()
            if hint := advice(error):
                error.add_note(hint)
            raise

    def _planned(self, *, available_now: bool) -> tuple[Plan, Checkpoint, DataStreamWriter]:
        from ottla.streams.run.data_frames import compile_plan
        from ottla.streams.run.spark_tasks import TopicCounts

        layout(self.topology)  # an invalid topology is refused before anything is asked
        check_options(self.topology, self._given)
        checkpoint, hadoop = self._opened_checkpoint()
        check_topology(checkpoint, self.topology)
        plan, starting = self._prepare_topics(checkpoint)
        options = self._options
        records = (
            self._session()
            .readStream.format("ottla")
            .options(**{"includeHeaders": "true", **options})
            .option("startingOffsets", starting)
            .option("kafka.isolation.level", "read_committed")
            .options(**_subscription(plan))
            .load()
        )
        writer = (
            compile_plan(plan, records, TopicCounts(options))
            .writeStream.format("ottla")
            .queryName(self.topology.config.application_id)
            .options(**{"kafka.allow.auto.create.topics": "false", **options}, **hadoop)
            .option("kafka.group.id", self.topology.config.application_id)
            .option("checkpointLocation", checkpoint.location)
        )
        writer = writer.trigger(availableNow=True) if available_now else writer
        return plan, checkpoint, writer

    @property
    def _options(self) -> dict[str, str]:
        """The options of the source and the sink."""
        return {"kafka.bootstrap.servers": self._bootstrap, **self._given}

    @property
    def _client_config(self) -> dict[str, str]:
        """The settings of connections among them, for clients of the driver."""
        return Options(self._options).connection_config()

    def _opened_checkpoint(self) -> tuple[Checkpoint, dict[str, str]]:
        """Return the checkpoint, and Hadoop's settings for it."""
        hadoop = {} if self._is_local else settings_of(self._session())
        return Checkpoint(self._checkpoint, hadoop), hadoop

    def _running(self) -> StreamingQuery:
        if self.query is None:
            raise StreamsException("the application is not started")
        return self.query

    def _finish(self, timeout_s: int, on_progress: Callable[[Progress], None] | None) -> None:
        deadline_s = time.monotonic() + timeout_s
        poll_s = timeout_s if on_progress is None else POLL_S
        last: Progress | None = None
        is_finished = False
        while not is_finished and (left_s := deadline_s - time.monotonic()) > 0:
            is_finished = self._await(min(math.ceil(left_s), poll_s))
            if on_progress is not None:
                for last in self.progress_after(last):  # noqa: B020 - the last one is kept
                    on_progress(last)
        if not is_finished:
            self._running().stop()
            raise StreamsException(f"the micro-batches took longer than {timeout_s} s")

    @property
    def _is_local(self) -> bool:
        """Whether the checkpoint is on this machine, where its errors need no session."""
        return is_local(self._checkpoint, hadoop_settings(of_hadoop(self._spark_config)))

    def _session(self) -> SparkSession:
        if self._spark is None:
            from ottla.spark.jvm.local_session import SHARED_CHECKPOINT, check_settings, session

            files = {} if self._is_local else SHARED_CHECKPOINT
            self._spark = self._owned = session(
                self.topology.config.application_id,
                master=self._master,
                config={**files, **self._spark_config},
                log_level=self._log_level,
            )
            check_settings(self._spark)
        return self._spark

    def _prepare_topics(self, checkpoint: Checkpoint) -> tuple[Plan, str]:
        """Return the plan on the cluster, whose real topics are created.

        With it where a new checkpoint starts to read, as Spark's option.
        """
        sinks = [sink.topic for sink in self.topology.sinks() if isinstance(sink.topic, str)]
        internal = self.topology.internal_topics
        needed = [name for name in self.topology.source_topics() if name not in internal]
        with Admin(config=self._client_config) as admin:
            check_cluster(checkpoint, admin.describe_cluster().cluster_id)
            names: list[str] = []
            if self.topology.patterns():
                names = [topic.name for topic in admin.list_topics(include_internal=False)]
            read = layout(self.topology, names).source_topics()
            described = dict.fromkeys([*needed, *read, *sinks])
            found = admin.describe_topics([*described])
            counts = {
                str(name): len(one.partitions)
                for name, one in found.items()
                if not isinstance(one, KafkaError)
            }
            missing = [name for name in needed if name not in counts]
            processed = {place.topic for place in checkpoint.committed_positions()}
            if deleted := [name for name in missing if name in processed]:
                raise StreamsException(
                    f"the application has read topics that were deleted: {deleted}; create them, "
                    "and take a new checkpoint: the offsets of the old ones mean nothing in them"
                )
            if missing:
                raise StreamsException(
                    f"the application's source topics are missing: {missing}; create them: "
                    "ottla topics --create --topic NAME --partitions N"
                )
            plan = plan_for(self.topology, counts, noted_tasks(checkpoint))
            check_tasks(checkpoint, plan)
            for name, real in plan.real_topics.items():
                count = plan.partitions[name]
                admin.create_topic(real, count, configs=INTERNAL_TOPIC, if_not_exists=True)
            self._purge(admin, [*plan.real_topics.values()], checkpoint)
            now_ms = time.time_ns() // 1_000_000
            group_id = self.topology.config.application_id
            start = Start(self._given, checkpoint, group_id, now_ms)
            return plan, starting_offsets(plan, admin, start)

    def _purge(self, admin: Admin, topics: list[str], checkpoint: Checkpoint) -> None:
        """Delete the records of internal topics that are processed: no retention does."""
        done = checkpoint.committed_positions()
        positions = {
            place: offset for place, offset in done.items() if place.topic in topics and offset > 0
        }
        if positions:
            admin.delete_records(positions)

    def _wrote_internally(self, plan: Plan, checkpoint: Checkpoint) -> bool:
        """Whether the run has written to an internal topic that the next one reads."""
        places = [
            TopicPartition(real, number)
            for name, real in plan.real_topics.items()
            for number in range(plan.partitions[name])
        ]
        done = checkpoint.committed_positions()
        with Consumer(config=self._client_config) as consumer:
            ends = consumer.end_offsets(places)
        return any(end > done.get(place, 0) for place, end in ends.items())


def _subscription(plan: Plan) -> dict[str, str]:
    """Return the options of what the source reads: names, or one pattern of all."""
    sources = plan.topology.patterns()
    if not sources:
        return {"subscribe": ",".join(plan.source_topics())}
    named = [*plan.topology.source_topics().keys() - plan.topology.internal_topics.keys()]
    names = sorted([*named, *plan.real_topics.values()])
    patterns = [source.pattern for source in sources if source.pattern is not None]
    limits = plan.partition_limits()
    found = {
        "subscribePattern": subscription(names, patterns),
        "skipDeletedTopics": plan.patterns_text(),
    }
    return {**found, "partitionLimits": json.dumps(limits)} if limits else found

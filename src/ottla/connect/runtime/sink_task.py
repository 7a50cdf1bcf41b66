"""The loop of a sink task: consume, convert, transform, put; commits of what the sink has.

Kafka: org.apache.kafka.connect.runtime.{WorkerSinkTask, WorkerSinkTaskContext}.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from ottla.clients.consumer.core import RebalanceListener
from ottla.connect.errors import ConnectException, RetriableException
from ottla.connect.runtime.state import RunState
from ottla.connect.runtime.tolerance import ErrorStage
from ottla.errors import KafkaError, WakeupError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ottla.clients.blocking import Consumer
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.connect.connector import SinkTask
    from ottla.connect.records import SinkRecord
    from ottla.connect.runtime.pipeline import Pipeline
    from ottla.connect.runtime.tasks import TaskControl
    from ottla.connect.runtime.tolerance import ErrorHandler

log = logging.getLogger("ottla.connect")
_POLL_S: Final = 1.0
"""Longest wait for records, so that commits and retries are in time."""


class SinkContext:
    """The context of a sink task; its calls come from the task's thread."""

    def __init__(
        self, config: Mapping[str, str], consumer: Consumer, handler: ErrorHandler
    ) -> None:
        """Take the settings of the task."""
        self.config = config
        self.timeout_ms = -1
        self.is_commit_requested = False
        self.seeks: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self._consumer, self._handler = consumer, handler

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset, before the next `put`."""
        self.seeks[partition] = offset

    def set_timeout_ms(self, timeout_ms: int) -> None:
        """Wait so long before refused records are given again."""
        self.timeout_ms = timeout_ms

    def assignment(self) -> Collection[TopicPartition]:
        """Return the partitions of the task."""
        return self._consumer.assignment

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch no more of some partitions."""
        pausing = list(partitions)
        self.paused.update(pausing)
        self._consumer.pause(*pausing)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch again."""
        resuming = list(partitions)
        self.paused.difference_update(resuming)
        self._consumer.resume(*resuming)

    def request_commit(self) -> None:
        """Ask for a commit before its interval has passed."""
        self.is_commit_requested = True

    def report_errant(self, record: SinkRecord, error: Exception) -> Future[None]:
        """Give a record to the dead letters."""
        before = self._handler.consumed
        self._handler.consumed = record.consumed
        try:
            self._handler.tolerate(ErrorStage.TASK_PUT, self, error)
        finally:
            self._handler.consumed = before
        reported: Future[None] = Future()
        reported.set_result(None)
        return reported

    def settle_reports(self) -> None:
        """Wait for the dead letters, as `ErrorHandler.settle` does."""
        self._handler.settle()


class SinkLoop(RebalanceListener):
    """Runs one sink task until its stop."""

    def __init__(
        self,
        control: TaskControl,
        task: SinkTask,
        pipeline: Pipeline,
        *,
        consumer: Consumer,
        context: SinkContext,
        commit_interval_s: float,
        use_topic: Callable[[str], None],
    ) -> None:
        """Take the parts; `use_topic` hears of each record's topic."""
        self._control, self._task, self._pipeline = control, task, pipeline
        self._consumer, self._context = consumer, context
        self._commit_interval_s = commit_interval_s
        self._use_topic = use_topic
        self._metrics = control.metrics
        self._metrics.partition_count = lambda: len(self._open)
        self._batch: list[SinkRecord] = []
        self._ends: dict[TopicPartition, int] = {}
        """The offset after the last record of the batch."""
        self._offsets: dict[TopicPartition, int] = {}
        """The offset after the last record that the sink has taken."""
        self._committed: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        """The last commit, or the first record since the assignment: a failed flush goes back."""
        self._open: set[TopicPartition] = set()
        self._is_retrying = False
        self._error: Exception | None = None

    def run(self, config: Mapping[str, str], topics: Sequence[str], pattern: str | None) -> None:
        """Start the task and move records; offsets are committed at the end."""
        try:
            self._control.run(lambda: self._work(config, topics, pattern), self._close_consumer)
        finally:
            self._control.run_quietly(self._task.stop, "stopping the task")
            self._pipeline.close()

    def _work(self, config: Mapping[str, str], topics: Sequence[str], pattern: str | None) -> None:
        control, consumer = self._control, self._consumer
        control.wake = consumer.wakeup
        self._task.start(config)
        control.metrics.own = self._task.metrics
        if pattern is None:
            consumer.subscribe(topics, listener=self)
        else:
            consumer.subscribe(pattern=pattern, listener=self)
        control.report_started()
        due_s = control.now_s() + self._commit_interval_s
        while not control.is_stopping:
            self._turn()
            if control.now_s() >= due_s or self._context.is_commit_requested:
                self._context.is_commit_requested = False
                self._commit(tuple(self._offsets))
                due_s = control.now_s() + self._commit_interval_s

    def _turn(self) -> None:
        """Take the next records to the sink, or again those that it has refused."""
        control, consumer, context = self._control, self._consumer, self._context
        self._apply_seeks()
        if control.is_paused:
            consumer.pause(*consumer.assignment)
            control.report(RunState.PAUSED)
        elif control.report_resumed():
            self._resume()
        wait_s = _POLL_S
        if self._is_retrying and context.timeout_ms >= 0:
            wait_s = min(wait_s, context.timeout_ms / 1000)
        try:
            records = consumer.poll(wait_s)
        except WakeupError:
            return
        if self._error is not None:
            raise self._error
        if records:
            self._metrics.read(len(records))
            self._take(records)
        if not control.is_paused:
            self._put()  # also without records: those that were refused may have been taken away

    def _take(self, records: Sequence[ConsumerRecord]) -> None:
        for consumed in records:
            partition = TopicPartition(consumed.topic, consumed.partition)
            self._use_topic(consumed.topic)
            made = self._pipeline.from_topic(consumed)
            self._starts.setdefault(partition, consumed.offset)
            self._ends[partition] = consumed.offset + 1
            if made is not None:
                self._batch.append(made)  # type: ignore[arg-type] # transforms keep the class

    def _put(self) -> None:
        """Give the batch to the sink; refused, it stays, and nothing more is fetched."""
        start_s, count = self._control.now_s(), len(self._batch)
        try:
            self._task.put(self._batch)
        except RetriableException as error:
            log.warning("%s: the sink wants its records again: %s", self._control.id, error)
            self._is_retrying = True
            self._consumer.pause(*self._consumer.assignment)
            return
        except Exception as error:
            text = "Exiting WorkerSinkTask due to unrecoverable exception."
            raise ConnectException(text) from error
        if count:
            self._metrics.put(count, self._control.now_s() - start_s)
        if self._ends:
            self._offsets.update(self._ends)
            self._ends.clear()
            self._measure_lag()
        self._batch = []
        if self._is_retrying:
            self._is_retrying = False
            self._context.timeout_ms = -1
            self._resume()

    def _measure_lag(self) -> None:
        committed = self._committed.items()
        ahead = (self._offsets.get(partition, 0) - offset for partition, offset in committed)
        self._metrics.lags(sum(it for it in ahead if it > 0))

    def _resume(self) -> None:
        if not self._is_retrying:
            own = self._context.paused
            self._consumer.resume(*(it for it in self._consumer.assignment if it not in own))

    def _apply_seeks(self) -> None:
        for partition, offset in self._context.seeks.items():
            if partition in self._consumer.assignment:
                self._seek(partition, offset)
                self._offsets[partition] = self._starts[partition] = offset
        self._context.seeks.clear()

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(partition, offset)
        self._ends.pop(partition, None)
        self._batch = [it for it in self._batch if it.original != partition]

    def _commit(self, partitions: Collection[TopicPartition], *, is_closing: bool = False) -> None:
        """Ask the sink what may be committed, and commit what is new of it."""
        current = {it: self._offsets[it] for it in partitions if it in self._offsets}
        if not current:
            return
        start_s, is_success = self._control.now_s(), False
        try:
            accepted = self._task.pre_commit(dict(current))
        except Exception:
            self._metrics.committed(self._control.now_s() - start_s, is_success=False)
            if is_closing:  # whoever has the partitions next reads from the last commit
                log.exception("%s: Offset commit failed during close", self._control.id)
                return
            text = "%s: Offset commit failed, rewinding to last committed offsets"
            log.exception(text, self._control.id)
            for partition in current:
                self._seek(partition, self._starts[partition])
                del self._offsets[partition]
            return
        offsets = {
            partition: offset
            for partition, offset in accepted.items()
            if partition in current
            and offset <= current[partition]
            and offset != self._committed.get(partition)
        }
        if not offsets:
            return
        try:
            self._context.settle_reports()
        except TimeoutError as error:
            self._metrics.committed(self._control.now_s() - start_s, is_success=False)
            log.warning("%s: no commit before the dead letters: %s", self._control.id, error)
            return
        try:
            try:
                self._consumer.commit(offsets)
            except WakeupError:  # a stop or a pause came just now; the commit is still due
                self._consumer.commit(offsets)
        except KafkaError as error:
            # the next commit has these offsets again; without one the records come again
            log.warning("%s: the commit of offsets failed: %s", self._control.id, error)
        else:
            self._committed.update(offsets)
            self._measure_lag()
            is_success = True
            self._starts.update(offsets)
        self._metrics.committed(self._control.now_s() - start_s, is_success=is_success)

    def _close_consumer(self) -> None:
        """Commit, close the partitions and leave the group."""
        self._control.wake = lambda: None
        try:
            self._end_partitions(tuple(self._consumer.assignment), commits=True)
        finally:
            self._consumer.close()

    def _end_partitions(self, partitions: tuple[TopicPartition, ...], *, commits: bool) -> None:
        ended = self._open.intersection(partitions)
        self._open -= ended
        try:
            if commits:
                self._commit(tuple(ended), is_closing=True)
        finally:
            self._batch = [it for it in self._batch if it.original not in ended]
            for by_partition in (self._offsets, self._ends, self._committed, self._starts):
                for partition in partitions:
                    by_partition.pop(partition, None)
            self._context.paused.difference_update(partitions)
            if ended:
                self._task.close(sorted(ended))

    # ------------------------------------------------------------ rebalances

    def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Open partitions; those of a paused or retrying task stay paused."""
        try:
            if partitions:
                self._open.update(partitions)
                self._task.open(partitions)
                # this very poll may return records: they come from where the sink goes on
                self._apply_seeks()
            if self._control.is_paused or self._is_retrying:
                self._consumer.pause(*partitions)
        except Exception as error:  # noqa: BLE001 - the loop raises it
            self._error = error

    def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Commit and close partitions."""
        try:
            self._end_partitions(partitions, commits=True)
        except Exception as error:  # noqa: BLE001 - the loop raises it
            self._error = error

    def on_partitions_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Close partitions that others may have by now."""
        try:
            self._end_partitions(partitions, commits=False)
        except Exception as error:  # noqa: BLE001 - the loop raises it
            self._error = error

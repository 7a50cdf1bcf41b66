"""The loop of a source task: poll, transform, convert, produce; offsets of what is acknowledged.

At least once: an offset is stored only after its record and all before it of the same partition
were acknowledged.

Kafka: org.apache.kafka.connect.runtime.{WorkerSourceTask, SubmittedRecords}.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.connect.errors import ConnectException
from ottla.connect.runtime.offsets import partition_key
from ottla.connect.runtime.tolerance import ErrorStage
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.clients.blocking import Producer
    from ottla.clients.producer.batches import Delivery
    from ottla.connect.connector import SourceTask, TransactionContext
    from ottla.connect.records import ConnectRecord, SourceRecord
    from ottla.connect.runtime.offsets import OffsetStore
    from ottla.connect.runtime.pipeline import Pipeline
    from ottla.connect.runtime.tasks import TaskControl
    from ottla.connect.runtime.tolerance import ErrorHandler

log = logging.getLogger("ottla.connect")
_FLUSH_S: Final = 5.0
"""Time for the last records to be acknowledged at the end: offset.flush.timeout.ms by default."""


class OffsetReader:
    """The context of a source task."""

    transaction: TransactionContext | None = None

    def __init__(self, store: OffsetStore, connector: str, config: Mapping[str, str]) -> None:
        """Take the settings of the task."""
        self.config = config
        self._store, self._connector = store, connector

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the stored offset of a part of the source."""
        return self._store.get(self._connector, partition)

    def offsets(self, partitions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
        """Return the stored offsets of several parts."""
        return list(self._store.get_all(self._connector, partitions))


class _Sent(NamedTuple):
    record: SourceRecord
    delivery: Delivery | None
    """None for a record that was dropped."""
    made: ConnectRecord


class SourceLoop:
    """Runs one source task until its stop."""

    def __init__(
        self,
        control: TaskControl,
        task: SourceTask,
        pipeline: Pipeline,
        handler: ErrorHandler,
        *,
        producer: Producer,
        store: OffsetStore,
        flush_interval_s: float,
        use_topic: Callable[[str], None],
    ) -> None:
        """Take the parts; `use_topic` hears of each record's topic before it is sent."""
        self._control, self._task = control, task
        self._pipeline, self._handler = pipeline, handler
        self._producer, self._store = producer, store
        self._flush_interval_s = flush_interval_s
        self._use_topic = use_topic
        self._stop_lock = threading.Lock()
        self._has_started = self._is_stopped = False
        self._sent: dict[bytes, deque[_Sent]] = {}
        self._committable: dict[bytes, tuple[Mapping[str, Any], Mapping[str, Any] | None]] = {}

    def run(self, config: Mapping[str, str]) -> None:
        """Start the task and move records; the offsets are stored at the end, also of a failure."""
        try:
            self._control.run(lambda: self._work(config), self._end)
        finally:
            self._stop_task()
            self._pipeline.close()

    def _work(self, config: Mapping[str, str]) -> None:
        control = self._control
        control.close_producer = lambda: self._producer.close(0)
        self._task.start(config)
        self._has_started = True
        control.metrics.own = self._task.metrics
        # from now on another thread may end `poll` by `stop`
        control.wake = self._wake
        control.report_started()
        due_s = control.now_s() + self._flush_interval_s
        while not control.is_stopping:
            if control.is_paused:
                self._flush()
                control.wait_while_paused()
                continue
            start_s = control.now_s()
            records = self._poll()
            if records:
                control.metrics.polled(len(records), control.now_s() - start_s)
            if control.is_abandoned:
                break
            self._send(records)
            self._settle()
            if control.now_s() >= due_s:
                self._try_to_commit()
                due_s = control.now_s() + self._flush_interval_s

    def _wake(self) -> None:
        """End `poll` from a thread of its own: the herder waits for no task (KAFKA-10792)."""
        if self._control.is_stopping:
            threading.Thread(target=self._stop_task, name="stop-task", daemon=True).start()

    def _stop_task(self) -> None:
        """Stop the task, once; returns when it has stopped."""
        with self._stop_lock:
            if not self._is_stopped:
                self._is_stopped = True
                self._control.run_quietly(self._task.stop, "stopping the task")

    def _poll(self) -> Sequence[SourceRecord]:
        batch = self._handler.run(ErrorStage.TASK_POLL, self._task, self._task.poll)
        return batch or ()

    def _send(self, records: Sequence[SourceRecord]) -> None:
        for record in records:
            made = self._pipeline.transform(record)
            fields = None if made is None else self._pipeline.to_topic(made)
            delivery = None
            if made is not None and fields is not None:
                self._use_topic(made.topic)
                value, key, headers = fields
                delivery = self._producer.send(
                    made.topic,
                    value,
                    key,
                    partition=made.partition,
                    timestamp_ms=made.timestamp_ms,
                    headers=headers,
                )
            queue = self._sent.setdefault(partition_key(record.source_partition), deque())
            queue.append(_Sent(record, delivery, made or record))

    def _settle(self) -> None:
        """Take what was acknowledged, in the order of each partition."""
        count = dropped = 0
        for key, queue in list(self._sent.items()):
            while queue and (queue[0].delivery is None or queue[0].delivery.done):
                record, delivery, _ = queue[0]
                offset = None
                if delivery is not None:
                    error = delivery.error
                    if error is None:
                        offset = delivery.metadata.offset
                    else:
                        self._refuse(error)
                queue.popleft()  # not before: the offset of a refused record is never passed
                count += 1
                dropped += offset is None
                self._task.commit_record(record, offset)
                if record.source_partition is not None:
                    self._committable[key] = (record.source_partition, record.source_offset)
            if not queue:
                del self._sent[key]
        if count:
            self._control.metrics.wrote(count, dropped)

    def _refuse(self, error: Exception) -> None:
        """Fail for a record that was not written, unless errors are tolerated."""
        try:
            self._handler.tolerate(ErrorStage.KAFKA_PRODUCE, self._producer, error)
        except ConnectException as cause:
            text = "Unrecoverable exception from producer send callback"
            raise ConnectException(text) from cause

    def commit(self) -> None:
        """Store the offsets of what was acknowledged."""
        if self._control.is_abandoned:
            return  # the offsets are those of another task by now, or an operator's
        if self._committable:
            self._store.put(self._control.id.connector, self._committable.values())
            self._committable.clear()
        self._task.commit()

    def _try_to_commit(self) -> None:
        """Store offsets, or leave them to the next time: an outage does not end the task."""
        start_s, is_success = self._control.now_s(), False
        try:
            self.commit()
            is_success = True
        except (KafkaError, OSError) as error:
            log.warning("%s: the offsets cannot be stored yet: %s", self._control.id, error)
        elapsed_s = self._control.now_s() - start_s
        self._control.metrics.committed(elapsed_s, is_success=is_success)

    def _flush(self) -> None:
        """Store the offsets of all that is on its way, before a pause."""
        try:
            self._producer.flush(_FLUSH_S)
        except Exception as error:  # noqa: BLE001 - what failed is looked at next
            log.warning("%s: not all is written before the pause: %s", self._control.id, error)
        self._settle()
        self._try_to_commit()

    def _end(self) -> None:
        """Wait for what is on its way, and store offsets."""
        try:
            self._producer.close(_FLUSH_S)
        except Exception as error:  # noqa: BLE001
            # the failed records are looked at next; their offsets are not stored
            log.warning("%s: closing the producer failed: %s", self._control.id, error)
        try:
            self._settle()
        finally:
            if self._has_started:
                self.commit()

"""What the three connectors do with clusters: their topics, reads to the end, schedules.

Kafka: org.apache.kafka.connect.mirror.{MirrorUtils, Scheduler}.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.errors import ConnectException
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.admin.blocking import Admin
    from ottla.clients.blocking import Consumer
    from ottla.clients.consumer.record_decoder import ConsumerRecord

log = logging.getLogger("ottla.connect")
RETRY_S: Final = 10.0
"""Time until work that failed is tried again; its interval may be ten minutes."""
_NOT_AUTHORIZED: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
_READ_S: Final = 1.0
"""A wait for the next records of a topic that is read to its end."""


def create_compacted(admin: Admin, topic: str, replication_factor: int, timeout_s: float) -> None:
    """Create a topic of the mirror's own, unless it is there; without the right to, assume so."""
    try:
        admin.create_topic(
            topic,
            1,
            replication_factor,
            configs={"cleanup.policy": "compact"},
            if_not_exists=True,
            timeout=timeout_s,
        )
    except KafkaError as error:
        if error.code not in _NOT_AUTHORIZED:
            raise
        log.info("topic %s is assumed to be there, as it may not be created: %s", topic, error)


class TopicFollower:
    """Reads partition 0 of a topic from its beginning, each time to its present end."""

    def __init__(
        self, consumer: Consumer, topic: str, read: Callable[[ConsumerRecord], None]
    ) -> None:
        """Take who reads records; ones that raise ConnectException are logged and skipped."""
        self._consumer, self._read = consumer, read
        self._partition = TopicPartition(topic, 0)
        consumer.assign([self._partition])
        consumer.seek_to_beginning(self._partition)

    def read_to_end(self, is_stopped: Callable[[], bool]) -> bool:
        """Read to the present end; False if it was stopped before."""
        end = self._end()
        if self._consumer.position(self._partition) > end:
            # the topic was created again, or lost records: no fetch below the end would show it
            self._consumer.seek_to_beginning(self._partition)
        while self._consumer.position(self._partition) < end:
            if is_stopped():
                return False
            records = self._consumer.poll(_READ_S)
            if not records:
                end = self._end()  # before the former one, if the topic was created again just now
            for record in records:
                try:
                    self._read(record)
                except ConnectException as error:
                    at = f"{record.topic}-{record.partition} at {record.offset}"
                    log.warning("%s is skipped: %s", at, error)
        return True

    def _end(self) -> int:
        return self._consumer.end_offsets([self._partition])[self._partition]


class MirrorSchedule:
    """Repeats work on a thread of its own; work that fails is logged, and tried again soon."""

    def __init__(self, name: str) -> None:
        """Take the name of the thread."""
        self._jobs: list[list[Any]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def every(self, interval_s: float, what: str, work: Callable[[], None], first_s: float) -> None:
        """Add work, before the start; a negative interval means never."""
        if interval_s >= 0:
            self._jobs.append([time.monotonic() + first_s, interval_s, what, work])

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        while self._jobs and not self._stopped.is_set():
            job = min(self._jobs, key=lambda it: float(it[0]))
            due_s, interval_s, what, work = job
            if self._stopped.wait(max(0.0, due_s - time.monotonic())):
                return
            try:
                work()
            except Exception:
                log.exception("%s failed", what)
                interval_s = min(interval_s, RETRY_S)
            job[0] = time.monotonic() + max(interval_s, 0.1)

    def stop(self, timeout_s: float) -> None:
        """End, and wait for work that runs."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

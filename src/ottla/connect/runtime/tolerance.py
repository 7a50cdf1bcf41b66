"""Errors of single records: retried, tolerated, logged, and given to the dead letters.

Kafka: org.apache.kafka.connect.runtime.errors.{RetryWithToleranceOperator, ProcessingContext,
LogReporter, DeadLetterQueueReporter}.
"""

from __future__ import annotations

import logging
import random
import time
import traceback
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ottla.connect import errors
from ottla.connect.errors import ConnectException, RetriableException

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clients.blocking import Producer
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.producer.batches import Delivery
    from ottla.connect.runtime.state import ConnectorTaskId

    Waiter = Callable[[float], bool]

_T = TypeVar("_T")
log = logging.getLogger("ottla.connect")
_FIRST_DELAY_MS: Final = 300
"""The delay of the first repetition, which doubles; Kafka's."""
_SETTLE_S: Final = 5.0
"""Time that a commit waits for dead letters; the next one waits again."""
_PREFIX: Final = "__connect.errors."
_JAVA_ERRORS: Final = "org.apache.kafka.connect.errors."


class ErrorStage(Enum):
    """What a task was doing with a record."""

    TASK_PUT = "TASK_PUT"
    TASK_POLL = "TASK_POLL"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    KAFKA_CONSUME = "KAFKA_CONSUME"


_TOLERANT: Final = {
    ErrorStage.TRANSFORMATION,
    ErrorStage.KEY_CONVERTER,
    ErrorStage.VALUE_CONVERTER,
    ErrorStage.HEADER_CONVERTER,
}
"""Stages that tolerate every error; others tolerate a RetriableException only."""


def class_name(error: BaseException) -> str:
    """Return Kafka's name of an exception that it has, else Python's."""
    kind = type(error)
    if kind.__module__ == errors.__name__:
        return _JAVA_ERRORS + kind.__name__
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def trace_of(error: BaseException) -> str:
    """Return the text of a failure: class and message, then causes and lines."""
    lines = "".join(traceback.format_exception(error))
    return f"{class_name(error)}: {error}\n{lines}"


class Tolerance(NamedTuple):
    """A connector's settings of errors."""

    tolerates_all: bool = False
    retry_timeout_ms: int = 0
    """Time of repetitions, -1 without end."""
    retry_delay_max_ms: int = 60_000
    logs: bool = False
    logs_records: bool = False

    @classmethod
    def of(cls, values: dict[str, Any]) -> Tolerance:
        """Read parsed settings of a connector."""
        return cls(
            values["errors.tolerance"] == "all",
            values["errors.retry.timeout"],
            values["errors.retry.delay.max.ms"],
            values["errors.log.enable"],
            values["errors.log.include.messages"],
        )


class Failure(NamedTuple):
    """An error of a record at a stage; `of` is the class that raised it."""

    stage: ErrorStage
    of: str
    error: BaseException
    consumed: ConsumerRecord | None


@dataclass(slots=True)
class ErrorCounts:
    """Errors of a task since its start."""

    failures: int = 0
    """Failed attempts of an operation."""
    errors: int = 0
    """Operations that failed in the end."""
    skipped: int = 0
    retries: int = 0
    logged: int = 0
    dead_letters: int = 0
    lost_dead_letters: int = 0
    last_ms: int = 0
    """The time of the last error."""

    def attributes(self) -> dict[str, float | str]:
        """Return the attributes of task-error-metrics."""
        return {
            "total-record-failures": self.failures,
            "total-record-errors": self.errors,
            "total-records-skipped": self.skipped,
            "total-retries": self.retries,
            "total-errors-logged": self.logged,
            "deadletterqueue-produce-requests": self.dead_letters,
            "deadletterqueue-produce-failures": self.lost_dead_letters,
            "last-error-timestamp": self.last_ms,
        }


class ErrorHandler:
    """Runs the steps of one task's records under its tolerance."""

    def __init__(
        self,
        task: ConnectorTaskId,
        tolerance: Tolerance,
        *,
        now_s: Callable[[], float],
        wait: Waiter,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        """Take the clock, and a wait in seconds that is True once the task stops."""
        self._task = task
        self._tolerance = tolerance
        self._now_s, self._wait = now_s, wait
        self._dead_letters = dead_letters
        self.consumed: ConsumerRecord | None = None
        """The record of a sink that is in work."""
        self.has_failed = False
        """Whether the step that ran last was skipped."""
        self.counts = ErrorCounts()
        if dead_letters is not None:
            dead_letters.counts = self.counts

    def run(self, stage: ErrorStage, of: object, step: Callable[[], _T]) -> _T | None:
        """Run a step, again while it may pass; None with `has_failed` for a tolerated error."""
        self.has_failed = False
        start_s, attempt = self._now_s(), 0
        while True:
            try:
                return step()
            except RetriableException as error:
                self.counts.failures += 1
                if self._may_retry(start_s, attempt):
                    attempt += 1
                    self.counts.retries += 1
                    continue
                self.tolerate(stage, of, error)
                return None
            except Exception as error:
                if stage not in _TOLERANT:
                    self._count_error()
                    raise ConnectException("Unhandled exception in error handler.") from error
                self.tolerate(stage, of, error)
                return None

    def _may_retry(self, start_s: float, attempt: int) -> bool:
        """Wait before the next attempt; False when the time is over.

        Raises ConnectException when the task stops.
        """
        limit_ms = self._tolerance.retry_timeout_ms
        if limit_ms == 0:
            return False
        remaining_ms = limit_ms - (self._now_s() - start_s) * 1000
        if limit_ms > 0 and remaining_ms <= 0:
            return False
        largest_ms = self._tolerance.retry_delay_max_ms
        delay_ms: float = _FIRST_DELAY_MS << min(attempt, 30)
        if delay_ms > largest_ms:
            delay_ms = random.uniform(0, largest_ms)  # noqa: S311 - spreads repetitions
        if limit_ms > 0:
            delay_ms = min(delay_ms, remaining_ms)
        if self._wait(delay_ms / 1000):
            # not tolerated: the record would be passed, though its time is not over
            raise ConnectException("The task stops during the repetitions of an operation")
        return True

    def tolerate(self, stage: ErrorStage, of: object, error: BaseException) -> None:
        """Report an error; ConnectException where none is tolerated."""
        self.has_failed = True
        self._count_error()
        kind = type(of)
        name = f"{kind.__module__}.{kind.__qualname__}"
        self.report(Failure(stage, name, error, self.consumed))
        if not self._tolerance.tolerates_all:
            raise ConnectException("Tolerance exceeded in error handler") from error
        self.counts.skipped += 1

    def _count_error(self) -> None:
        self.counts.failures += 1
        self.counts.errors += 1
        self.counts.last_ms = time.time_ns() // 1_000_000

    def report(self, failure: Failure) -> None:
        """Log a failure and give its record to the dead letters, as far as the settings ask."""
        if self._tolerance.logs:
            consumed = ""
            record = failure.consumed
            if record is not None and self._tolerance.logs_records:
                consumed = (
                    f", where consumed record is {{topic='{record.topic}', "
                    f"partition={record.partition}, offset={record.offset}, "
                    f"timestamp={record.timestamp}}}"
                )
            text = "Error encountered in task %s. Executing stage '%s' with class '%s'%s."
            log.error(text, self._task, failure.stage.value, failure.of, consumed)
            self.counts.logged += 1
        if self._dead_letters is not None and failure.consumed is not None:
            self._dead_letters.send(self._task, failure)

    def settle(self) -> None:
        """Wait until the dead letters are written; TimeoutError after some seconds.

        Raises ConnectException for one that cannot be written.
        """
        if self._dead_letters is not None:
            self._dead_letters.settle()


class DeadLetters:
    """The topic for records of a sink that could not be processed."""

    def __init__(self, producer: Producer, topic: str, *, with_context: bool) -> None:
        """Take a producer of bytes."""
        self._producer, self._topic, self._with_context = producer, topic, with_context
        self._sent: deque[Delivery] = deque()
        self.counts = ErrorCounts()

    def send(self, task: ConnectorTaskId, failure: Failure) -> None:
        """Write a record as it was read, with the circumstances in headers if so configured."""
        record = failure.consumed
        assert record is not None
        headers: list[tuple[str, Any]] = list(record.headers)
        if self._with_context:
            headers += context_headers(task, failure)
        sent = self._producer.send(
            self._topic,
            record.value,
            record.key,
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
            headers=headers,
        )
        self._sent.append(sent)
        self.counts.dead_letters += 1
        while self._sent and self._sent[0].done and self._sent[0].failure() is None:
            self._sent.popleft()

    def settle(self) -> None:
        """Wait until all are written, as `ErrorHandler.settle` does."""
        end_s = time.monotonic() + _SETTLE_S
        while self._sent:
            letter = self._sent[0]
            try:
                letter.result(max(0.0, end_s - time.monotonic()))
            except Exception as error:
                if not letter.done:
                    raise TimeoutError(f"a letter to {self._topic} is still on its way") from error
                self.counts.lost_dead_letters += 1
                text = f"a dead letter could not be written to {self._topic}"
                raise ConnectException(text) from error
            self._sent.popleft()

    def close(self) -> None:
        """Wait for what was sent."""
        self._producer.close(5)


def context_headers(task: ConnectorTaskId, failure: Failure) -> Sequence[tuple[str, bytes | None]]:
    """Return Kafka's headers of a dead letter, in its order."""
    record = failure.consumed
    assert record is not None
    message = str(failure.error)
    texts = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "connector.name": task.connector,
        "task.id": str(task.task),
        "stage": failure.stage.value,
        "class.name": failure.of,
        "exception.class.name": class_name(failure.error),
        "exception.message": message or None,
        "exception.stacktrace": trace_of(failure.error),
    }
    return [
        (_PREFIX + name, None if it is None else it.encode(errors="backslashreplace"))
        for name, it in texts.items()
    ]

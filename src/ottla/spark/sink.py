"""The writers of the sink, batch and streaming.

Kafka: org.apache.spark.sql.kafka010.{KafkaStreamingWrite, KafkaBatchWrite}. Exactly once: each task
writes in a transaction, which the driver ends (`exactly_once`). With exactlyOnce=false tasks and
micro-batches that Spark repeats are written again.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import contextmanager
from pathlib import Path
from pickle import PickleError
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.cluster import FIRST_ANSWER_MS, open_cluster
from ottla.spark.coordination import Coordination, Mark
from ottla.spark.error_text import short_errors
from ottla.spark.exactly_once import FENCED, ExactlyOnce, fenced
from ottla.spark.options import write_options
from ottla.spark.processes import note_use
from ottla.spark.sending import BatchSender, TaskTransaction
from ottla.spark.writing import find_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla.clients.cluster_reader import ClusterReader
    from ottla.spark.decision import Participant
    from ottla.spark.exactly_once import BatchStart, DriverTurn
    from ottla.spark.options import WriteOptions

log = logging.getLogger("ottla.spark")

_LOCATION: Final = "checkpointlocation"
_BATCH: Final = "streaming.sql.batchId"
_ID_LETTERS: Final = 8
_ATTEMPT_NAMES: Final = 8
"""An attempt number returns when Spark repeats a whole stage."""


class TaskCommit(WriterCommitMessage):
    """The number of records a task has sent, and the transaction that they belong to."""

    def __init__(
        self,
        records: int,
        participant: Participant | None = None,
        has_timeout: bool = False,  # noqa: FBT001, FBT002 - a field of what the task returns
        state_digest: int | None = None,
        turn: DriverTurn | None = None,
    ) -> None:
        self.records = records
        self.participant = participant
        self.has_timeout = has_timeout
        self.state_digest = state_digest
        self.turn = turn


class WriteRefused(KafkaError, PickleError):
    """A query that may not write: its group, its rights, its settings."""


def advice_on(error: KafkaError, options: WriteOptions, prefix: str) -> str | None:
    """Return what to do about a right or a limit that exactly once needs; None for other errors.

    The connector's users have rights to topics alone.
    """
    if not options.exactly_once:
        return None
    without = "or give exactlyOnce=false, which needs rights to the topic alone"
    if error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return (
            "exactlyOnce, the default, needs WRITE and DESCRIBE on the transactional ids that "
            f"start with {prefix!r}: ottla acls --add --allow-principal User:NAME --operation "
            f"write --operation describe --transactional-id {prefix} "
            f"--resource-pattern-type prefixed; {without}"
        )
    if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return (
            f"exactlyOnce, the default, needs READ on the group that starts with {prefix!r} "
            f"(kafka.group.id names it; of ottla.streams its application_id); {without}"
        )
    if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"kafka.transaction.timeout.ms is {options.transaction_timeout_ms}, more than the "
            "brokers' transaction.max.timeout.ms allows: give a smaller one, or exactlyOnce=false"
        )
    return None


class Writer:
    """Base of both writers; created in a planning process, then pickled for the tasks."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, is_new: bool) -> None:
        note_use()
        self._options = write_options(given)
        self._columns = find_columns(schema, self._options.topic)
        # kafka.max.block.ms is the limit of others, as of Kafka's producer
        limit_ms = FIRST_ANSWER_MS if is_new else None
        sender = BatchSender(self._options, first_answer_ms=limit_ms)
        self._opened: ClusterReader | None = sender.cluster
        try:
            sender.check_topic()  # report errors now, not in a task
        except BaseException:
            sender.close()
            raise

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks get: they have connections of their own."""
        self._close()
        return dict(self.__dict__)

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _write(
        self,
        iterator: Iterator[pa.RecordBatch],
        transaction: TaskTransaction | None,
        turn: DriverTurn | None = None,
    ) -> TaskCommit:
        from ottla.spark.writing import FrameWriter

        note_use()
        context = TaskContext.get()
        task_id = 0 if context is None else context.partitionId()
        with self._short_errors():
            writer = FrameWriter(self._options, self._columns, task_id, transaction)
            return TaskCommit(*writer.write(iterator), turn)

    @contextmanager
    def _short_errors(self) -> Iterator[None]:
        """Report errors as their messages, those of rights and limits with what is needed."""
        with short_errors():
            try:
                yield
            except KafkaError as error:
                if (advice := advice_on(error, self._options, self._id_prefix)) is None:
                    raise
                raise KafkaError(error.code, f"{error.message} {advice}") from error

    @property
    def _id_prefix(self) -> str:
        """The start of the transactional ids, as far as it is the same for each write."""
        return "spark-"

    def _cluster(self) -> ClusterReader:
        """Return the connections that have checked the topic, the first time: a step has few ms."""
        opened, self._opened = self._opened, None
        if opened is not None:
            return opened
        options = self._options
        return open_cluster(options.config, api_timeout_ms=options.api_timeout_ms)


class BatchWriter(Writer, DataSourceArrowWriter):
    """Writes a frame; its records are committed together once all tasks have sent theirs."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        super().__init__(given, schema, is_new=False)  # within foreachBatch, it goes on
        self._name = f"spark-{secrets.token_hex(_ID_LETTERS)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Send the rows of one task; KafkaError when they cannot be delivered."""
        if not self._options.exactly_once:
            return self._write(iterator, None)
        # a driver that dies leaves these to their timeout: nothing repeats the write
        name = self._task_prefix + _attempt()
        return self._write(
            iterator, TaskTransaction(name, two_phase=False, mark=Mark(self._mark_id))
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the tasks' transactions, and abort those of attempts that were killed."""
        self._end(messages, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the tasks' transactions, those of tasks that Spark ends in their middle as well."""
        self._end(messages, committed=False)

    @property
    def _task_prefix(self) -> str:
        return f"{self._name}-task-"

    @property
    def _mark_id(self) -> str:
        """Name the id that only exists once the write has ended; Spark does not wait for tasks."""
        return f"{self._name}-ended"

    def _end(self, messages: Sequence[WriterCommitMessage | None], *, committed: bool) -> None:
        if not self._options.exactly_once:
            self._close()
            return
        participants = participants_of(messages)
        with self._short_errors(), self._cluster() as cluster:
            coordination = Coordination(cluster)
            if committed and (aborted := coordination.not_open(participants)):
                coordination.end_all(participants, committed=False)  # all of the frame or nothing
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"transaction {aborted[0].transactional_id} was aborted before all tasks had "
                    "ended (kafka.transaction.timeout.ms is "
                    f"{self._options.transaction_timeout_ms}): nothing of the frame is written",
                )
            errors = coordination.end_all(participants, committed=committed)
            coordination.end_attempts(self._mark_id, self._task_prefix)
            for error in errors:
                if error is not None:
                    raise error
            for participant in participants:  # a reader that starts now finds the records
                coordination.wait_until_complete(participant)


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query; Spark makes one for each of them."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        super().__init__(given, schema, is_new=is_new_query(given))
        self._location = _lowered(given).get(_LOCATION, "")
        self._start: BatchStart | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the tasks, once the batch has begun.

        PySpark pickles the writer of each micro-batch just before its tasks start, and has no other
        hook there. The writer that commits the batch is another one, which is not pickled.
        """
        if self._options.exactly_once and self._start is None:
            self._start = self._begin_batch()
        return super().__getstate__()

    def _begin_batch(self) -> BatchStart:
        """Fence the query's earlier drivers and end what they left open.

        PySpark reports an error here as a failure of pickle with a traceback, unless it is an error
        of pickle: hence WriteRefused.
        """
        try:
            with self._short_errors(), self._cluster() as cluster:
                return self._exactly_once(cluster).begin()
        except KafkaError as error:
            raise WriteRefused(error.code, error.message) from error

    @property
    def _id_prefix(self) -> str:
        return self._options.group_id or "spark-"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Send the rows of one task; KafkaError when they cannot be delivered."""
        start = self._start
        if start is None:
            return self._write(iterator, None)
        batch_id = int(_local(_BATCH) or -1)
        if start.decided_batch >= batch_id:
            from ottla.spark.writing import sum_of_digests, without_digests

            # Spark repeats a batch whose records are committed, for the state that it changes
            found = (without_digests(frame, self._columns)[1] for frame in iterator)
            return TaskCommit(0, state_digest=sum_of_digests(found), turn=start.turn)
        name = start.task_prefix + _attempt()
        transaction = TaskTransaction(name, True, start.mark, start.driver_mark)
        with self._short_errors():
            try:
                return self._write(iterator, transaction, start.turn)
            except KafkaError as error:
                if error.code in FENCED:
                    raise fenced(start.group_id) from error
                raise

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Decide on the batch and commit the tasks' transactions."""
        if not self._options.exactly_once:
            self._close()
            return
        turn = turn_of(messages)
        if turn is not None and turn.decided_batch < 0:
            _warn_of_timeouts(messages)
        with self._short_errors(), self._cluster() as cluster:
            sink = self._exactly_once(cluster)
            # a batch without tasks has offsets, too
            participants = participants_of(messages)
            sink.commit(turn or sink.begin(), batchId, participants, digest_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Abort the tasks' transactions; what they sent is never read as committed."""
        if not self._options.exactly_once:
            self._close()
            return
        with self._short_errors(), self._cluster() as cluster:
            self._exactly_once(cluster).abort(turn_of(messages), batchId)

    def _exactly_once(self, cluster: ClusterReader) -> ExactlyOnce:
        return ExactlyOnce(self._options, self._location, cluster)


def participants_of(messages: Sequence[WriterCommitMessage | None]) -> list[Participant]:
    """Return the transactions of tasks that have sent records."""
    found = [message.participant for message in messages if isinstance(message, TaskCommit)]
    return [one for one in found if one is not None]


def digest_of(messages: Sequence[WriterCommitMessage | None]) -> int | None:
    """Return the digest of what a batch has changed in the state; None for a query without one."""
    from ottla.spark.writing import sum_of_digests

    return sum_of_digests(
        message.state_digest for message in messages if isinstance(message, TaskCommit)
    )


def turn_of(messages: Sequence[WriterCommitMessage | None]) -> DriverTurn | None:
    """Return the driver's turn that the tasks were sent; None if no task has ended."""
    return next((message.turn for message in messages if isinstance(message, TaskCommit)), None)


def _warn_of_timeouts(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Say with a query's first batch that a decision may be undone by a timeout."""
    if any(isinstance(message, TaskCommit) and message.has_timeout for message in messages):
        log.warning(
            "the brokers allow no two-phase transactions (KIP-939): should this driver be away "
            "between its decision on a batch and the commit of its transactions for longer than "
            "kafka.transaction.timeout.ms, the batch's records are lost",
            extra={"event": "spark.timeouts"},
        )


def _attempt() -> str:
    """Name a task and its attempt: two of one batch do not share a transaction.

    The names are few, since a coordinator keeps each for days.
    """
    context = TaskContext.get()
    if context is None:
        return "0"
    attempt = f"{context.attemptNumber()}.{context.taskAttemptId() % _ATTEMPT_NAMES}"
    return f"{context.partitionId()}-{attempt}"


def _local(name: str) -> str:
    context = TaskContext.get()
    return "" if context is None else context.getLocalProperty(name) or ""


def _lowered(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def is_new_query(given: Mapping[str, str]) -> bool:
    """Whether a query has committed no micro-batch yet; False if its checkpoint is elsewhere."""
    location = _lowered(given).get(_LOCATION, "")
    checkpoint = Path(location.removeprefix("file:"))
    commits = checkpoint / "commits"
    return (checkpoint / "offsets").is_dir() and not (commits.is_dir() and any(commits.iterdir()))

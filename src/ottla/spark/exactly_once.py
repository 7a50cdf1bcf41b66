"""The driver's side of the exactly-once sink: fences, decides on batches, ends their transactions.

1. Before a batch the driver takes the next epoch of its own transactional id (`begin`, called when
   Spark pickles the writer for the tasks: `sink.StreamWriter.__getstate__`). An earlier driver can
   decide nothing from then on. What the last decision left open is completed, all other open
   transactions of the query are aborted.
2. Each task writes in a transaction of its own and leaves it open.
3. The decision is a transaction of the driver: the batch's source offsets, committed for the
   query's group, name the batch and the tasks' transactions in their metadata.
4. The tasks' transactions are committed.

A batch that Spark repeats is recognised by its id: if it is decided its tasks write nothing. While
no topic matches the pattern of a query its batches are empty, and there is nothing to decide.

Kafka: none; KIP-447, KIP-890 and KIP-939 are what it stands on.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final
from zlib import crc32

import psutil

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.coordination import Committed, Coordination, Mark, TaskProducer
from ottla.spark.decision import BatchDecision, IncompleteDecision, Participant, decode, encode
from ottla.spark.offsets import ids_of
from ottla.spark.processes import spark_jvm
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ottla.clients.cluster_reader import ClusterReader
    from ottla.spark.options import WriteOptions

log = logging.getLogger("ottla.spark")

DRIVER_TIMEOUT_MS: Final = 60_000
"""Of the driver's transaction, which is as long as its two requests."""
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_GENERATIONS: Final = 8
"""A batch takes two; the names are few, since a coordinator keeps each for days."""
OTHER_STATE: Final = "was repeated with other changes of the state"
"""What a repeated micro-batch says whose code is no function of its records."""
OTHER_OFFSETS: Final = "ends at other offsets than the one that was decided"
"""What a micro-batch says whose checkpoint is older than the decision."""
OTHER_DRIVER: Final = "another driver runs this query"
"""What a fenced driver says: tried again it would fence the other one."""


def driver_id(group_id: str) -> str:
    """Return the transactional id of the driver of a query."""
    return f"{group_id}-driver"


def _driver_name() -> str:
    """Name the driver by its JVM, for which different processes plan a batch and end it.

    A container may have the host name, and the process ids, of the one that it replaces.
    """
    name = socket.gethostname()
    with suppress(psutil.Error):
        jvm = spark_jvm()
        name += f" {jvm.pid} {jvm.create_time()}"
    return f"{crc32(name.encode()):08x}"


@dataclass(frozen=True, kw_only=True)
class DriverTurn:
    """A driver's turn to decide on one batch: the tasks' messages bring it back to the driver.

    Spark plans and ends a batch in different processes, which share nothing else.
    """

    driver: TaskProducer
    task_prefix: str
    """Prefix of the transactional ids of this batch's tasks."""
    decided_batch: int = -1
    """The last decided batch; a task of this batch or an earlier one writes nothing."""
    decided_state: int | None = None
    """Digest of the state's changes in the last decided batch, if its query has one."""
    decided_sources: int | None = None
    """Digest of the offsets at which the last decided batch ends, if it is known."""


@dataclass(frozen=True, kw_only=True)
class BatchStart(DriverTurn):
    """A driver's turn with the fences that its tasks check before they write."""

    group_id: str
    mark: Mark
    """Advanced when the batch ends; fences its late tasks."""

    @property
    def driver_mark(self) -> Mark:
        """Advanced when another driver takes over; fences this driver's tasks."""
        return Mark(driver_id(self.group_id), *self.driver[:2])

    @property
    def turn(self) -> DriverTurn:
        """The part that tasks return with their messages."""
        return DriverTurn(**{field.name: getattr(self, field.name) for field in fields(DriverTurn)})


class ExactlyOnce:
    """One batch of a query, as its driver sees it."""

    def __init__(self, options: WriteOptions, location: str, cluster: ClusterReader) -> None:
        """Take the checkpoint's location, and connections to the sink's cluster."""
        self._options = options
        self._cluster = cluster
        self._checkpoint = Checkpoint(location, options.hadoop)
        self._query_id = self._checkpoint.query_id()
        self._group_id = options.group_id or f"spark-{self._query_id}"
        self._coordination = Coordination(cluster)

    @property
    def _driver_id(self) -> str:
        return driver_id(self._group_id)

    @property
    def _task_prefix(self) -> str:
        return f"{self._group_id}-task-"

    @cached_property
    def _own_prefix(self) -> str:
        """Of the ids of this driver's tasks; the JVM is looked up once."""
        return f"{self._task_prefix}{_driver_name()}-"

    @property
    def _mark_id(self) -> str:
        return f"{self._own_prefix}mark"

    def _prefix_at(self, epoch: int) -> str:
        """Return the prefix of the ids of the tasks that begin at this epoch of the mark.

        A late task of one of the batches before, or of another driver, has another name: it cannot
        end one of this batch, and is not ended with it.
        """
        return f"{self._own_prefix}{epoch % _GENERATIONS}-"

    # ------------------------------------------------------------ before a batch

    def begin(self) -> BatchStart:
        """Fence the drivers before, and end the transactions that they left.

        KafkaError for a query that may not write; it has fenced no other then.
        """
        names = self._driver_id, self._mark_id
        self._coordination.look_up(names)
        self._checked_decision(is_stable=False)
        driver, marked = self._coordination.advance(names, DRIVER_TIMEOUT_MS)
        decision = self._checked_decision()
        if decision is not None:
            self._commit_all(decision.batch_id, decision.participants, is_repeated=True)
        self._abort_others(driver)
        while decision is not None and self._has_names_at(marked.producer_epoch, decision):
            (marked,) = self._coordination.advance([self._mark_id])
        mark = Mark(self._mark_id, *marked[:2])
        start = BatchStart(
            group_id=self._group_id,
            driver=driver,
            mark=mark,
            task_prefix=self._prefix_at(mark.producer_epoch),
        )
        if decision is None:
            return start
        return replace(
            start,
            decided_batch=decision.batch_id,
            decided_state=decision.state_digest,
            decided_sources=decision.source_digest,
        )

    def _abort_others(self, driver: TaskProducer) -> None:
        """Abort what drivers and batches before left; KafkaError if another driver has begun.

        What was open before that one began is not its own. The name of another group can begin
        with the prefix: its own ids have one in them once more.
        """
        start = len(self._task_prefix) - 1
        names = self._coordination.open_transactions(self._task_prefix)
        left = [name for name in names if "-task-" not in name[start:]]
        if not left:
            return
        (current,) = self._coordination.current([self._driver_id])
        if current[1:] != driver[:2]:
            raise fenced(self._group_id)
        self._coordination.advance(left)

    def _has_names_at(self, epoch: int, decision: BatchDecision) -> bool:
        """Whether tasks that begin now could fence a transaction that is decided.

        After a crash it is committed once more, which has to find it as it was.
        """
        prefix = self._prefix_at(epoch)
        return any(
            participant.transactional_id.startswith(prefix) for participant in decision.participants
        )

    def _checked_decision(self, *, is_stable: bool = True) -> BatchDecision | None:
        """Return the last decision; KafkaError if it is another query's, or missing."""
        decision = self._decision(is_stable=is_stable)
        if decision is None:
            self._check_is_new()
        return decision

    def _decision(self, *, is_stable: bool = True) -> BatchDecision | None:
        found = self._coordination.committed(self._group_id, is_stable=is_stable)
        try:
            return decode(self._query_id, [committed.metadata for committed in found.values()])
        except IncompleteDecision:
            if self._checkpoint.is_reset():
                return None
            raise

    def _check_is_new(self) -> None:
        """Refuse a query that has written before: its last batch may be written already."""
        last = self._checkpoint.last_committed_batch()
        if last < 0 or self._checkpoint.is_reset() or self._options.allows_missing_decision:
            return
        if self._checkpoint.is_without_partitions(last):
            return
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"the checkpoint has batches up to {last}, but group {self._group_id!r} has no "
            "decision on one: did its offsets expire (offsets.retention.minutes), were they reset "
            "while a batch was unfinished, or did the query run with exactlyOnce=false? Start with "
            "a new checkpoint, or give allowMissingDecision=true: the batch run next may then "
            "be written twice",
        )

    # ------------------------------------------------------------ after a batch

    def commit(
        self,
        turn: DriverTurn,
        batch_id: int,
        participants: Collection[Participant],
        state_digest: int | None = None,
    ) -> None:
        """Decide on a batch, then commit its transactions.

        One that was decided before is only checked: it has changed the state as the first time.
        """
        sources = self._checkpoint.source_digest(batch_id)
        if turn.decided_batch >= batch_id:
            self._check_sources(turn, batch_id, sources)
            self._check_repeat(turn, batch_id, state_digest)
            return
        decision = BatchDecision(
            self._query_id, batch_id, tuple(participants), state_digest, sources
        )
        tasks = (participant.transactional_id for participant in participants)
        self._coordination.look_up((self._driver_id, self._mark_id, *tasks), self._group_id)
        self._check_open(batch_id, participants)
        # without partitions and transactions it makes no difference if the batch is repeated
        if participants or not self._checkpoint.is_without_partitions(batch_id):
            self._decide_as(turn.driver, decision)
        self._commit_all(batch_id, decision.participants)
        self._coordination.end_attempts(self._mark_id, turn.task_prefix)

    def _check_sources(self, turn: DriverTurn, batch_id: int, source_digest: int) -> None:
        """Raise KafkaError if a batch is decided, but under its number other records were written.

        Spark repeats the last batch alone, with its offsets. A checkpoint that was restored from a
        copy, or lost its last files with the power, plans new offsets under old numbers: their
        tasks have written nothing.
        """
        known = turn.decided_sources if turn.decided_batch == batch_id else None
        if turn.decided_batch == batch_id and known in (None, source_digest):
            return
        text = (
            f"micro-batch {batch_id} {OTHER_OFFSETS} (batch {turn.decided_batch}): the checkpoint "
            "is older than what was written. Was it restored from a copy, or did it lose its last "
            "files? The batch is not written"
        )
        if self._options.fail_on_data_loss:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"{text}: start with a new checkpoint and another group, at the offsets that are "
                f"committed for group {self._group_id!r}; failOnDataLoss=false goes on without it",
            )
        log.warning("%s", text, extra={"event": "spark.older"})

    def _check_repeat(self, turn: DriverTurn, batch_id: int, state_digest: int | None) -> None:
        """Raise KafkaError if a decided batch has changed the state otherwise this time.

        Its records are those of the first time. Spark keeps the state of the last time, unless
        the batch fails: from a state of other contents records would be lost or counted twice.
        """
        known = turn.decided_state if turn.decided_batch == batch_id else None
        if None in (known, state_digest) or known == state_digest:
            return
        text = (
            f"micro-batch {batch_id} {OTHER_STATE}: its results are committed, and the state that "
            "belongs to them cannot be computed again from its records (a clock, random numbers, "
            "other systems, a changed program?)"
        )
        if self._options.fail_on_data_loss:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, f"{text}; failOnDataLoss=false goes on with it"
            )
        log.warning("%s", text, extra={"event": "spark.repeat"})

    def _check_open(self, batch_id: int, participants: Collection[Participant]) -> None:
        """Raise KafkaError, before anything is decided, for a transaction that is not open.

        A broker has aborted it after its timeout, or an administrator: decided on, the batch's
        records would be lost, since a decided batch is not written again.
        """
        for participant in self._coordination.not_open(participants):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"batch {batch_id} is not decided: transaction {participant.transactional_id} was "
                "aborted before all tasks had ended (kafka.transaction.timeout.ms is "
                f"{self._options.transaction_timeout_ms}). The batch is written again",
            )

    def _decide_as(self, driver: TaskProducer, decision: BatchDecision) -> None:
        """Decide as a driver; KafkaError if another one has begun since."""
        try:
            self._decide(driver, decision)
        except KafkaError as error:
            if error.code in FENCED:
                raise fenced(self._group_id) from error
            raise

    def _decide(self, driver: TaskProducer, decision: BatchDecision) -> None:
        offsets = self._offsets_of(decision)
        self._coordination.add_offsets(self._driver_id, driver, self._group_id, offsets)
        own = Participant(self._driver_id, *driver[:3])
        self._coordination.end(own, committed=True)

    def _offsets_of(self, decision: BatchDecision) -> dict[TopicPartition, Committed]:
        """Return the batch's source offsets in this cluster; else offsets that only decide.

        A query without a source here commits its batch's number for the topic it writes to.
        """
        positions: dict[TopicPartition, int] = {}
        for source in self._checkpoint.source_offsets(decision.batch_id):
            here = ids_of(self._cluster.existing_topics(source.topic_ids).values())
            positions |= {
                part: offset
                for part, offset in source.positions.items()
                if here.get(part.topic) == source.topic_ids[part.topic]
            }
        if not positions:
            positions = dict.fromkeys(self._sink_partitions(), decision.batch_id)
        texts = encode(decision, positions)
        return {part: Committed(offset, texts[part]) for part, offset in sorted(positions.items())}

    def _sink_partitions(self) -> list[TopicPartition]:
        name = self._options.decision_topic
        if name is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "a query whose source is not in this cluster keeps its decisions with the topic it "
                "writes to: give option topic or decisionTopic, or exactlyOnce=false",
            )
        topic = self._cluster.named_topics([name])[name]
        return [TopicPartition(name, index) for index in topic.leaders]

    def _commit_all(
        self, batch_id: int, participants: Sequence[Participant], *, is_repeated: bool = False
    ) -> None:
        errors = self._coordination.end_all(participants, committed=True)
        for one, error in zip(participants, errors, strict=True):
            if error is None:
                continue
            if is_repeated and error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                continue  # expired: it ended long ago
            self._lost(batch_id, one, error)

    def _lost(self, batch_id: int, one: Participant, error: KafkaError) -> None:
        """Report a transaction that ended otherwise than was decided."""
        text = (
            f"batch {batch_id} is decided, but transaction {one.transactional_id} was ended before "
            f"it could be committed ({error.code.name}): its records are lost. A broker without "
            "two-phase transactions aborts them after kafka.transaction.timeout.ms"
        )
        if self._options.fail_on_data_loss:
            raise KafkaError(error.code, f"{text}; failOnDataLoss=false goes on without") from error
        log.warning("%s", text, extra={"event": "spark.lost"})

    # ------------------------------------------------------------ after a failure

    def abort(self, turn: DriverTurn | None, batch_id: int) -> None:
        """Abort the batch, unless it was decided and only the answer was lost.

        A driver that goes on in place of this one keeps its epoch and its transactions. Without a
        turn no task has ended, so nothing was decided.
        """
        if turn is None:
            (mark,) = self._coordination.current([self._mark_id])
            self._coordination.end_attempts(self._mark_id, self._prefix_at(mark.producer_epoch))
            return
        self._take_next_epoch(turn.driver)
        decision = self._decision()
        if decision is not None and decision.batch_id >= batch_id:
            tasks = decision.participants
            own = [task for task in tasks if task.transactional_id.startswith(turn.task_prefix)]
            self._commit_all(decision.batch_id, own, is_repeated=True)
        self._coordination.end_attempts(self._mark_id, turn.task_prefix)

    def _take_next_epoch(self, driver: TaskProducer) -> None:
        """End what is left of the driver's transaction, unless another driver goes on."""
        try:
            self._coordination.init_producer(self._driver_id, DRIVER_TIMEOUT_MS, current=driver)
        except KafkaError as error:
            if error.code not in FENCED:
                raise


def fenced(group_id: str) -> KafkaError:
    """Return the error of a driver or a task after which another driver has begun."""
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"{OTHER_DRIVER} (group {group_id!r}): it goes on, this one ends",
    )

"""One partition of `__transaction_state` as a state machine.

Kafka: TransactionStateManager and TransactionCoordinator, per partition of the topic;
TransactionLogConfig, TransactionStateManagerConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.runtime.shard import Result, empty_result
from ottla.coordinator.transaction import decisions, state
from ottla.coordinator.transaction.decisions import EndRequest, InitRequest, ProducerKey, Unchanged
from ottla.coordinator.transaction.state import Transaction, TransactionState
from ottla.errors import ErrorCode, KafkaError
from ottla.timeline import TimelineDict, TimelineSet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ottla.coordinator.runtime import CoordinatorRecord, ShardEnvironment
    from ottla.types import TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionCoordinatorConfig:
    """Each field's comment is its name in the broker's configuration; times in milliseconds."""

    num_partitions: int = 50  # transaction.state.log.num.partitions
    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    abort_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    expire_interval_ms: int = 3_600_000  # …remove.expired.transaction.cleanup.interval.ms
    write_timeout_ms: int = 30_000  # request.timeout.ms
    load_buffer_bytes: int = 5_242_880  # transaction.state.log.load.buffer.size
    two_phase_commit: bool = False  # transaction.two.phase.commit.enable


ABORT_KEY: Final = "abort-timed-out-transactions"
EXPIRE_KEY: Final = "expire-transactional-ids"
_EXAMINED_AT_ONCE: Final = 1_000
"""Ids that a check looks at in one turn, at about 1 µs each."""
_ENDED_AS_EXAMINED: Final = 50
"""Ids that are looked at in the time that the record and the markers of an ended one take."""
_NO_EPOCHS: Final = (-1, -1, -1)


class Outcome(NamedTuple):
    """What a producer is answered: the code, and its id and epoch from now on."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    ongoing: tuple[int, int] = (-1, -1)
    """Id and epoch of the records of a transaction that the producer has taken over."""


class TransactionShard:
    """Replayed: the transactional ids. Soft: the timers, and epochs before the last bump."""

    is_compacted = True

    def __init__(
        self,
        environment: ShardEnvironment,
        config: TransactionCoordinatorConfig,
        transaction_version: Callable[[], int],
        on_prepared: Callable[[int, Transaction], None],
    ) -> None:
        """on_prepared(partition, transaction) writes the markers of a decided transaction."""
        self.partition = environment.partition
        self._config = config
        self._clock = environment.clock
        self._timers = environment.timers
        self._registry = environment.registry
        self._version = transaction_version
        self._on_prepared = on_prepared
        self.transactions: TimelineDict[str, Transaction] = TimelineDict(environment.registry)
        self._active: TimelineSet[str] = TimelineSet(environment.registry)
        """The ids whose transactions are open or decided."""
        self._last_epochs: dict[str, tuple[int, int, int]] = {}
        """By id: producer id, epoch, and the epoch before."""

    # ---------------------------------------------------------------- replay

    def replay(self, offset: int, _producer_id: int, record: CoordinatorRecord) -> None:
        """Apply one record; a tombstone forgets its id."""
        name: str = record.key
        value: Transaction | None = record.value
        if value is None:
            self.transactions.pop(name, None)
            self._active.discard(name)
            return
        producer_id, epoch, last_epoch = self._last_epochs.get(name, _NO_EPOCHS)
        if (producer_id, epoch) != (value.producer_id, value.producer_epoch):
            last_epoch = -1
        transaction = Transaction(*value[:12], last_epoch, offset)
        self.transactions[name] = transaction
        if transaction.state is TransactionState.ONGOING or transaction.state.is_prepared:
            self._active.add(name)
        else:
            self._active.discard(name)

    def replay_end_transaction(self, _producer_id: int, *, committed: bool) -> None:
        """Ignore a marker: none is written to this topic."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return the record's bytes."""
        return state.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Return the record of bytes; None for kinds not known here."""
        return state.decode(key, value)

    # ---------------------------------------------------------------- lifecycle

    def on_loaded(self) -> Iterator[None]:
        """Write the markers of decided transactions again; schedule the checks of timeouts.

        What is decided here is committed, as all that was loaded. Requests that are served before
        the first step decide further transactions, whose own commit is awaited.
        """
        decided = [(name, self.transactions[name]) for name in self._active]
        return self._restart(decided)

    def _restart(self, decided: list[tuple[str, Transaction]]) -> Iterator[None]:
        self._schedule_abort()
        self._schedule_expiry()
        for name, transaction in decided:
            is_current = self.transactions.get(name) is transaction
            if is_current and transaction.state.is_prepared:
                self._on_prepared(self.partition, transaction)
            yield

    def on_unloaded(self) -> None:
        """Forget the soft state."""
        self._last_epochs.clear()

    def stalls(self, *, is_writing: bool) -> Iterator[str]:  # noqa: ARG002 - the protocol's
        """Yield a line where open transactions and unused ids have no end."""
        if ABORT_KEY not in self._timers:
            yield "no timer aborts transactions"
        if EXPIRE_KEY not in self._timers:
            yield "no timer expires transactional ids"

    # ---------------------------------------------------------------- operations

    def init_producer_id(
        self, request: InitRequest, new_producer_id: int | None
    ) -> Result[Outcome]:
        """Give out the next epoch of an id; its open transaction is aborted first."""
        name, now_ms = request.transactional_id, self._clock.now_ms()
        current = self.transactions.get(name)
        if current is None:
            if new_producer_id is None:
                raise decisions.ProducerIdRequired
            current = decisions.new_transaction(name, new_producer_id, request.timeout_ms)
        following = decisions.init_producer_id(
            current,
            request,
            is_pending=self._is_pending(name),
            new_producer_id=new_producer_id,
            now_ms=now_ms,
        )
        if following is None:
            aborted = decisions.abort_by_coordinator(current, self._version(), now_ms)
            return self._prepared(aborted, Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))
        ongoing = (following.producer_id, following.producer_epoch)
        taken = ongoing if following.is_taken_over else (-1, -1)
        answer = Outcome(ErrorCode.NONE, *following.owner, taken)
        return Result(answer, [self._record(following)])

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerKey,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> Result[None]:
        """Add partitions to a transaction, the first of which begins it."""
        following = decisions.add_partitions(
            self._known(transactional_id),
            producer,
            partitions,
            is_pending=self._is_pending(transactional_id),
            client_version=client_version,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(following, Unchanged):
            return empty_result()
        return Result(None, [self._record(following)])

    def end(
        self, transactional_id: str, request: EndRequest, new_producer_id: int | None
    ) -> Result[Outcome]:
        """Decide on a transaction; the markers are written once the decision is committed."""
        following = decisions.end(
            self._known(transactional_id),
            request,
            is_pending=self._is_pending(transactional_id),
            new_producer_id=new_producer_id,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(following, Unchanged):
            known = following.transaction
            return Result(Outcome(ErrorCode.NONE, known.producer_id, known.producer_epoch))
        done = decisions.complete(following, following.update_ms)
        return self._prepared(
            following, Outcome(ErrorCode.NONE, done.producer_id, done.producer_epoch)
        )

    def complete(self, decided: Transaction) -> Result[None]:
        """End a transaction whose markers are written; nothing when that was done before.

        Its next transaction may be decided by now, for the same producer and in the same way.
        """
        current = self.transactions.get(decided.transactional_id)
        if current is None or current.record_offset != decided.record_offset:
            return empty_result()
        done = decisions.complete(current, self._clock.now_ms())
        return Result(None, [self._record(done)])

    def verify(
        self,
        epoch: int,
        transactional_id: str,
        producer: ProducerKey,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Say of each partition whether it is part of the committed state of a transaction."""
        current = self.transactions.get_at(transactional_id, epoch)
        if current is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        decisions.check_writer(current, producer)
        if current.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            partition: ErrorCode.NONE
            if partition in current.partitions
            else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    # ---------------------------------------------------------------- internals

    def _known(self, transactional_id: str) -> Transaction:
        current: Transaction | None = self.transactions.get(transactional_id)
        if current is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return current

    def _is_pending(self, transactional_id: str) -> bool:
        """Whether a transition is not committed yet, or the markers are not all written."""
        current: Transaction | None = self.transactions.get(transactional_id)
        if current is None:
            return False
        committed = self.transactions.get_at(transactional_id, self._registry.oldest_epoch)
        return committed is not current or current.state.is_prepared

    def _record(self, following: Transaction) -> CoordinatorRecord:
        self._last_epochs[following.transactional_id] = (
            following.producer_id,
            following.producer_epoch,
            following.last_epoch,
        )
        return state.record_of(following, min(self._version(), 1))

    def _prepared(self, decided: Transaction, answer: Outcome) -> Result[Outcome]:
        return Result(
            answer,
            [self._record(decided)],
            on_commit=lambda offset: self._on_prepared(
                self.partition, decided._replace(record_offset=offset)
            ),
        )

    # ---------------------------------------------------------------- timeouts and expiry

    def _schedule_abort(self) -> None:
        interval_ms = self._config.abort_interval_ms
        self._timers.schedule(ABORT_KEY, interval_ms, self._abort, retry_ms=interval_ms)

    def _abort(self) -> Result[None]:
        """Abort the transactions that are open for too long, each with a record of its own."""
        self._schedule_abort()
        self._check(ABORT_KEY, self._active, Transaction.has_timed_out, self._abort_one)
        return empty_result()

    def _abort_one(self, name: str) -> Result[None]:
        current, now_ms = self.transactions.get(name), self._clock.now_ms()
        if current is None or not current.has_timed_out(now_ms) or self._is_pending(name):
            return empty_result()
        aborted = decisions.abort_by_coordinator(current, current.client_version, now_ms)
        result = self._prepared(aborted, Outcome(ErrorCode.NONE))
        return Result(None, result.records, on_commit=result.on_commit)

    def _schedule_expiry(self) -> None:
        interval_ms = self._config.expire_interval_ms
        self._timers.schedule(EXPIRE_KEY, interval_ms, self._expire, retry_ms=interval_ms)

    def _expire(self) -> Result[None]:
        """Forget ids that were unused for long."""
        self._schedule_expiry()
        self._check(EXPIRE_KEY, self.transactions, self._has_expired, self._forget)
        return empty_result()

    def _has_expired(self, one: Transaction, now_ms: int) -> bool:
        return one.has_expired(now_ms, self._config.id_expiration_ms)

    def _forget(self, name: str) -> Result[None]:
        current = self.transactions.get(name)
        if current is None or not self._has_expired(current, self._clock.now_ms()):
            return empty_result()
        self._last_epochs.pop(name, None)
        return Result(None, [state.tombstone(name)])

    def _check(
        self,
        key: str,
        names: Iterable[str],
        is_over: Callable[[Transaction, int], bool],
        end: Callable[[str], Result[None]],
    ) -> None:
        """Call `end` for each name whose transaction `is_over`; one check of a key at a time."""

        def check() -> Iterator[list[CoordinatorRecord]]:
            cost = 0
            for name in list(names):
                current = self.transactions.get(name)
                if current is not None and is_over(current, self._clock.now_ms()):
                    self._timers.schedule((key, name), 0, lambda name=name: end(name))  # type: ignore[misc] # a lambda's default binds the loop's value
                    cost += _ENDED_AS_EXAMINED
                cost += 1
                if cost >= _EXAMINED_AT_ONCE:
                    cost = 0
                    yield []

        self._timers.write_all(key, check())

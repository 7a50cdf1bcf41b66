"""Copies one topic to another in transactions, as a program that may be killed at any time.

    python -m tests.conformance.clusters.copier KIND BOOTSTRAP SOURCE TARGET GROUP NAME

KIND is the client library, NAME the transactional id. Each record is written to the partition
that it was read from; its offset is committed with it. One transaction in ten is aborted. Says
"committed COUNT" and "aborted COUNT" with the number of its records.

Kafka: org.apache.kafka.tools.TransactionalMessageCopier.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import confluent_kafka

from ottla import (
    Consumer,
    FatalTransactionError,
    FencedInstanceIdError,
    KafkaError,
    Producer,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FENCED = 3
"""The exit status of a copier whose producer cannot go on."""
SESSION_TIMEOUT_MS = 6000
TRANSACTION_TIMEOUT_MS = 10_000
_RECORDS = 100
_WAIT_S = 0.5
_CALL_LIMIT_S = 20
_ABORTED_SHARE = 0.1
_STATIC = ("-0", "-2", "-4")


class Arguments(NamedTuple):
    """What a copier is started with."""

    bootstrap: str
    source: str
    target: str
    group: str
    name: str

    @property
    def instance(self) -> str | None:
        """The group.instance.id: half of the copiers are static members."""
        return self.name if self.name.endswith(_STATIC) else None


class Record(NamedTuple):
    """A record of the source."""

    partition: int
    offset: int
    value: bytes


class Chosen(Exception):
    """A transaction is aborted because the program chose to."""


class Library(Protocol):
    """A consumer and a transactional producer of one client library."""

    errors: tuple[type[Exception], ...]

    def read(self) -> list[Record]:
        """Return the next records; may be empty."""

    def copy(self, records: Sequence[Record], check: Callable[[], None]) -> None:
        """Write the records and their offsets in a transaction; `check` may raise to abort it."""

    def recover(self, error: Exception) -> None:
        """Abort the transaction and read its records again; leave the program where fenced."""


def _ends(records: Sequence[Record]) -> dict[int, int]:
    return {one.partition: one.offset + 1 for one in records}


class Ottla:
    """The native clients."""

    errors: tuple[type[Exception], ...] = (KafkaError, Chosen)

    def __init__(self, asked: Arguments) -> None:
        self._asked = asked
        self._producer = Producer(
            bootstrap_servers=asked.bootstrap,
            transactional_id=asked.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        _until_done(self._producer.init_transactions)
        self._consumer = Consumer(
            asked.source,
            bootstrap_servers=asked.bootstrap,
            group_id=asked.group,
            group_instance_id=asked.instance,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=1000,
            partition_assignment_strategy=["range"],
        )

    def read(self) -> list[Record]:
        """Return what a poll returns."""
        try:
            found = self._consumer.poll(_WAIT_S, _RECORDS)
        except FencedInstanceIdError as error:
            print("fenced", self._consumer.group_metadata(), repr(error), flush=True)
            sys.exit(FENCED)
        return [Record(one.partition, one.offset, one.value) for one in found]

    def copy(self, records: Sequence[Record], check: Callable[[], None]) -> None:
        """Write the records and their offsets."""
        source, producer = self._asked.source, self._producer
        producer.begin_transaction()
        for one in records:
            producer.send(self._asked.target, one.value, partition=one.partition)
        ends = {TopicPartition(source, part): end for part, end in _ends(records).items()}
        producer.send_offsets_to_transaction(ends, self._consumer.group_metadata())
        check()
        _until_done(producer.commit_transaction)

    def recover(self, error: Exception) -> None:
        """Abort and seek to what is committed."""
        if isinstance(error, FatalTransactionError):
            sys.exit(FENCED)
        try:
            _until_done(self._producer.abort_transaction)
        except FatalTransactionError:
            sys.exit(FENCED)
        while True:
            with suppress(KafkaError):
                found = self._consumer.committed(self._consumer.assignment, timeout=5)
                for part, one in found.items():
                    self._consumer.seek(part, 0 if one is None else one.offset)
                return


class Librdkafka:
    """confluent-kafka."""

    errors: tuple[type[Exception], ...] = (confluent_kafka.KafkaException, Chosen)

    def __init__(self, asked: Arguments) -> None:
        self._asked = asked
        common: dict[str, Any] = {
            "bootstrap.servers": asked.bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 5000,
            "log_level": 0,
        }
        self._producer = confluent_kafka.Producer(
            common
            | {
                "transactional.id": asked.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        self._retried(self._producer.init_transactions)
        static = {"group.instance.id": asked.instance} if asked.instance else {}
        self._consumer = confluent_kafka.Consumer(
            common
            | static
            | {
                "group.id": asked.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 1000,
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer.subscribe([asked.source])

    def read(self) -> list[Record]:
        """Return what was consumed without error."""
        found = self._consumer.consume(_RECORDS, _WAIT_S)
        errors = (one.error() for one in found)
        if fatal := [one for one in errors if one is not None and one.fatal()]:
            print("fenced", fatal, flush=True)
            sys.exit(FENCED)
        return [
            Record(one.partition() or 0, one.offset() or 0, one.value() or b"")
            for one in found
            if one.error() is None
        ]

    def copy(self, records: Sequence[Record], check: Callable[[], None]) -> None:
        """Write the records and their offsets."""
        self._producer.begin_transaction()
        for one in records:
            self._producer.produce(self._asked.target, one.value, partition=one.partition)
        ends = [
            confluent_kafka.TopicPartition(self._asked.source, part, end)
            for part, end in _ends(records).items()
        ]
        metadata = self._consumer.consumer_group_metadata()
        self._retried(lambda: self._producer.send_offsets_to_transaction(ends, metadata))
        check()
        self._retried(self._producer.commit_transaction)

    def recover(self, error: Exception) -> None:
        """Abort and seek to what is committed."""
        if isinstance(error, confluent_kafka.KafkaException) and error.args[0].fatal():
            sys.exit(FENCED)
        try:
            self._retried(self._producer.abort_transaction)
        except confluent_kafka.KafkaException:
            sys.exit(FENCED)
        while True:
            with suppress(confluent_kafka.KafkaException):
                for one in self._consumer.committed(self._consumer.assignment(), timeout=5):
                    one.offset = max(one.offset, 0)
                    self._consumer.seek(one)
                return
            self.read()  # a rebalance goes on in it; what it returns is read again

    @staticmethod
    def _retried(call: Callable[[], None]) -> None:
        """Repeat a call; end the process where it hangs.

        After the group's coordinator was killed librdkafka may send no TxnOffsetCommit, and not ask
        for the new one, whatever the timeout of the call is.
        """
        while True:
            watchdog = threading.Timer(_CALL_LIMIT_S, _hangs)
            watchdog.start()
            try:
                return call()
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise
                time.sleep(0.1)
            finally:
                watchdog.cancel()


def _hangs() -> None:
    print("hangs", flush=True)
    os._exit(FENCED)


LIBRARIES: dict[str, Callable[[Arguments], Library]] = {"ottla": Ottla, "librdkafka": Librdkafka}


def _until_done(call: Callable[[], object]) -> None:
    """Repeat a call of the native producer that its timeout interrupted."""
    while True:
        try:
            call()
        except TimeoutError:
            continue
        return


def main(kind: str, asked: Arguments) -> None:
    """Copy until killed."""
    library, rng = LIBRARIES[kind](asked), random.Random()

    def check() -> None:
        if rng.random() < _ABORTED_SHARE:
            raise Chosen

    faulthandler.register(signal.SIGUSR1)
    print("ready", flush=True)
    while True:
        records = library.read()
        if not records:
            continue
        try:
            library.copy(records, check)
        except library.errors as error:
            print("aborted", len(records), repr(error), flush=True)
            library.recover(error)
        else:
            print("committed", len(records), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Arguments(*sys.argv[2:]))

"""A workload of registers: clients that read, write and compare-and-set, and its check.

Each operation is a record of a topic, written with acks=all by an idempotent producer of
librdkafka; its client then reads the partition up to that record, and the records before it say
what the register holds. A history is right when it is linearizable: when each register's
operations have an order that keeps the order in time and in which each read and each comparison
has the result that it had. An operation without an answer may have happened at any time after its
start, or not at all.

Kafka: none; Jepsen's register workload, checked as by Wing and Gong, with Lowe's memory of states.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.conformance.clusters.history import Lost
from tests.conformance.clusters.load import CLIENT, PROGRESS_LIMIT_S, idempotent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TOPIC = "registers"
PARTITIONS = 3
CLIENTS = 4
VALUES = 5
_KEYS = 5
_GENERATION_S = 10.0
_MAX_PAUSE_S = 0.1
_KINDS = ("read", "read", "write", "compare")


class Operation:
    """One operation: what was requested, when, and its result."""

    def __init__(self, key: str, kind: str, value: int | None = None) -> None:
        self.key = key
        self.kind = kind
        self.value = value
        """What is written."""
        self.expected: int | None = None
        """Of a comparison: what the register must hold for the write to happen."""
        self.result: int | bool | None = None
        """What was read, or whether the comparison wrote."""
        self.invoked_s = 0.0
        self.answered_s: float | None = None
        """None: the outcome is unknown."""

    def apply(self, held: int | None) -> tuple[int | None, int | bool | None]:
        """Return what the register holds afterwards, and the result."""
        if self.kind == "read":
            return held, held
        if self.kind == "write":
            return self.value, None
        return (self.value, True) if held == self.expected else (held, False)


class Registers:
    """The clients, each in its thread."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._stopped = threading.Event()
        self._clients = [
            RegisterClient(bootstrap, number, random.Random(f"{seed} {number}"), self._stopped)
            for number in range(CLIENTS)
        ]

    @property
    def history(self) -> list[Operation]:
        """All operations so far."""
        return [one for client in self._clients for one in list(client.history)]

    def start(self) -> None:
        """Start all clients."""
        for one in self._clients:
            one.start()

    def stop(self) -> None:
        """Start no further operation and wait until each has its answer."""
        self._stopped.set()
        for one in self._clients:
            one.join(PROGRESS_LIMIT_S + 10)
            if one.is_alive():
                raise Lost("a client of the registers does not end")
            if one.problem:
                raise Lost(f"a client of the registers: {one.problem}")


class RegisterClient(threading.Thread):
    """One client: one operation at a time."""

    def __init__(
        self, bootstrap: str, number: int, rng: random.Random, stopped: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self.history: list[Operation] = []
        self.problem: str | None = None
        self._number = number
        self._rng = rng
        self._stopped = stopped
        self._settings = CLIENT | {"bootstrap.servers": bootstrap}
        self._held: dict[str, int | None] = {}
        self._ends: Counter[int] = Counter()
        self._results: dict[tuple[int, int], int | bool | None] = {}

    def run(self) -> None:
        """Run operations until stopped."""
        producer = Producer(idempotent(self._settings))
        settings = {"group.id": "no-group", "enable.auto.commit": False}
        consumer = Consumer(self._settings | settings | {"auto.offset.reset": "error"})
        consumer.assign([TopicPartition(TOPIC, one, 0) for one in range(PARTITIONS)])
        begun = time.monotonic()
        while not self._stopped.wait(self._rng.uniform(0, _MAX_PAUSE_S)) and not self.problem:
            generation = int((time.monotonic() - begun) / _GENERATION_S)
            index = generation * _KEYS + self._rng.randrange(_KEYS)
            one = self._draw(str(index))
            number = len(self.history)
            one.invoked_s = time.monotonic()
            self.history.append(one)
            offset = self._append(producer, index % PARTITIONS, number, one)
            if offset is None:
                producer = Producer(idempotent(self._settings))
            elif self._read_to(consumer, index % PARTITIONS, offset):
                one.result = self._results.pop((self._number, number))
                one.answered_s = time.monotonic()
        consumer.close()

    def _draw(self, key: str) -> Operation:
        kind = self._rng.choice(_KINDS)
        if kind == "read":
            return Operation(key, kind)
        one = Operation(key, kind, self._rng.randrange(VALUES))
        if kind == "compare":
            one.expected = self._rng.randrange(VALUES)
        return one

    def _append(
        self, producer: Producer, partition: int, number: int, one: Operation
    ) -> int | None:
        """Return the offset of the operation's record; None if it may be there or not."""
        answers: list[tuple[KafkaError | None, int]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            answers.append((error, message.offset() or 0))

        asked = [self._number, number, one.key, one.kind, one.value, one.expected]
        try:
            producer.produce(TOPIC, json.dumps(asked), partition=partition, on_delivery=delivered)
        except KafkaException:
            return None
        while not answers:
            producer.poll(0.1)
        error, offset = answers[0]
        return None if error else offset

    def _read_to(self, consumer: Consumer, partition: int, offset: int) -> bool:
        """Apply the records up to this one; return whether it was read."""
        deadline = time.monotonic() + PROGRESS_LIMIT_S
        while self._ends[partition] <= offset:
            if time.monotonic() > deadline:
                self.problem = f"{partition}/{offset} is acknowledged and cannot be read"
                return False
            for message in consumer.consume(500, 0.05):
                self._take(message)
        return True

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.problem = f"the consumer's offset does not exist: {error.str()}"
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        self._ends[partition] = offset + 1
        client, number, key, kind, value, expected = json.loads(message.value() or b"")
        one = Operation(key, kind, value)
        one.expected = expected
        self._held[key], result = one.apply(self._held.get(key))
        if client == self._number:
            self._results[client, number] = result


def check_registers(history: Iterable[Operation]) -> dict[str, int]:
    """Check that the history of each register is linearizable; return figures."""
    registers: dict[str, list[Operation]] = defaultdict(list)
    for one in history:
        registers[one.key].append(one)
    for key, operations in registers.items():
        if not is_linearizable(operations):
            raise Lost(f"register {key}: its {len(operations)} operations are not linearizable")
    every = [one for operations in registers.values() for one in operations]
    return {
        "registers": len(registers),
        "register_operations": len(every),
        "register_operations_unknown": sum(one.answered_s is None for one in every),
    }


def is_linearizable(operations: Sequence[Operation]) -> bool:
    """Return whether a register's operations have an order that explains their results."""
    return _Search(operations).succeeds()


class _Search:
    """A depth-first search over the orders, which never enters a state twice.

    Calls and answers stand in one list in the order of time. An operation that is put next into the
    order leaves the list with its answer. When the search meets an answer, that operation had to be
    put earlier: the one put last is taken back.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = [
            one for one in operations if one.answered_s is not None or one.kind != "read"
        ]
        events = [(one.invoked_s, 0, at) for at, one in enumerate(self._operations)]
        events += [
            (one.answered_s, 1, at)
            for at, one in enumerate(self._operations)
            if one.answered_s is not None
        ]
        events.sort()
        self._events = [(bool(is_answer), at) for _time_s, is_answer, at in events]
        self._head = len(events)
        self._answers = {at: place for place, (is_one, at) in enumerate(self._events) if is_one}
        self._next = [*range(1, len(events) + 1), 0]
        self._previous = [len(events), *range(len(events))]

    def succeeds(self) -> bool:
        """Return whether all operations with an answer can be put into an order."""
        held: int | None = None
        put, left = 0, len(self._answers)
        seen: set[tuple[int, int | None]] = set()
        chosen: list[tuple[int, int | None]] = []
        place = self._next[self._head]
        while left:
            is_answer, at = self._events[place]
            if is_answer:
                if not chosen:
                    return False
                place, held = chosen.pop()
                at = self._events[place][1]
                put &= ~(1 << at)
                left += self._restore(place, at)
                place = self._next[place]
                continue
            after, result = self._operations[at].apply(held)
            state = put | 1 << at, after
            if self._explains(at, result) and state not in seen:
                seen.add(state)
                chosen.append((place, held))
                put, held = state
                left -= self._take_out(place, at)
                place = self._next[self._head]
            else:
                place = self._next[place]
        return True

    def _explains(self, at: int, result: object) -> bool:
        one = self._operations[at]
        return one.answered_s is None or one.result == result

    def _take_out(self, call: int, at: int) -> int:
        """Take a call and its answer out of the list; return the number of answers."""
        answers = [self._answers[at]] if at in self._answers else []
        for place in (call, *answers):
            self._next[self._previous[place]] = self._next[place]
            self._previous[self._next[place]] = self._previous[place]
        return len(answers)

    def _restore(self, call: int, at: int) -> int:
        """Put both back; return the number of answers."""
        answers = [self._answers[at]] if at in self._answers else []
        for place in (*answers, call):
            self._next[self._previous[place]] = place
            self._previous[self._next[place]] = place
        return len(answers)

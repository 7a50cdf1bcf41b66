"""A chain of topics that copiers connect in transactions, and the check that each record arrives.

The first topic is that of the queue (`load.py`). Programs of `copier.py`, native and librdkafka,
copy it to a second topic and this to a third, as members of one group for each step.

Kafka: tests/kafkatest/tests/core/transactions_test.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Partition

from ottla import Consumer as NativeConsumer
from ottla import TopicPartition
from tests.conformance.clusters import load
from tests.conformance.clusters.copier import FENCED, LIBRARIES
from tests.conformance.clusters.faults import Faults
from tests.conformance.clusters.history import Lost

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.conformance.clusters.nodes import Cluster

TOPICS = ("chain-middle", "chain-output")
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000"}
"""What nodes have so that transactions of killed copiers do not hold the readers up for long."""
PROGRESS_LIMIT_S = 120.0
_COPIERS_OF_A_STEP = 2


class Copier:
    """One copier in its process; its transactional id stays over restarts."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.starts = 0
        self._arguments = arguments
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        self.starts += 1
        command = [sys.executable, "-m", "tests.conformance.clusters.copier", *self._arguments]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.send(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def check(self) -> str | None:
        """Start a fenced copier again; return why one has ended that was not fenced."""
        assert self._process is not None
        status = self._process.poll()
        if status == FENCED:
            self.start()
        elif status is not None:
            return f"copier {self.name} ended with status {status}; see {self._log}"
        return None

    def counts(self) -> Counter[str]:
        """Return the transactions that it reported by how they ended."""
        words = (line.split(maxsplit=1) for line in self._log.read_text().splitlines())
        return Counter(word[0] for word in words if word and word[0] in ("committed", "aborted"))


class Chain:
    """The copiers, and a reader of the last topic that notices progress."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.seen = Counter[int]()
        """The records at the end of the chain by partition, as read while it runs."""
        self.directory = directory
        self._bootstrap = bootstrap
        self.copiers = [
            self._copier(source, target, number)
            for source, target in zip((load.TOPIC, *TOPICS), TOPICS, strict=False)
            for number in range(_COPIERS_OF_A_STEP)
        ]
        self._stopped = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def _copier(self, source: str, target: str, number: int) -> Copier:
        kind, name = list(LIBRARIES)[number % len(LIBRARIES)], f"{target}-{number}"
        words = [kind, self._bootstrap, source, target, f"{target}-copiers", name]
        return Copier(name, words, self.directory / f"{name}.log")

    def start(self) -> None:
        """Start the copiers and the reader."""
        for one in self.copiers:
            one.start()
        self._reader.start()

    def _consumer(self) -> Consumer:
        return Consumer(
            load.CLIENT
            | {
                "bootstrap.servers": self._bootstrap,
                "group.id": "no-group",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )

    def _read(self) -> None:
        consumer = self._consumer()
        consumer.assign([Partition(TOPICS[-1], one, 0) for one in range(load.PARTITIONS)])
        while not self._stopped.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    self.seen[message.partition() or 0] += 1
        consumer.close()

    def check(self) -> None:
        """Check that no copier has ended by itself; start those again that were fenced."""
        for one in self.copiers:
            problem = one.check()
            if problem:
                raise Lost(problem)

    def wait_for(self, counts: Mapping[int, int], text: str) -> float:
        """Wait until the end of the chain has this many records of each partition."""
        begun = time.monotonic()
        while True:
            self.check()
            missing = [one for one, count in counts.items() if self.seen[one] < count]
            if not missing:
                return time.monotonic() - begun
            if time.monotonic() - begun > PROGRESS_LIMIT_S:
                found = {one: (self.seen[one], counts[one]) for one in missing}
                for one in self.copiers:
                    one.send(signal.SIGUSR1)  # writes its stacks to its log
                time.sleep(1)
                raise Lost(f"the chain does not go on {text}: {found}")
            time.sleep(0.05)

    def finish(self, source: Mapping[int, Sequence[int]]) -> dict[str, Any]:
        """Wait for the records of the source, stop, and check that each is there once in order."""
        self.wait_for({one: len(log) for one, log in source.items()}, "to the end of the source")
        self.kill()
        self._stopped.set()
        self._reader.join(PROGRESS_LIMIT_S)
        for topic in TOPICS:
            check_copy(topic, source, self._read_with_librdkafka(topic))
            check_copy(topic, source, self._read_natively(topic))
        ended = sum((one.counts() for one in self.copiers), Counter[str]())
        return {
            "copied": sum(len(log) for log in source.values()) * len(TOPICS),
            "transactions": dict(ended),
            "copiers_started": {one.name: one.starts for one in self.copiers},
        }

    def kill(self) -> None:
        """Kill the copiers."""
        for one in self.copiers:
            if one.starts:
                one.kill()

    def _read_with_librdkafka(self, topic: str) -> dict[int, list[int]]:
        """Return the committed records of each partition up to its last stable offset."""
        consumer, found = self._consumer(), dict[int, list[int]]()
        for partition in range(load.PARTITIONS):
            log = found[partition] = []
            consumer.assign([Partition(topic, partition, 0)])
            deadline, is_read = time.monotonic() + PROGRESS_LIMIT_S, False
            while not is_read:
                for message in consumer.consume(1000, 0.2):
                    if (error := message.error()) is None:
                        log.append(_number(message.value()))
                    is_read |= error is not None and error.code() == KafkaError._PARTITION_EOF
                if time.monotonic() > deadline:
                    raise Lost(f"{topic} cannot be read by librdkafka to its end")
        consumer.close()
        return found

    def _read_natively(self, topic: str) -> dict[int, list[int]]:
        """Return the committed records of each partition up to the last stable offset."""
        found: dict[int, list[int]] = {one: [] for one in range(load.PARTITIONS)}
        partitions = [TopicPartition(topic, one) for one in found]
        with NativeConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            deadline = time.monotonic() + PROGRESS_LIMIT_S
            while any(consumer.position(one) < ends[one] for one in partitions):
                for record in consumer.poll(1.0):
                    found[record.partition].append(_number(record.value))
                if time.monotonic() > deadline:
                    raise Lost(f"{topic} cannot be read to its last stable offset")
        return found


def _number(value: bytes | None) -> int:
    return int((value or b"").split(b" ", 1)[0])


def check_copy(
    topic: str, source: Mapping[int, Sequence[int]], copy: Mapping[int, Sequence[int]]
) -> None:
    """Check that each partition of the copy has the records of the source's, each once in order."""
    for partition, expected in source.items():
        found, known = copy[partition], Counter(expected)
        twice = [
            number for number, count in Counter(found).items() if count > max(1, known[number])
        ]
        if twice:
            raise Lost(f"{topic}-{partition}: records exist twice: {twice[:10]}")
        missing = sorted(set(expected).difference(found))
        if missing:
            raise Lost(f"{topic}-{partition}: records are missing: {missing[:10]}")
        for place, (wanted, number) in enumerate(zip(expected, found, strict=False)):
            if wanted != number:
                raise Lost(f"{topic}-{partition}: place {place} has {number}, not {wanted}")
        if len(found) != len(expected):
            raise Lost(f"{topic}-{partition}: {found[-1]} is not of the source")


class ChainFaults(Faults):
    """Kills and pauses of brokers and copiers."""

    def __init__(self, cluster: Cluster, rng: random.Random, chain: Chain) -> None:
        super().__init__(cluster, rng)
        self._chain = chain
        self._kinds = [
            self._kill_one,
            self._kill_one,
            self._kill_two,
            self._pause,
            self._kill_copier,
            self._kill_copier,
            self._kill_copier_and_broker,
            self._pause_copier,
        ]

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        count = self.count
        both = ("kill_two", "kill_copier_and_broker")
        return count["kill_one"] + count["kill_copier"] + 2 * sum(count[one] for one in both)

    def _kill_copier(self) -> str:
        one = self._rng.choice(self._chain.copiers)
        one.kill()
        seconds = self._sleep(0, 3)
        one.start()
        return f"{one.name} {seconds:.1f} s"

    def _kill_copier_and_broker(self) -> str:
        one, (node,) = self._rng.choice(self._chain.copiers), self._draw(1)
        one.kill()
        node.kill()
        seconds = self._sleep(0, 4)
        one.start()
        node.start()
        return f"{one.name} {node.node_id} {seconds:.1f} s"

    def _pause_copier(self) -> str:
        """Let a copier become a zombie that goes on later."""
        one = self._rng.choice(self._chain.copiers)
        one.send(signal.SIGSTOP)
        seconds = self._sleep(0.2, 15)
        one.send(signal.SIGCONT)
        return f"{one.name} {seconds:.1f} s"

"""How long Kafka and Ottla take to load a partition of a coordinator with a million records.

    python benchmarks/against_kafka/coordinator_loading.py [--ids 1000] [--runs 3]

Both open the same directory, one after the other: one partition of `__transaction_state` (states
of --ids transactional ids) and one of `__consumer_offsets` (offsets of --ids partitions in groups
of 100), each of --records records. The times are those of the lines that both write to their logs.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

from ottla import Admin, Producer
from ottla.coordinator.group import records as group_records
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.transaction import records as transaction_records
from ottla.coordinator.transaction.state import Transaction, TransactionState
from ottla.protocol.records.group import OffsetCommitKey, OffsetCommitValue
from ottla.records.builder import encode_batch
from ottla.types import TopicPartition
from tests.conformance.kafka import RealKafka, find_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE_PARTITION = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.enable": "false",
}
TOPICS = ("__transaction_state", "__consumer_offsets")
_KAFKA = re.compile(r"Finished loading .*(__\w+)-0 .*?in (\d+) ?(?:ms|milliseconds)")
_OTTLA = re.compile(r"(group|transaction) coordinator loaded partition 0: .* in (\d+) ms")
_TOPIC_OF = {"transaction": TOPICS[0], "group": TOPICS[1]}
_IN_A_BATCH = 1
_TIMEOUT_S = 300


def transaction_states(count: int, ids: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield begin, decision and end of one transaction after the other."""
    partitions = frozenset(TopicPartition("output", index) for index in range(2))
    states = (
        (TransactionState.ONGOING, partitions),
        (TransactionState.PREPARE_COMMIT, partitions),
        (TransactionState.COMPLETE_COMMIT, frozenset[TopicPartition]()),
    )
    now_ms = int(time.time() * 1000)
    for number in range(count):
        name = (number // len(states)) % ids
        state, members = states[number % len(states)]
        transaction = Transaction(
            f"transactional-id-{name}", name, 3, 60_000, state, members, now_ms, now_ms
        )
        yield transaction_records.encode(transaction_records.record_of(transaction, 1))


def offsets(count: int, ids: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield commits of one partition after the other."""
    now_ms = int(time.time() * 1000)
    for number in range(count):
        name = number % ids
        key = OffsetCommitKey(group=f"group-{name // 100}", topic="input", partition=name % 100)
        value = OffsetCommitValue(offset=number, metadata="", commit_timestamp=now_ms)
        yield group_records.encode(CoordinatorRecord(key, value, 3))


def write_segment(path: Path, entries: Iterator[tuple[bytes, bytes | None]]) -> None:
    """Write a log's only segment; a record a batch, as coordinators write them."""
    for old in path.glob("0000*"):
        old.unlink()
    now_ms = int(time.time() * 1000)
    offset, waiting = 0, []
    with (path / f"{0:020}.log").open("wb") as file:
        for key, value in entries:
            waiting.append((now_ms, key, value, ()))
            if len(waiting) == _IN_A_BATCH:
                file.write(encode_batch(waiting, base_offset=offset, leader_epoch=0))
                offset += len(waiting)
                waiting = []


def prepare(node: RealKafka, records: int, ids: int) -> None:
    """Have Kafka create both topics, stop it, and write their logs."""
    node.format()
    node.start()
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("output")
        admin.alter_group_offsets("group-0", {TopicPartition("output", 0): 0})
    with Producer(bootstrap_servers=node.bootstrap, transactional_id="t") as producer:
        producer.init_transactions()
    node.stop()
    write_segment(node.log_dir / f"{TOPICS[0]}-0", transaction_states(records, ids))
    write_segment(node.log_dir / f"{TOPICS[1]}-0", offsets(records, ids))


def _times(log: Path, pattern: re.Pattern[str], begin: int) -> dict[str, int]:
    return {
        _TOPIC_OF.get(found[1], found[1]): int(found[2])
        for line in log.read_text(errors="replace")[begin:].splitlines()
        if (found := pattern.search(line))
    }


def measure(node: RealKafka, command: list[str], pattern: re.Pattern[str]) -> dict[str, int]:
    """Start a node over the directory until both partitions are loaded; return milliseconds."""
    log = node.directory / "server.log"
    begin = len(log.read_text(errors="replace"))
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=node.directory)
    deadline_s = time.monotonic() + _TIMEOUT_S
    try:
        while len(found := _times(log, pattern, begin)) < len(TOPICS):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"not loaded, see {log}: {found}")
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return found


def main() -> None:
    """Run with command line arguments; print times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=999_999)
    parser.add_argument("--ids", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    kafka = find_kafka()
    with tempfile.TemporaryDirectory(prefix="ottla-loading-") as made:
        node = RealKafka(kafka, Path(made), ONE_PARTITION)
        prepare(node, options.records, options.ids)
        file = str(node.properties_file)
        commands = {
            "kafka": (kafka.command("kafka.Kafka", file, heap_mb=1024), _KAFKA),
            "ottla": ([sys.executable, "-m", "ottla", "server-start", file], _OTTLA),
        }
        best: dict[tuple[str, str], int] = {}
        for _ in range(options.runs):
            for name, (command, pattern) in commands.items():
                for topic, took_ms in measure(node, command, pattern).items():
                    print(f"{name} {topic}: {took_ms} ms", flush=True)
                    best[name, topic] = min(took_ms, best.get((name, topic), took_ms))
    for topic in TOPICS:
        ratio = best["ottla", topic] / best["kafka", topic]
        print(f"{topic}: Ottla / Kafka {ratio:.2f}")


if __name__ == "__main__":
    main()

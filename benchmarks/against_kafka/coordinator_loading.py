"""How long Kafka and Ottla take to load a partition of a coordinator with a million records.

    python benchmarks/against_kafka/coordinator_loading.py [--ids 1000] [--runs 3]

Both open the same directory, one after the other: first with one partition of
`__transaction_state` (states of --ids transactional ids), then with one of `__consumer_offsets`
(offsets of --ids partitions in groups of 100), each of --records records. Kafka's time is its
metric partition-load-time-max, which its JMX tool reads; Ottla's that of its log. Ottla's slowest
turn of the event loop is printed too.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.against_kafka.brokers import HEAP, free_port

from ottla import Admin, Producer
from ottla.coordinator.group.shard import _RecordSerde
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.transaction import state as transaction_records
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
    "metrics.sample.window.ms": "600000",  # the time of loading is shown for so long
}
TOPICS = {"__transaction_state": "transaction", "__consumer_offsets": "group"}
"""The topics, and what their coordinators are called in metrics and in the log."""
_OTTLA = "%s coordinator loaded partition 0: .* in (\\d+) ms"
_TURN = re.compile(r'^ottla_loop_turn_max_seconds\{callback="(.*?)"\} (.*)$', re.MULTILINE)
_LOADED_AFTER_S = 15
"""Kafka has loaded by then: asking before would take CPU from it."""
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
    serde = _RecordSerde()
    for number in range(count):
        name = number % ids
        key = OffsetCommitKey(group=f"group-{name // 100}", topic="input", partition=name % 100)
        value = OffsetCommitValue(offset=number, metadata="", commit_timestamp=now_ms)
        yield serde.encode(CoordinatorRecord(key, value, 3))


def write_segment(path: Path, entries: Iterator[tuple[bytes, bytes | None]]) -> None:
    """Write a log's only segment; a record a batch, as coordinators write them."""
    for old in path.glob("0000*"):
        old.unlink()
    now_ms = int(time.time() * 1000)
    with (path / f"{0:020}.log").open("wb") as file:
        for offset, (key, value) in enumerate(entries):
            file.write(encode_batch([(now_ms, key, value, ())], base_offset=offset, leader_epoch=0))


def prepare(node: RealKafka, topic: str, records: int, ids: int) -> None:
    """Have Kafka create both topics, stop it, and write the log of one of them."""
    node.format()
    node.start()
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic("output")
        admin.alter_group_offsets("group-0", {TopicPartition("output", 0): 0})
    with Producer(bootstrap_servers=node.bootstrap, transactional_id="t") as producer:
        producer.init_transactions()
    node.stop()
    entries = transaction_states if topic == "__transaction_state" else offsets
    write_segment(node.log_dir / f"{topic}-0", entries(records, ids))


def measure_kafka(node: RealKafka, topic: str) -> float:
    """Start Kafka over the directory; return its milliseconds of loading."""
    port = free_port()
    remote = "com.sun.management.jmxremote"
    options = [f"-D{remote}.port={port}", f"-D{remote}.authenticate=false", f"-D{remote}.ssl=false"]
    java = [node.kafka.java, *HEAP.split(), "-cp", f"{node.kafka.libraries}/*"]
    process = subprocess.Popen(
        [*java, "-server", "-XX:+UseG1GC", *options, "kafka.Kafka", str(node.properties_file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    name = f"kafka.server:type={TOPICS[topic]}-coordinator-metrics"
    tool = [*java, "org.apache.kafka.tools.JmxTool", "--one-time", "--object-name", name]
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    asked = [*tool, "--attributes", "partition-load-time-max", "--jmx-url", url]
    deadline_s = time.monotonic() + _TIMEOUT_S
    time.sleep(_LOADED_AFTER_S)
    try:
        while time.monotonic() < deadline_s:
            told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
            value = told.strip().rpartition(",")[2]
            if re.fullmatch(r"[\d.]+", value):
                return float(value)
            time.sleep(2)
        raise SystemExit(f"Kafka's time cannot be read: {told}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def measure_ottla(node: RealKafka, topic: str) -> float:
    """Start Ottla over the directory; return its milliseconds of loading."""
    log, port = node.directory / "server.log", free_port()
    begin = len(log.read_text(errors="replace"))
    listener = f"metrics.listener=http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "ottla", "server-start", str(node.properties_file)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "--override", listener], stdout=output, stderr=output, cwd=node.directory
        )
    deadline_s = time.monotonic() + _TIMEOUT_S
    pattern = re.compile(_OTTLA % TOPICS[topic])
    try:
        while (found := pattern.search(log.read_text(errors="replace")[begin:])) is None:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"not loaded, see {log}")
            time.sleep(0.2)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            slowest = _TURN.search(page.read().decode())
        if slowest is not None:
            print(f"  slowest turn: {float(slowest[2]) * 1000:.1f} ms in {slowest[1]}", flush=True)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return float(found[1])


def main() -> None:
    """Run with command line arguments; print times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=999_999)
    parser.add_argument("--ids", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    kafka = find_kafka()
    for topic in TOPICS:
        with tempfile.TemporaryDirectory(prefix="ottla-loading-") as made:
            node = RealKafka(kafka, Path(made), ONE_PARTITION)
            prepare(node, topic, options.records, options.ids)
            best: dict[str, float] = {}
            for _ in range(options.runs):
                for measure in (measure_kafka, measure_ottla):
                    name, took_ms = measure.__name__, measure(node, topic)
                    print(f"{name} {topic}: {took_ms:.0f} ms", flush=True)
                    best[name] = min(took_ms, best.get(name, took_ms))
            ratio = best["measure_ottla"] / best["measure_kafka"]
            print(f"{topic}: Ottla / Kafka {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()

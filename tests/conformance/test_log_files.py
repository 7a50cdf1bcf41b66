"""Files of the log, both ways: Kafka reads ours, we read Kafka's, and the bytes are the same."""

from __future__ import annotations

import re
import shutil
from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.records.builder import encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.server.system.files import RealDirectory
from ottla.storage.batches import whole_batches
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_set.log_set import LogSet
from ottla.types import TopicPartition, Uuid
from tests.conformance.kafka import running_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka, RealKafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
TOPIC = "ledger"
NAME = f"{TOPIC}-0"
SEGMENT_BYTES = 1_048_576  # the least that Kafka takes
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)


def dump(kafka: Kafka, files: list[Path], *options: str) -> str:
    """Return what Kafka's dump tool says about files."""
    return kafka.run(DUMP, "--files", ",".join(map(str, files)), *options).stdout


def problems(text: str) -> list[str]:
    """Return the lines in which the dump tool finds fault."""
    pattern = r"(?i)mismatch|corrupt|error|invalid|not found|isvalid: false|fails"
    return [line for line in text.splitlines() if re.search(pattern, line)]


def finish(log: PartitionLog) -> None:
    """Close a log durably."""
    job = log.flushes.close()
    if job is not None:
        job.run()
        log.flushes.completed(job)
    log.release()


def written_by_us(directory: Path) -> PartitionLog:
    """Write a log of some segments with producers, transactions and two leaders."""
    log = PartitionLog.open(
        RealDirectory(str(directory), create=True),
        NAME,
        config=LogConfig(segment_bytes=60_000, index_interval_bytes=1000),
        now_ms=1_700_000_000_000,
        topic_id=Uuid(b"0123456789abcdef"),
    )
    now_ms = 1_700_000_000_000
    rng = Random(1)
    for number in range(120):
        now_ms += 10
        records = [(now_ms, b"%d" % n, rng.randbytes(200), ()) for n in range(5)]
        plain = encode_batch(records)
        log.writes.append_as_leader(memoryview(plain), leader_epoch=number // 60, now_ms=now_ms)
        producer_id = 5 + number % 3
        sent = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number // 3 * 5,
            transactional=producer_id > 5,
        )
        log.writes.append_as_leader(memoryview(sent), leader_epoch=number // 60, now_ms=now_ms)
        if producer_id > 5 and number % 4 == 3:
            marker = encode_end_txn_marker(
                commit=number % 8 == 3,
                coordinator_epoch=2,
                producer_id=producer_id,
                producer_epoch=0,
                timestamp=now_ms,
            )
            log.writes.append_as_leader(
                memoryview(marker),
                leader_epoch=number // 60,
                now_ms=now_ms,
                origin=AppendOrigin.COORDINATOR,
            )
    finish(log)
    return log


def test_kafka_reads_our_files_without_complaint(kafka: Kafka, tmp_path: Path) -> None:
    """The dump tool walks every kind of file that a closed log leaves."""
    log = written_by_us(tmp_path)
    assert len(log.segments) > 3
    directory = tmp_path / NAME
    logs = sorted(directory.glob("*.log"))
    text = dump(kafka, logs, "--deep-iteration")
    assert problems(text) == []
    assert len(re.findall(r"^baseOffset: ", text, re.MULTILINE)) > 240
    for pattern in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
        files = sorted(directory.glob(pattern))
        assert files, pattern
        assert problems(dump(kafka, files)) == [], pattern
    for pattern in ("*.index", "*.timeindex"):
        checked = dump(kafka, sorted(directory.glob(pattern)), "--index-sanity-check")
        assert problems(checked) == []
        assert checked.count("passed sanity check") == len(logs)


def test_kafka_reads_the_files_of_a_log_that_is_open(kafka: Kafka, tmp_path: Path) -> None:
    """Preallocated indexes with entries in them are what Kafka's own look like while open."""
    log = written_by_us(tmp_path)
    config = LogConfig(segment_bytes=10_000_000, index_interval_bytes=1000)
    log = PartitionLog.open(log.directory, NAME, config=config, now_ms=1, clean=True)
    for number in range(200):
        batch = encode_batch([(1_800_000_000_000 + number, b"k", b"x" * 900, ())])
        log.writes.append_as_leader(memoryview(batch), leader_epoch=1, now_ms=1_800_000_000_000)
    job = log.flushes.start()
    assert job is not None
    job.run()
    log.flushes.completed(job)
    active = log.segments.active.path("")
    assert log.directory.size(active + ".index") == 10_485_760
    assert log.directory.size(active + ".timeindex") == 10_485_756
    files = [tmp_path / (active + suffix) for suffix in (".index", ".timeindex")]
    for file in files:
        assert problems(dump(kafka, [file])) == []


@pytest.fixture(scope="module")
def stopped_kafka(
    kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RealKafka, Path]]:
    """Run Kafka, fill a topic with all kinds of batches, stop it; yield it and a copy."""
    directory = tmp_path_factory.mktemp("written-by-kafka")
    with running_kafka(kafka, directory) as node:
        node.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--create", "--topic", TOPIC, "--partitions", "1"),
            *("--config", f"segment.bytes={SEGMENT_BYTES}"),
        )
        fill(node)
        node.stop()
        copy = directory / "copy"
        shutil.copytree(node.log_dir, copy)
        yield node, copy


def fill(node: RealKafka) -> None:
    """Produce plain, idempotent and transactional records, some of them aborted."""
    from confluent_kafka import Producer

    rng = Random(2)
    plain = Producer(
        {"bootstrap.servers": node.bootstrap, "linger.ms": 0, "compression.type": "lz4"}
    )
    for _ in range(300):
        plain.produce(TOPIC, rng.randbytes(6000), b"key")
        plain.flush()
    idempotent = Producer(
        {"bootstrap.servers": node.bootstrap, "enable.idempotence": True, "linger.ms": 2}
    )
    for _ in range(2000):
        idempotent.produce(TOPIC, rng.randbytes(400))
    idempotent.flush()
    for number in range(6):
        sender = Producer(
            {"bootstrap.servers": node.bootstrap, "transactional.id": f"t{number % 2}"}
        )
        sender.init_transactions(30)
        sender.begin_transaction()
        for _ in range(20):
            sender.produce(TOPIC, rng.randbytes(300))
        sender.flush()
        if number % 3 == 0:
            sender.abort_transaction(30)
        else:
            sender.commit_transaction(30)


def open_set(directory: Path) -> LogSet:
    """Open a data directory as a node does."""
    logs = LogSet(
        [LogDirectory(str(directory), RealDirectory(str(directory)))],
        config_for=lambda _: CONFIG,
        rng=Random(3),
    )
    logs.load(1_900_000_000_000)
    return logs


def our_log(logs: LogSet) -> PartitionLog:
    """Return the topic's log."""
    log = logs.get(TopicPartition(TOPIC, 0))
    assert log is not None
    return log


def files_of(directory: Path) -> dict[str, bytes]:
    """Return name → content of a partition's files."""
    return {file.name: file.read_bytes() for file in sorted((directory / NAME).iterdir())}


def test_we_read_what_kafka_wrote(stopped_kafka: tuple[RealKafka, Path], tmp_path: Path) -> None:
    """A cleanly stopped data directory opens with the same content and is left the same."""
    directory = tmp_path / "data"
    shutil.copytree(stopped_kafka[1], directory)
    before = files_of(directory)
    logs = open_set(directory)
    assert logs.directories[0].had_clean_shutdown
    assert logs.previous_broker_epoch > 0
    assert logs.directories[0].directory_id
    log = our_log(logs)
    assert len(log.segments) >= 3
    raw = b"".join(content for name, content in before.items() if name.endswith(".log"))
    headers = whole_batches(raw)
    assert log.log_end_offset == headers[-1].last_offset + 1
    assert log.high_watermark == log.log_end_offset
    for header in headers[:: max(1, len(headers) // 200)]:
        data = log.reads.read(header.base_offset, header.size).records
        assert not isinstance(data, bytes | bytearray | memoryview)
        assert data.read() == raw[header.position : header.position + header.size]
    aborted = log.reads.read(0, 1, isolation=FetchIsolation.TXN_COMMITTED)
    assert aborted.aborted_transactions is not None
    logs.shutdown(7)
    after = files_of(directory)
    assert {name for name in before if before[name] != after.get(name)} == set()
    assert set(after) == set(before)


def test_recovery_rebuilds_what_kafka_wrote(
    stopped_kafka: tuple[RealKafka, Path], tmp_path: Path
) -> None:
    """Without its indexes, snapshots, checkpoints and marker all files come back byte for byte."""
    directory = tmp_path / "data"
    shutil.copytree(stopped_kafka[1], directory)
    before = files_of(directory)
    kept = (".log", "partition.metadata")
    for file in (directory / NAME).iterdir():
        if not file.name.endswith(kept):
            file.unlink()
    for file in directory.glob("*checkpoint"):
        if file.name != "bootstrap.checkpoint":
            file.unlink()
    (directory / ".kafka_cleanshutdown").unlink()
    logs = open_set(directory)
    logs.shutdown()
    after = files_of(directory)
    different = {name for name in before if before[name] != after.get(name)}
    different -= {name for name in different if name.endswith(".txnindex") and not before[name]}
    assert different == set()


def test_a_follower_writes_the_files_that_kafka_writes(
    stopped_kafka: tuple[RealKafka, Path], tmp_path: Path
) -> None:
    """The same batches appended one by one give the same segments, indexes and snapshots."""
    before = files_of(stopped_kafka[1])
    topic_id = Uuid.parse(before["partition.metadata"].decode().rpartition(": ")[2].strip())
    log = PartitionLog.open(
        RealDirectory(str(tmp_path), create=True),
        NAME,
        config=CONFIG,
        now_ms=1_900_000_000_000,
        topic_id=topic_id,
    )
    for name, content in before.items():
        if name.endswith(".log"):
            for header in whole_batches(content):
                data = content[header.position : header.position + header.size]
                log.writes.append_as_follower(data, leader_epoch=1 << 30, now_ms=1_900_000_000_000)
    finish(log)
    after = files_of(tmp_path)
    assert {name for name in before if before[name] != after.get(name)} == set()
    assert set(after) == set(before)


def test_kafka_takes_a_directory_that_we_wrote_to(stopped_kafka: tuple[RealKafka, Path]) -> None:
    """Kafka starts on its directory after we appended to it, and serves what we wrote."""
    node, _ = stopped_kafka
    logs = open_set(node.log_dir)
    log = our_log(logs)
    epoch = log.latest_epoch
    now_ms = 1_790_000_000_000
    for number in range(50):
        batch = encode_batch([(now_ms, b"ours-%d" % number, b"x" * 100, ())])
        log.writes.append_as_leader(memoryview(batch), leader_epoch=epoch, now_ms=now_ms)
    end = log.log_end_offset
    for each in logs:
        each.update_high_watermark(each.log_end_offset)
    logs.shutdown(logs.previous_broker_epoch)
    try:
        node.start()
        text = node.tool("org.apache.kafka.tools.GetOffsetShell", "--topic", TOPIC)
        assert f"{TOPIC}:0:{end}" in text
        text = node.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--topic", TOPIC, "--partition", "0", "--offset", str(end - 50)),
            *("--max-messages", "50", "--timeout-ms", "20000"),
            *(
                "--formatter-property",
                "print.key=true",
                "--formatter-property",
                "print.value=false",
            ),
        )
        assert text.split() == [f"ours-{number}" for number in range(50)]
    finally:
        node.stop()
    logs = open_set(node.log_dir)
    assert our_log(logs).log_end_offset == end
    logs.shutdown()

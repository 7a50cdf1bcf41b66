"""One log directory, used by Kafka 4.3.0 and by Ottla alternately."""

from __future__ import annotations

import json
import stat
import time
from typing import TYPE_CHECKING

import pytest

from ottla.cli.commands.storage import real_environment
from ottla.config.broker import parse_broker_config
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.raft.quorum_state import decode_quorum_state
from ottla.raft.snapshot import decode_snapshot
from ottla.records.builder import encode_batch
from ottla.server.node.format import FormatRequest, format_directories, read_meta_properties
from ottla.server.system.files import RealDirectory
from ottla.server.system.process import random_uuid
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.types import ZERO_UUID, Uuid
from tests.conformance.kafka import RealKafka
from tests.controller.harness import Harness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
DUMP = "org.apache.kafka.tools.DumpLogSegments"
METADATA = "__cluster_metadata-0"
STATIC, STANDALONE = "static", "standalone"


@pytest.fixture(params=[STATIC, STANDALONE])
def node(kafka: Kafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RealKafka]:
    """Prepare a node of real Kafka that is neither formatted nor started."""
    node = RealKafka(kafka, tmp_path, {})
    if request.param == STATIC:
        del node.properties["controller.quorum.bootstrap.servers"]
        node.properties["controller.quorum.voters"] = f"1@127.0.0.1:{node.controller_port}"
    node.write_properties()
    yield node
    node.kill()


def _format(node: RealKafka) -> None:
    config = parse_broker_config(node.properties)
    request = FormatRequest(cluster_id=str(random_uuid()), standalone=not config.voters)
    format_directories(config, request, real_environment(config, quiet=True))


def _open(node: RealKafka) -> Harness:
    """Start our controller on the node's directory."""
    directory = RealDirectory(str(node.log_dir))
    meta = read_meta_properties(directory)
    assert meta is not None
    assert meta.directory_id is not None
    harness = Harness(
        directory,
        cluster_id=meta.cluster_id,
        directory_id=meta.directory_id,
        now_ms=int(time.time() * 1000),
        **{name.replace(".", "_"): value for name, value in _quorum(node).items()},
    )
    marker = node.log_dir / ".kafka_cleanshutdown"
    if marker.exists():
        harness.broker_epoch = json.loads(marker.read_text())["brokerEpoch"]
    return harness.bring_up()


def _quorum(node: RealKafka) -> dict[str, str]:
    voters = f"1@127.0.0.1:{node.controller_port}"
    return {"controller.quorum.voters": node.properties.get("controller.quorum.voters", voters)}


def _close(harness: Harness) -> None:
    for _ in range(3):
        if harness.heartbeat(stop=True).should_shut_down:
            break
    harness.node.stop()


def _write(node: RealKafka, name: str, topic_id: Uuid) -> None:
    """Put five records into partition 0 of a topic."""
    now_ms = int(time.time() * 1000)
    log = PartitionLog.open(
        RealDirectory(str(node.log_dir)),
        f"{name}-0",
        config=LogConfig(),
        now_ms=now_ms,
        topic_id=topic_id,
    )
    records = [(now_ms, b"key", b"value-%d" % number, ()) for number in range(5)]
    log.writes.append_as_leader(memoryview(encode_batch(records)), leader_epoch=0, now_ms=now_ms)
    job = log.flushes.close()
    assert job is not None
    job.run()
    log.flushes.completed(job)
    log.release()


def _make_topics(node: RealKafka, harness: Harness) -> None:
    made = harness.create("made", 2, retention_ms="60000000", cleanup_policy="compact,delete")
    _write(node, "made", made.topic_id)
    harness.create("gone")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name="gone", topic_id=ZERO_UUID)],
        timeout_ms=1000,
    )
    harness.ask(request)


def test_a_fresh_directory_is_what_kafka_makes(kafka: Kafka, node: RealKafka) -> None:
    """Same files, same modes, same records as real kafka-storage writes for the same node."""
    _format(node)
    ours = _listing(node.log_dir)
    bootstrap = (node.log_dir / "bootstrap.checkpoint").read_bytes()
    other = RealKafka(kafka, node.directory / "theirs", {})
    other.directory.mkdir()
    other.properties = {**node.properties, "log.dirs": str(other.log_dir)}
    other.write_properties()
    flags = () if "controller.quorum.voters" in node.properties else ("--standalone",)
    cluster_id = str(random_uuid())
    arguments = ("format", "-t", cluster_id, "-c", str(other.properties_file), *flags)
    kafka.run("kafka.tools.StorageTool", *arguments)
    assert _listing(other.log_dir) == ours
    theirs = (other.log_dir / "bootstrap.checkpoint").read_bytes()
    assert decode_snapshot(bootstrap) == decode_snapshot(theirs)


def _listing(log_dir: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (
            str(path.relative_to(log_dir)),
            path.stat().st_mode & ~stat.S_IRWXO,  # Kafka's are for every user
            path.stat().st_size,
        )
        for path in log_dir.rglob("*")
        if path.is_file()
    )


def test_kafkas_dump_tool_reads_our_directory(kafka: Kafka, node: RealKafka) -> None:
    """Every batch of log, snapshot and bootstrap file is valid, every record is decoded."""
    _format(node)
    harness = _open(node)
    _make_topics(node, harness)
    snapshot_id = harness.node._runtime.snapshots.write()
    harness.run_turn()
    _close(harness)
    log_dir = node.log_dir / METADATA
    files = [log_dir / f"{0:020d}.log", node.log_dir / "bootstrap.checkpoint"]
    files += sorted(log_dir.glob("*.checkpoint"))
    text = kafka.run(
        DUMP, "--cluster-metadata-decoder", "--files", ",".join(map(str, files))
    ).stdout
    batches = [line for line in text.splitlines() if line.startswith("baseOffset:")]
    assert batches
    assert all(line.rstrip().endswith("isvalid: true") for line in batches)
    for expected in (
        '"type":"REMOVE_TOPIC_RECORD"',
        '"name":"retention.ms","value":"60000000"',
        '"type":"REGISTER_BROKER_RECORD","version":4',
        '"isr":[],"leader":-1,"eligibleLeaderReplicas":[1],"lastKnownElr":[1]',
        "LeaderChange",
        "SnapshotFooter",
        f"Snapshot end offset: {snapshot_id.offset}, epoch: 1",
    ):
        assert expected in text
    assert "Could not deserialize" not in text


def test_kafka_takes_over_from_us_and_we_from_kafka(node: RealKafka) -> None:
    """Real Kafka serves the topics we made and wrote, and we load what it made after that."""
    _format(node)
    harness = _open(node)
    _make_topics(node, harness)
    topic_id = harness.image.topics.topic_id("made")
    _close(harness)
    recovery_point = node.log_dir / METADATA / "recovery-point-offset-checkpoint"
    assert recovery_point.exists()  # a file that Kafka ignores
    node.start()
    described = node.tool("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", "made")
    assert f"TopicId: {topic_id}" in described
    assert "cleanup.policy=compact,delete" in described
    read = node.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", "made", "--partition", "0", "--offset", "earliest"),
        *("--max-messages", "5", "--timeout-ms", "10000"),
    )
    assert read.split() == [f"value-{number}" for number in range(5)]
    node.tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--create", "--topic", "by-kafka", "--partitions", "3"),
        *("--config", "retention.ms=1234"),
    )
    node.stop()
    assert recovery_point.exists()
    before = decode_quorum_state((node.log_dir / METADATA / "quorum-state").read_bytes())
    harness = _open(node)
    topics = harness.image.topics
    assert topics.topic_id("made") == topic_id
    assert "gone" not in topics.by_name
    assert len(topics.by_name["by-kafka"].partitions) == 3
    assert harness.image.configs.of(ConfigResourceType.TOPIC, "by-kafka") == {
        "retention.ms": "1234"
    }
    partition = topics.by_name["by-kafka"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 0)
    assert harness.node.quorum.leader_epoch == before.leader_epoch + 1
    _close(harness)

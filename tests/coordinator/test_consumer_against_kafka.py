"""One script on Kafka 4.3.0's group coordinator and on ours: the same answers and records.

Then each takes over the other's log, and both describe the same groups.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group import ConsumerGroupConfig, GroupCoordinatorConfig, records
from ottla.records.batches import iterate_batches
from tests.conformance.kafka import kafka_or_skip, running_kafka
from tests.coordinator.harness import World
from tests.coordinator.real_group_coordinator import RealWorld, ThroughTheWire, numbered
from tests.transcripts.consumer_group_commands import ConsumerTranscript

if TYPE_CHECKING:
    from ottla.types import Uuid

SCRIPT = Path(__file__).parent / "consumer.txt"
SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 2500,
    "group_min_session_timeout_ms": 500,
    "offset_metadata_max_bytes": 8,
}
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    **{name.replace("_", "."): str(value) for name, value in SETTINGS.items()},
}
QUIET_S = 1.0
"""Longer than any answer takes that does not wait for other members."""
GROUPS = "g,s,v0,v1,r,m,n,o,w,e,k,p,q"
QUESTIONS = (
    "list",
    f"describe group={GROUPS}",
    f"describe-consumer group={GROUPS}",
    "fetch group=g,m all=1",
)


class WorldWithUuids(World):
    """Member ids as long as Kafka's."""

    def _new_uuid(self) -> str:
        return f"00000000-0000-4000-8000-{super()._new_uuid():0>12}"

    def _new_member_id(self) -> str:
        return f"m{super()._new_uuid():0>21}"


@pytest.mark.conformance
@pytest.mark.timeout(240)
def test_same_answers_of_consumer_groups(tmp_path: Path) -> None:
    """Every command leaves the same answers and the same records, generated ids aside."""
    kafka = kafka_or_skip()
    with running_kafka(kafka, tmp_path, PROPERTIES) as node:
        real_world = RealWorld(node.port, quiet_s=QUIET_S)
        try:
            real_world.create_topics("t", "u")
            topics = dict(real_world.topics.ids)
            ours = _ours(WorldWithUuids, topics)
            differences = _differences(ours, ConsumerTranscript(real_world))  # type: ignore[arg-type]  # stands in
        finally:
            real_world.coordinator.close()
        assert not differences, "\n".join(differences)

        node.stop()
        directory = node.log_dir / "__consumer_offsets-0"
        (segment,) = directory.glob("*.log")
        written_by_kafka = segment.read_bytes()
        written_by_us = b"".join(ours.world.log.batches[0])
        assert _records(written_by_us, ours) == _records(written_by_kafka, ours)

        node.start()
        assert _answers(_loaded(written_by_kafka, topics)) == _answers_of_kafka(node.port, topics)

        node.stop()
        for path in directory.iterdir():
            if path.name not in ("partition.metadata", "leader-epoch-checkpoint"):
                path.unlink()
        (directory / "leader-epoch-checkpoint").unlink()
        (directory / "00000000000000000000.log").write_bytes(written_by_us)
        node.start()
        assert _answers(_loaded(written_by_us, topics)) == _answers_of_kafka(node.port, topics)


def _ours(kind: type[World], topics: dict[str, Uuid]) -> ConsumerTranscript:
    config = GroupCoordinatorConfig(offsets_topic_num_partitions=1, **SETTINGS)
    world = kind(config)
    world.topics.ids = dict(topics)
    world.consumer_config = ConsumerGroupConfig(assignment_interval_ms=0)
    world.leader_epoch = -1
    made = ConsumerTranscript(world.elect())
    wire: Any = ThroughTheWire(world.coordinator)
    world.coordinator = wire
    return made


def _loaded(data: bytes, topics: dict[str, Uuid]) -> ConsumerTranscript:
    """Return our coordinator after it has loaded a segment."""
    world = World(GroupCoordinatorConfig(offsets_topic_num_partitions=1, **SETTINGS))
    world.topics.ids = dict(topics)
    for batch in iterate_batches(memoryview(data)):
        world.log.batches.setdefault(0, []).append(bytes(batch.buffer))
    world.log.high_watermarks[0] = world.log.end_offset(0)
    return ConsumerTranscript(world.elect())


def _records(data: bytes, shown: ConsumerTranscript) -> list[str]:
    """Return all records as text, in order within their batches' sorted lines."""
    lines = []
    for batch in iterate_batches(memoryview(data)):
        for record in batch.records():
            assert record.key is not None
            decoded = records.decode(record.key, record.value)
            assert decoded is not None
            lines.append(shown._shown_record(decoded.key, decoded.value))
    return numbered(lines, {})


def _answers(transcript: ConsumerTranscript) -> list[list[str]]:
    seen: dict[str, str] = {}
    traces = [transcript.run(question) for question in QUESTIONS]
    return [numbered([t for t in trace if not t.startswith("log ")], seen) for trace in traces]


def _answers_of_kafka(port: int, topics: dict[str, Uuid]) -> list[list[str]]:
    world = RealWorld(port)
    world.topics.ids = dict(topics)
    try:
        world.wait_for_coordinator()
        return _answers(ConsumerTranscript(world))  # type: ignore[arg-type]  # stands in for World
    finally:
        world.coordinator.close()


def _differences(ours: ConsumerTranscript, real: ConsumerTranscript) -> list[str]:
    found = []
    seen_ours: dict[str, str] = {}
    seen_real: dict[str, str] = {}
    for line in SCRIPT.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        expected = numbered(real.run(line), seen_real)
        trace = [text for text in ours.run(line) if not text.startswith("log ")]
        actual = numbered(trace, seen_ours)
        if expected != actual:
            found.append(f"{line}\n  Kafka: {expected}\n  ours:  {actual}")
    return found

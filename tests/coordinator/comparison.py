"""A script on Kafka 4.3.0's group coordinator and on ours, then each on the other's log.

Kafka: none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from ottla.coordinator.group.shard import _RecordSerde
from ottla.records.batches import iterate_batches
from tests.conformance.kafka import kafka_or_skip, running_kafka
from tests.coordinator.harness import World
from tests.coordinator.real_group_coordinator import (
    ANSWER_LIMIT_S,
    RealWorld,
    ThroughTheWire,
    numbered,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.types import Uuid
    from tests.transcripts.consumer_group_commands import ConsumerTranscript

SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 2500,
    "group_min_session_timeout_ms": 500,
    "offset_metadata_max_bytes": 8,
}
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.size": "3",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.num.standby.replicas": "1",
    "group.streams.max.standby.replicas": "2",
    **{name.replace("_", "."): str(value) for name, value in SETTINGS.items()},
}

_ANSWER_LIMIT_S = 10.0


class WorldWithUuids(World):
    """Member ids as long as Kafka's, and the settings of PROPERTIES."""

    def __init__(self, topics: dict[str, Uuid], counts: dict[str, int]) -> None:
        super().__init__(GroupCoordinatorConfig(offsets_topic_num_partitions=1, **SETTINGS))
        self.topics.ids = dict(topics)
        self.topics.counts = counts
        self.consumer_config = ConsumerGroupConfig(assignment_interval_ms=0)
        self.share_config = ShareGroupConfig(assignment_interval_ms=0, max_size=3)
        self.streams_config = StreamsGroupConfig(
            assignment_interval_ms=0, initial_rebalance_delay_ms=0, standby_replicas=1
        )

    def _new_uuid(self) -> str:
        return f"00000000-0000-4000-8000-{super()._new_uuid():0>12}"

    def _new_member_id(self) -> str:
        return f"m{super()._new_uuid():0>21}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A script with its commands, the questions after it, and the topics with their partitions."""

    script: Path
    commands: type[ConsumerTranscript]
    questions: tuple[str, ...]
    topics: dict[str, int]
    quiet_s: float = _ANSWER_LIMIT_S
    """Longer than any answer takes that does not wait for other members."""

    def check(self, directory: Path) -> None:
        """Compare answers and records; then each takes over the other's log."""
        with running_kafka(kafka_or_skip(), directory, PROPERTIES) as node:
            real_world = RealWorld(node.port, quiet_s=self.quiet_s)
            try:
                real_world.create_topics(**self.topics)
                topics = dict(real_world.topics.ids)
                ours = self._ours(topics)
                differences = self._differences(ours, self._real(real_world))
            finally:
                real_world.coordinator.close()
            assert not differences, "\n".join(differences)

            node.stop()
            log_dir = node.log_dir / "__consumer_offsets-0"
            (segment,) = log_dir.glob("*.log")
            written_by_kafka = segment.read_bytes()
            written_by_us = b"".join(ours.world.log.batches[0])
            by_kafka = Counter(_records(written_by_kafka, ours))
            by_us = Counter(_records(written_by_us, ours))
            assert by_us == by_kafka, f"Kafka: {by_kafka - by_us}\nours: {by_us - by_kafka}"

            node.start()
            expected = self._answers_of_kafka(node.port, topics)
            found = self._answers(self._loaded(written_by_kafka, topics))
            assert found == expected, f"Kafka: {expected}\nours: {found}"

            node.stop()
            for path in log_dir.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            (log_dir / "00000000000000000000.log").write_bytes(written_by_us)
            node.start()
            expected = self._answers_of_kafka(node.port, topics)
            found = self._answers(self._loaded(written_by_us, topics))
            assert found == expected, f"Kafka: {expected}\nours: {found}"

    def _real(self, world: RealWorld) -> ConsumerTranscript:
        stands_in: Any = world
        return self.commands(stands_in)

    def _ours(self, topics: dict[str, Uuid]) -> ConsumerTranscript:
        world = WorldWithUuids(topics, self.topics)
        world.leader_epoch = -1
        made = self.commands(world.elect())
        wire: Any = ThroughTheWire(world.coordinator)
        world.coordinator = wire
        return made

    def _loaded(self, data: bytes, topics: dict[str, Uuid]) -> ConsumerTranscript:
        """Return our coordinator after it has loaded a segment."""
        world = WorldWithUuids(topics, self.topics)
        for batch in iterate_batches(memoryview(data)):
            world.log.batches.setdefault(0, []).append(bytes(batch.buffer))
        world.log.high_watermarks[0] = world.log.end_offset(0)
        made = self.commands(world.elect())
        wire: Any = ThroughTheWire(world.coordinator)
        world.coordinator = wire
        return made

    def _answers(self, transcript: ConsumerTranscript) -> list[list[str]]:
        seen: dict[str, str] = {}
        traces = [transcript.run(question) for question in self.questions]
        return [numbered([t for t in trace if not t.startswith("log ")], seen) for trace in traces]

    def _answers_of_kafka(self, port: int, topics: dict[str, Uuid]) -> list[list[str]]:
        world = RealWorld(port, quiet_s=ANSWER_LIMIT_S)
        world.topics.ids = dict(topics)
        try:
            world.wait_for_coordinator()
            return self._answers(self._real(world))
        finally:
            world.coordinator.close()

    def _differences(self, ours: ConsumerTranscript, real: ConsumerTranscript) -> list[str]:
        found = []
        seen_ours: dict[str, str] = {}
        seen_real: dict[str, str] = {}
        for line in self.script.read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            ours.world.coordinator.answered[:] = [0]  # type: ignore[attr-defined] # a stand-in
            trace = [text for text in ours.run(line) if not text.startswith("log ")]
            actual = numbered(trace, seen_ours)
            real.world.coordinator.expect(ours.world.coordinator.answered)  # type: ignore[attr-defined] # a stand-in
            expected = numbered(real.run(line), seen_real)
            if expected != actual:
                found.append(f"{line}\n  Kafka: {expected}\n  ours:  {actual}")
        return found


def _records(data: bytes, shown: ConsumerTranscript) -> list[str]:
    """Return all records as text, in order within their batches' sorted lines."""
    lines = []
    for batch in iterate_batches(memoryview(data)):
        for record in batch.records():
            assert record.key is not None
            decoded = _RecordSerde().decode(record.key, record.value)
            assert decoded is not None
            lines.append(shown._shown_record(decoded.key, decoded.value))
    return numbered(lines, {})

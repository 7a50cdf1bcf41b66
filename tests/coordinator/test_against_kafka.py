"""The same requests to Kafka 4.3.0's group coordinator and to ours: the same answers.

And the other way round: what ours writes, Kafka's dump tool reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.group import GroupCoordinatorConfig
from ottla.records.batches import iterate_batches
from tests.conformance.kafka import kafka_or_skip, running_kafka
from tests.coordinator.harness import World
from tests.coordinator.real_group_coordinator import (
    ANSWER_LIMIT_S,
    RealWorld,
    ThroughTheWire,
    numbered,
)
from tests.transcripts.classic_group_commands import Transcript

SCRIPT = Path(__file__).parents[1] / "transcripts" / "real_groups" / "classic.txt"
SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 500,
    "group_min_session_timeout_ms": 500,
    "group_max_size": 3,
    "offset_metadata_max_bytes": 8,
}


class WorldWithUuids(World):
    """Member ids as long as Kafka's."""

    def _new_uuid(self) -> str:
        return f"00000000-0000-4000-8000-{super()._new_uuid():0>12}"


def _properties() -> dict[str, str]:
    names = {key: key.replace("_", ".") for key in SETTINGS}
    return {"offsets.topic.num.partitions": "1"} | {names[k]: str(v) for k, v in SETTINGS.items()}


QUESTIONS = (
    "list",
    "describe group=g,s,p,q,o,f,simple,fresh",
    "fetch group=g,simple,q all=1",
)


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_same_answers(tmp_path: Path) -> None:
    """Every command of the script leaves the same trace on both, member ids aside.

    Then each takes the other's log over, and both tell the same of it.
    """
    kafka = kafka_or_skip()
    ours = _ours()
    with running_kafka(kafka, tmp_path, _properties()) as node:
        real_world = RealWorld(node.port)
        try:
            real_world.create_topics(t=2, u=2)
            differences = _differences(ours, Transcript(real_world))  # type: ignore[arg-type]  # stands in
        finally:
            real_world.coordinator.close()
        assert not differences, "\n".join(differences)

        node.stop()
        directory = node.log_dir / "__consumer_offsets-0"
        written_by_kafka = _segment(directory).read_bytes()
        node.start()
        assert _answers_of(_loaded(written_by_kafka)) == _answers_of_kafka(node.port)

        node.stop()
        for path in directory.iterdir():
            if path.name not in ("partition.metadata", "leader-epoch-checkpoint"):
                path.unlink()
        (directory / "leader-epoch-checkpoint").unlink()
        written_by_us = b"".join(ours.world.log.batches[0])
        (directory / "00000000000000000000.log").write_bytes(written_by_us)
        node.start()
        assert _answers_of(_loaded(written_by_us)) == _answers_of_kafka(node.port)


def _ours() -> Transcript:
    config = GroupCoordinatorConfig(offsets_topic_num_partitions=1, **SETTINGS)
    world = WorldWithUuids(config)
    world.leader_epoch = -1
    ours = Transcript(world.elect())
    wire: Any = ThroughTheWire(world.coordinator)
    world.coordinator = wire
    return ours


def _segment(directory: Path) -> Path:
    (segment,) = directory.glob("*.log")
    return segment


def _loaded(data: bytes) -> Transcript:
    """Return our coordinator after it has loaded a segment."""
    world = World(GroupCoordinatorConfig(offsets_topic_num_partitions=1, **SETTINGS))
    for batch in iterate_batches(memoryview(data)):
        world.log.batches.setdefault(0, []).append(bytes(batch.buffer))
    world.log.high_watermarks[0] = world.log.end_offset(0)
    return Transcript(world.elect())


def _answers_of(transcript: Transcript) -> list[list[str]]:
    seen: dict[str, str] = {}
    traces = [transcript.run(question) for question in QUESTIONS]
    return [numbered([t for t in trace if not t.startswith("log ")], seen) for trace in traces]


def _answers_of_kafka(port: int) -> list[list[str]]:
    world = RealWorld(port, quiet_s=ANSWER_LIMIT_S)  # each question is answered
    try:
        world.wait_for_coordinator()
        return _answers_of(Transcript(world))  # type: ignore[arg-type]  # stands in for World
    finally:
        world.coordinator.close()


def _differences(ours: Transcript, real: Transcript) -> list[str]:
    found = []
    seen_ours: dict[str, str] = {}
    seen_real: dict[str, str] = {}
    for line in SCRIPT.read_text().splitlines():
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


@pytest.mark.conformance
def test_dump_tool_reads_what_we_write(tmp_path: Path) -> None:
    """kafka-dump-log --offsets-decoder shows our groups and offsets with nothing unknown."""
    kafka = kafka_or_skip()
    ours = Transcript()
    for line in (
        "join a instance=i1",
        "advance 3000",
        "sync a instance=i1 assign=a:A",
        "commit a instance=i1 offset=42 metadata=hello epoch=3",
        "commit s generation=-1 group=simple offset=7 version=4 retention=1000",
        "delete group=simple",
    ):
        ours.run(line)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(ours.world.log.batches[0]))
    dumped = kafka.run(
        "org.apache.kafka.tools.DumpLogSegments",
        "--offsets-decoder", "--print-data-log", "--deep-iteration", "--files", str(path),
    ).stdout  # fmt: skip
    payloads = [line.partition("key: ")[2] for line in dumped.splitlines() if "key: {" in line]
    assert len(payloads) == 6, dumped
    assert all("isvalid: true" in line for line in dumped.splitlines() if "isvalid" in line)
    group = '{"type":"2","data":{"group":"g"}}'
    offset = '{"type":"1","data":{"group":"%s","topic":"t","partition":0}}'
    assert payloads[0].startswith(f'{group} payload: {{"version":"3","data":{{"protocolType":""')
    assert '"generation":1,"protocol":"range","leader":"i1-1"' in payloads[1]
    assert '"groupInstanceId":"i1"' in payloads[1]
    assert payloads[2].startswith(offset % "g" + ' payload: {"version":"4","data":{"offset":42')
    assert '"leaderEpoch":3' in payloads[2]
    assert '"topicId":' in payloads[2]
    assert '"version":"1"' in payloads[3]
    assert payloads[4] == offset % "simple" + " payload: <DELETE>"
    assert payloads[5].endswith("payload: <DELETE>")

"""Moves between log directories: the same of real Kafka and Ottla, and of one after the other."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Consumer, NewTopic, Producer, TopicPartition
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.blocking import Admin
from ottla.protocol.apis.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from tests.conformance.applied import wait_until_applied
from tests.conformance.directories.alternating import AlternatingNode
from tests.conformance.pair import Speaker
from tests.conformance.tool_pairs import Said, our_tool
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka
    from tests.conformance.tool_pairs import ToolJvm

pytestmark = pytest.mark.conformance
FEATURES = "group.version=0,share.version=0,streams.version=0"
RECORDS = 3000
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
Directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir


class Node(AlternatingNode):
    """A node with two log directories."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        directory.mkdir()
        self.paths = [str(directory / "one"), str(directory / "two")]
        more = {"log.dirs": ",".join(self.paths), "log.segment.delete.delay.ms": "1000"}
        super().__init__(kafka, directory, {**more, "log.dir.failure.timeout.ms": "1000"})
        features = [part for one in FEATURES.split(",") for part in ("--feature", one)]
        self.format(*features)

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            yield admin

    def place(self, partition: TopicPartition) -> tuple[str | None, str | None]:
        """Return the directory of a replica, and the one it moves to."""
        with self.admin() as admin:
            found = admin.describe_replica_log_dirs([(partition, 1)])[partition, 1]
        return found.current_path, found.future_path

    def wait_for(self, partition: TopicPartition, *place: str | None) -> None:
        wait_for(lambda: self.place(partition) == place, problem=f"{partition} is not at {place}")

    def throttle(self, rate: str | None) -> None:
        broker = ConfigResource(ResourceType.BROKER, "1")
        with self.admin() as admin:
            assert admin.alter_configs({broker: {THROTTLE: rate}})[broker] is None
        wait_until_applied(Speaker(self.bootstrap).ask)

    def other(self, path: str | None) -> str:
        assert path is not None
        return self.paths[1 - self.paths.index(path)]

    def fill(self, topic: str) -> TopicPartition:
        """Create a topic and put records into it."""
        with self.admin() as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send(topic, value=_value(number), partition=0)
                if number % 100 == 0:
                    producer.flush()
        return TopicPartition(topic, 0)

    def check(self, partition: TopicPartition) -> None:
        """All records are there, in order, once."""
        values: list[bytes] = []
        with Consumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            deadline = time.monotonic() + 60
            while len(values) < RECORDS and time.monotonic() < deadline:
                values += [bytes(one.value or b"") for one in consumer.poll(timeout=1.0)]
        assert values == [_value(number) for number in range(RECORDS)]


def _value(number: int) -> bytes:
    return b"%d" % number + b"." * 300


@pytest.fixture(scope="module")
def nodes(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    """Run a node of each kind."""
    made = {kind: Node(kafka, tmp_path_factory.mktemp(kind) / "n") for kind in ("kafka", "ottla")}
    try:
        for kind, node in made.items():
            node.run_as(kind)
        yield made
    finally:
        for node in made.values():
            node.kill()


def _moves(*moves: tuple[str, str, int]) -> AlterReplicaLogDirsRequest:
    topic = Directory.AlterReplicaLogDirTopic
    return AlterReplicaLogDirsRequest(
        dirs=[
            Directory(path=path, topics=[topic(name=name, partitions=[index])])
            for path, name, index in moves
        ]
    )


def _codes(node: Node, version: int, *moves: tuple[str, str, int]) -> list[Any]:
    answer: Any = Speaker(node.bootstrap).ask(_moves(*moves), version)
    return sorted(
        (topic.topic_name, one.partition_index, one.error_code)
        for topic in answer.results
        for one in topic.partitions
    )


def _answers(node: Node) -> list[Any]:
    """Ask a node the same as another; return all answers, without paths and sizes of disks."""
    partition = node.fill("answers")
    current, _ = node.place(partition)
    there = node.other(current)
    assert current is not None
    found: list[Any] = []
    for version in (1, 2):
        found += [
            _codes(node, version),
            _codes(node, version, (current, "answers", 0)),
            _codes(node, version, ("/nowhere", "answers", 0)),
            _codes(node, version, (there, "answers", 7), (there, "absent", 0)),
            _codes(node, version, (there, "x" * 249, 0)),
            _codes(node, version, ("/nowhere", "absent", 0), (there, "absent", 0)),
        ]
    node.throttle("100")
    found.append(_codes(node, 2, (there, "answers", 0)))
    time.sleep(0.5)
    found += [_described(node, version, current) for version in range(1, 6)]
    found.append(_codes(node, 2, (current, "answers", 0)))  # cancelled
    found.append(_described(node, 5, current))
    with node.admin() as admin:
        broker = ConfigResource(ResourceType.BROKER, "1")
        assert admin.alter_configs({broker: {"cordoned.log.dirs": there}})[broker] is None
        wait_until_applied(Speaker(node.bootstrap).ask)
        found.append(_codes(node, 2, (there, "answers", 0), (current, "answers", 1)))
        found.append(_described(node, 5, current))
        assert admin.alter_configs({broker: {"cordoned.log.dirs": None}})[broker] is None
    node.throttle(None)
    found.append(_codes(node, 2, (there, "later", 0)))
    node.fill("later")
    found.append(node.place(TopicPartition("later", 0)) == (there, None))
    found.append(_codes(node, 2, (there, "answers", 0)))
    node.wait_for(partition, there, None)
    found.append(_described(node, 5, there))
    node.check(partition)
    return found


def _described(node: Node, version: int, first: str) -> list[Any]:
    """Return what DescribeLogDirs says of a topic; the lag of a copy is all or some."""
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(topics=[topic(topic="answers", partitions=[0])])
    answer: Any = Speaker(node.bootstrap).ask(request, version)
    return sorted(
        (
            one.log_dir == first,
            one.error_code,
            one.is_cordoned,
            one.total_bytes > 0,
            [
                (topic.name, part.partition_index, part.is_future_key)
                for topic in one.topics
                for part in topic.partitions
            ],
        )
        for one in answer.results
    )


def test_answers_are_those_of_kafka(nodes: dict[str, Node]) -> None:
    """Refusals, a throttled move as DescribeLogDirs shows it, its cancel, a cordoned directory."""
    theirs, ours = _answers(nodes["kafka"]), _answers(nodes["ottla"])
    assert theirs == ours


def _story(node: Node, run: Callable[[str, list[str]], Said], topic: str) -> list[Any]:
    """Move a replica with the tool; return what it printed at each step, without names."""
    partition = node.fill(topic)
    current, _ = node.place(partition)
    there = node.other(current)
    plans = node.directory / f"{topic}.json", node.directory / f"{topic}-back.json"
    for plan, path in zip(plans, (there, current), strict=True):
        entry = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [path]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    said: list[Any] = []

    def call(action: str, plan: Path, *flags: str) -> Said:
        arguments = [f"--{action}", "--reassignment-json-file", str(plan), *flags]
        result = run("reassign-partitions", ["--bootstrap-server", node.bootstrap, *arguments])
        wait_until_applied(Speaker(node.bootstrap).ask)
        out = [
            line.replace(topic, "TOPIC").replace(there, "THERE").replace(str(current), "CURRENT")
            for line in result.out
        ]
        said.append((action, out, result.status))
        return result

    call("execute", plans[0], "--replica-alter-log-dirs-throttle", "100")
    time.sleep(0.5)
    call("verify", plans[0])
    call("verify", plans[1], "--preserve-throttles")
    call("execute", plans[0], "--throttle", "1000", "--timeout", "500")
    call("cancel", plans[0], "--preserve-throttles")
    call("verify", plans[0], "--preserve-throttles")
    call("cancel", plans[0])
    node.throttle(None)
    call("execute", plans[0])
    node.wait_for(partition, there, None)
    call("verify", plans[0])
    arguments = ["--bootstrap-server", node.bootstrap, "--describe", "--topic-list", topic]
    result = run("log-dirs", arguments)
    (described,) = json.loads(result.out[-1])["brokers"]
    said += [
        sorted(
            (
                one["logDir"] == there,
                [
                    (part["partition"] == f"{topic}-0", part["offsetLag"], part["isFuture"])
                    for part in one["partitions"]
                ],
            )
            for one in described["logDirs"]
        )
    ]
    plans[0].write_text(plans[0].read_text().replace(there, "/nowhere"))
    call("execute", plans[0])
    call("verify", plans[0])
    node.check(partition)
    return said


def test_tools_say_the_same(nodes: dict[str, Node], tool_jvm: ToolJvm) -> None:
    """Kafka's tool and ours, each with Kafka's node and ours."""
    told = [
        _story(node, run, name)
        for node in nodes.values()
        for run, name in ((tool_jvm.run, "javas"), (our_tool, "oours"))
    ]
    assert told[0] == told[1]
    assert told[0] == told[2]
    assert told[0] == told[3]


@pytest.mark.parametrize(("first", "second"), [("kafka", "ottla"), ("ottla", "kafka")])
def test_a_move_is_continued_by_the_other(
    kafka: Kafka, tmp_path: Path, first: str, second: str
) -> None:
    """One is killed during a move; the other ends it, and the first opens the directories again."""
    node = Node(kafka, tmp_path / "n")
    try:
        node.run_as(first)
        partition = node.fill("moving")
        current, _ = node.place(partition)
        there = node.other(current)
        node.throttle("100")
        assert _codes(node, 2, (there, "moving", 0)) == [("moving", 0, 0)]
        node.wait_for(partition, current, there)
        time.sleep(1)
        node.kill()
        node.run_as(second)
        node.throttle(None)
        node.wait_for(partition, there, None)
        node.check(partition)
        node.kill()
        node.run_as(first)
        node.wait_for(partition, there, None)
        node.check(partition)
    finally:
        node.kill()

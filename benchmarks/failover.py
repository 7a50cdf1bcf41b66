"""How long producers wait after a node of three is killed, until acks=all acknowledges a record.

    python benchmarks/failover.py --rounds 20 [--client confluent] [--slow] [--libs DIR]

Two rows: the leader of the partition is killed, and the active controller, which leads it too.
Nodes are combined, with default timeouts. --slow switches broker.failure.detection.enable off,
which gives Kafka's timing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ottla
from ottla import NewTopic, TopicPartition
from ottla.errors import KafkaError
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster, Node

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "kept"
LIMIT_S = 60.0


class OttlaProducer:
    """The native producer, one record at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = ottla.Producer(bootstrap_servers=bootstrap, acks="all")

    def send(self) -> None:
        """Send a record; return when it is acknowledged."""
        self._producer.send(TOPIC, b"value").result(LIMIT_S)


class ConfluentProducer:
    """librdkafka's producer."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})

    def send(self) -> None:
        """Send a record; return when it is acknowledged."""
        errors: list[Any] = []
        self._producer.produce(TOPIC, b"value", on_delivery=lambda error, _: errors.append(error))
        self._producer.flush(LIMIT_S)
        if errors != [None]:
            raise TimeoutError(str(errors))


def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s:
        with suppress(KafkaError, OSError):
            if condition():
                return
        time.sleep(0.05)
    raise TimeoutError


class Rounds:
    """A cluster whose nodes are killed one after the other."""

    def __init__(self, cluster: Cluster, client: str) -> None:
        self._cluster = cluster
        self._make: Callable[[str], Any] = OttlaProducer if client == "ottla" else ConfluentProducer

    def _places(self) -> tuple[int, int, int]:
        """Return the partition's leader, the size of its ISR, and the active controller."""
        with ottla.Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            topic = admin.describe_topics([TOPIC])[TOPIC]
            quorum = admin.describe_metadata_quorum()
        if isinstance(topic, KafkaError):
            raise topic
        partition = topic.partitions[0]
        leader = -1 if partition.leader is None else partition.leader.node_id
        return leader, len(partition.isr), quorum.leader_id

    def _victim(self, *, is_controller: bool) -> Node:
        """Return the leader, moved onto the active controller or off it."""
        until(lambda: self._places()[1] == 3)
        leader, _, active = self._places()
        if (leader == active) is not is_controller:
            target = active if is_controller else next(n for n in (1, 2, 3) if n != active)
            others = [number for number in (1, 2, 3) if number != target]
            with ottla.Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
                admin.alter_partition_reassignments({TopicPartition(TOPIC, 0): [target, *others]})
                until(lambda: not admin.list_partition_reassignments())
                with suppress(KafkaError):
                    admin.elect_leaders(partitions=[TopicPartition(TOPIC, 0)])
            until(lambda: self._places()[:2] == (target, 3))
        return self._cluster.node(self._places()[0])

    def run(self, count: int, *, is_controller: bool) -> list[float]:
        """Return the seconds of each round."""
        found = []
        for _ in range(count):
            victim = self._victim(is_controller=is_controller)
            producer = self._make(self._cluster.bootstrap)
            for _ in range(20):
                producer.send()
            began_s = time.monotonic()
            victim.kill()
            producer.send()
            found.append(time.monotonic() - began_s)
            victim.start()
            until(lambda: victim.is_ready)  # noqa: B023 - awaited in the same round
        return found


def main() -> None:
    """Run the rounds and print a line for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--client", choices=["ottla", "confluent"], default="ottla")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--libs", type=Path, help="of real Kafka, which then runs instead")
    options = parser.parse_args()
    kafka = None
    if options.libs:
        from tests.conformance.kafka import Kafka

        kafka = Kafka(options.libs, Path(tempfile.gettempdir()))
    settings = {
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        **({"broker.failure.detection.enable": "false"} if options.slow else {}),
    }
    with tempfile.TemporaryDirectory() as made:
        members = (KAFKA if options.libs else OTTLA,) * 3
        cluster = Cluster(Path(made), members, kafka, has_links=False)
        cluster.format(dict.fromkeys((1, 2, 3), settings))
        cluster.start()
        try:
            measure(cluster, options)
        finally:
            cluster.kill()


def measure(cluster: Cluster, options: argparse.Namespace) -> None:
    """Create the topic and print both rows."""
    until(lambda: all(one.is_ready for one in cluster.nodes))
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, partitions=1, replication_factor=3)])
    rounds = Rounds(cluster, options.client)
    for name, is_controller in (("leader killed", False), ("controller killed", True)):
        found = sorted(rounds.run(options.rounds, is_controller=is_controller))
        p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
        print(
            f"{name}: p50 {statistics.median(found):.2f} s, p99 {p99:.2f} s, "
            f"min {found[0]:.2f} s, {len(found)} rounds"
        )


if __name__ == "__main__":
    main()

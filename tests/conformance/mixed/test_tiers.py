"""One tier of a cluster with a broker of each kind: Ottla's directory store, Kafka's test storage.

Both write and read one `__remote_log_metadata`. Kafka: RemoteLogManager, LocalTieredStorage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from ottla.storage.remote.managers.directory import ROOT
from ottla.storage.remote.partition_segments import PartitionSegments
from ottla.storage.remote.records import decode_remote_metadata
from ottla.storage.remote.segment import SegmentState
from tests.conformance.clusters.load import wait_for
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster
from tests.conformance.mixed.takeover import OTHER, SETTINGS, Coordinators
from tests.conformance.mixed.test_two_brokers import SELECTOR, answer, fetch
from tests.conformance.tiers.tiered_kafka import tier_properties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.storage.remote.segment import RemoteSegment
    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
CONFIGS = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1048576",
    "file.delete.delay.ms": "0",
}
COUNT = 350
"""Records of 10 KB: three segments and the begin of the next."""
NODES = pytest.mark.parametrize("first", [1, 2], ids=["ottla-first", "kafka-first"])


class Tiered:
    """A running pair of brokers, and what was written to its topics."""

    def __init__(self, cluster: Cluster, tier: Path, admin: Admin) -> None:
        self.cluster = cluster
        self.tier = tier
        self.admin = admin
        self.written: dict[str, list[bytes]] = {}

    def create(self, topic: str, *replicas: int) -> None:
        """Create a tiered topic of one partition."""
        made = self.admin.create_topics(
            [NewTopic(topic, assignments={0: list(replicas)}, configs=CONFIGS)]
        )
        assert not isinstance(made[topic], Exception), made

    def write(self, topic: str) -> None:
        """Produce some segments to the leader."""
        written = self.written.setdefault(topic, [])
        values = [b"%010d" % number * 1000 for number in range(len(written), len(written) + COUNT)]
        with Producer(bootstrap_servers=self.cluster.bootstrap, acks="all") as producer:
            for value in values:
                producer.send(topic, value, partition=0)
        written += values

    def wait_until_tiered(self, topic: str, leader: int) -> None:
        """Wait until the leader has only its newest segments on its disk."""
        name = f"{topic}-0"

        def is_dropped() -> bool:
            logs = sorted((self.cluster.node(leader).directory / "data" / name).glob("*.log"))
            return bool(logs) and int(logs[0].stem) > len(self.written[topic]) - 2 * COUNT // 3

        wait_for(is_dropped, f"{name} stays on the disk of node {leader}")

    def wait_until_copied(self, topic: str, leader: int) -> None:
        """Wait until the tier has all but the newest segment: the next leader copies nothing."""
        self.wait_until_tiered(topic, leader)
        logs = (self.cluster.node(leader).directory / "data" / f"{topic}-0").glob("*.log")
        newest = max(int(path.stem) for path in logs)
        wait_for(
            lambda: max(one.end_offset for one in self.segments(topic)) == newest - 1,
            f"segments of {topic} are not copied",
        )

    def lead(self, topic: str, node: int) -> None:
        """Let a broker lead."""
        Coordinators(self.cluster.bootstrap, self.admin, ()).lead(node, topic)

    def replicas(self, topic: str) -> tuple[int, ...]:
        """Return the brokers that have the partition."""
        described = self.admin.describe_topics([topic])[topic]
        assert not isinstance(described, KafkaError)
        return described.partitions[0].replicas

    def segments(self, topic: str) -> list[RemoteSegment]:
        """Return the copied segments of a topic by the shared metadata topic."""
        segments = PartitionSegments()
        with Consumer(
            bootstrap_servers=self.cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            partitions = [TopicPartition("__remote_log_metadata", number) for number in (0, 1)]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(one) < ends[one] for one in partitions):
                for record in consumer.poll(timeout=1):
                    metadata = decode_remote_metadata(record.value)
                    assert metadata is not None
                    if metadata.topic == topic:
                        assert segments.apply(metadata)
        finished = SegmentState.COPY_SEGMENT_FINISHED
        return [one for one in segments.segments() if one.state is finished]

    def check(self, topic: str, **settings: Any) -> None:
        """Read the topic from the beginning; every value is what was written."""
        partition = TopicPartition(topic, 0)
        values: list[bytes] = []
        with Consumer(
            bootstrap_servers=self.cluster.bootstrap,
            auto_offset_reset="earliest",
            **settings,
        ) as consumer:
            consumer.assign([partition])
            end = consumer.end_offsets([partition])[partition]
            while consumer.position(partition) < end:
                values += [record.value or b"" for record in consumer.poll(timeout=1)]
        assert len(values) == len(self.written[topic])
        assert values == self.written[topic]


@pytest.fixture(scope="module", name="tiered")
def _tiered(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    """Run node 1, of Ottla, and broker 2, of Kafka, with one directory as their tier."""
    directory = tmp_path_factory.mktemp("tiered")
    tier = directory / "tier"
    members = (OTTLA, KAFKA._replace(roles="broker"))
    cluster = Cluster(directory, members, kafka, has_links=False)
    settings = {
        **SETTINGS,
        **tier_properties(kafka, tier),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "replica.selector.class": SELECTOR,
    }
    cluster.format(settings_of={one: {**settings, "broker.rack": f"rack{one}"} for one in OTHER})
    try:
        cluster.start()
        wait_for(lambda: all(one.is_ready for one in cluster.nodes), "nodes do not serve")
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 2, "brokers are fenced")
            yield Tiered(cluster, tier, admin)
    finally:
        cluster.kill()


@NODES
def test_leaders_move_between_the_two(tiered: Tiered, first: int) -> None:
    """Each copies what it leads and serves what the other copied; no offset is copied twice."""
    topic = f"moved-{first}"
    tiered.create(topic, first, OTHER[first])
    for leader in (first, OTHER[first], first):
        tiered.lead(topic, leader)
        tiered.write(topic)
        tiered.wait_until_copied(topic, leader)
        tiered.check(topic)
    segments = tiered.segments(topic)
    assert {one.broker_id for one in segments} == {1, 2}
    assert [one.start_offset for one in segments] == [
        0,
        *(one.end_offset + 1 for one in segments[:-1]),
    ]
    tiered.lead(topic, OTHER[first])
    tiered.check(topic)


@NODES
def test_the_follower_in_the_rack_of_a_consumer_reads_the_tier(tiered: Tiered, first: int) -> None:
    """The leader names it, and it serves what the leader copied."""
    topic = f"near-{first}"
    tiered.create(topic, first, OTHER[first])
    tiered.write(topic)
    for node in (first, OTHER[first]):
        tiered.wait_until_tiered(topic, node)
    rack = f"rack{OTHER[first]}"
    tiered.check(topic, client_rack=rack)
    asked = fetch(topic, offset=0, rack=rack)
    leader, follower = (
        answer(tiered.cluster.node(node).address, asked, 12) for node in (first, OTHER[first])
    )
    assert (leader["preferred"], leader["records"]) == (OTHER[first], False)
    assert (follower["preferred"], follower["records"], follower["error"]) == (-1, True, "NONE")


@NODES
def test_a_new_replica_of_the_other_kind_begins_behind_the_tier(tiered: Tiered, first: int) -> None:
    """What one of them copied builds the other's state, which serves it as the only replica."""
    topic = f"handed-{first}"
    tiered.create(topic, first)
    tiered.write(topic)
    tiered.wait_until_tiered(topic, first)
    tiered.lead(topic, OTHER[first])
    tiered.admin.alter_partition_reassignments({TopicPartition(topic, 0): [OTHER[first]]})
    wait_for(
        lambda: tiered.replicas(topic) == (OTHER[first],),
        "the first replica stays",
    )
    logs = sorted(
        (tiered.cluster.node(OTHER[first]).directory / "data" / f"{topic}-0").glob("*.log")
    )
    assert int(logs[0].stem) > 0
    tiered.check(topic)
    tiered.write(topic)
    tiered.wait_until_tiered(topic, OTHER[first])
    tiered.check(topic)


@NODES
def test_the_leader_expires_and_deletes_what_the_other_copied(tiered: Tiered, first: int) -> None:
    """DeleteRecords, then the topic itself: the tier's files go."""
    topic = f"gone-{first}"
    tiered.create(topic, first, OTHER[first])
    tiered.write(topic)
    tiered.wait_until_copied(topic, first)
    tiered.lead(topic, OTHER[first])
    copied = [one for one in (tiered.tier / ROOT).iterdir() if one.name.startswith(topic)]
    assert len(copied) == 1
    before = sorted(one.name for one in copied[0].glob("*.log"))
    second = tiered.segments(topic)[1]
    tiered.admin.delete_records({TopicPartition(topic, 0): second.start_offset + 1})
    wait_for(
        lambda: sorted(one.name for one in copied[0].glob("*.log")) == before[1:],
        "the first segment stays",
    )
    tiered.admin.delete_topics([topic])
    wait_for(lambda: not any(copied[0].glob("*")), "segments of a deleted topic stay")

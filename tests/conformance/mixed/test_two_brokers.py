"""One broker of each kind, each a leader with the other as its follower: reads and throttles.

KIP-392, KIP-207, KIP-320: the same questions to the leader and to the follower of a partition.
KIP-73: moves in both directions take as long under the same limit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.errors import ErrorCode
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.builder import encode_batch
from tests.conformance.clusters.load import wait_for
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster
from tests.server.requests.untrusted_clients import Peer
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.types import Uuid
    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SETTINGS = {
    number: {
        "broker.rack": f"rack{number}",
        "replica.selector.class": SELECTOR,
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "broker.session.timeout.ms": "60000",
        "replica.lag.time.max.ms": "60000",
        "replica.fetch.max.bytes": "100000",
        "replica.fetch.response.max.bytes": "100000",
        "replication.quota.window.num": "3",
    }
    for number in (1, 2)
}
COUNT = 20
TOPICS = {1: "led-by-1", 2: "led-by-2"}
OTHER = {1: 2, 2: 1}


@pytest.fixture(scope="module")
def cluster(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run node 1, of Ottla, and broker 2, of Kafka; each leads a partition and follows one."""
    members = (OTTLA, KAFKA._replace(roles="broker"))
    running = Cluster(tmp_path_factory.mktemp("racks"), members, kafka, has_links=False)
    running.format(settings_of=SETTINGS)
    try:
        running.start()
        wait_for(lambda: all(one.is_ready for one in running.nodes), "nodes do not serve")
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 2, "brokers are fenced")
            for leader, topic in TOPICS.items():
                made = admin.create_topics(
                    [
                        NewTopic(topic, assignments={0: [leader, OTHER[leader]]}),
                        NewTopic(f"only-on-{leader}", assignments={0: [leader]}),
                    ]
                )
                assert not any(isinstance(one, Exception) for one in made.values()), made
        with Producer(bootstrap_servers=running.bootstrap, acks="all") as producer:
            for topic in TOPICS.values():
                for number in range(COUNT):
                    producer.send(topic, b"%d" % number)
        for leader, topic in TOPICS.items():
            node = running.node(OTHER[leader])
            wait_for(
                lambda node=node, topic=topic: (  # type: ignore[misc] # bound now
                    answer(node.address, fetch(topic, offset=0), 12)["high_watermark"] == COUNT
                ),
                f"the follower of {topic} has no high watermark",
            )
        yield running
    finally:
        running.kill()


def fetch(
    topic: str, *, offset: int, epoch: int = -1, rack: str = "", last_epoch: int = -1
) -> FetchRequest:
    """Return a fetch of partition 0."""
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, rack_id=rack, topics=topics
    )


def answer(address: str, request: FetchRequest, version: int) -> dict[str, Any]:
    """Return what is answered for the partition."""
    peer = Peer(address)
    response = peer.ask(request, version)
    peer.close()
    assert not response.error_code
    one = response.responses[0].partitions[0]
    return {
        "error": ErrorCode(one.error_code).name,
        "high_watermark": one.high_watermark,
        "last_stable_offset": one.last_stable_offset,
        "log_start_offset": one.log_start_offset,
        "preferred": one.preferred_read_replica,
        "records": bool(one.records),
        "aborted": one.aborted_transactions,
        "diverging": (one.diverging_epoch.epoch, one.diverging_epoch.end_offset),
    }


FETCHES: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (12, {}),
    "before KIP-392": (10, {}),
    "first version": (11, {}),
    "own rack": (12, {"rack": "own"}),
    "other rack": (12, {"rack": "other"}),
    "other rack, at the end": (12, {"rack": "other", "offset": COUNT}),
    "other rack, above the end": (12, {"rack": "other", "offset": COUNT + 1}),
    "other rack, wrong epoch": (12, {"rack": "other", "epoch": 7}),
    "other rack before KIP-392": (10, {"rack": "other"}),
    "unknown rack": (12, {"rack": "nowhere"}),
    "right epoch": (12, {"epoch": 0}),
    "newer epoch": (12, {"epoch": 7}),
    "newer epoch before KIP-392": (10, {"epoch": 7}),
    "at the end": (12, {"offset": COUNT}),
    "above the end": (12, {"offset": COUNT + 1}),
    "below the start": (12, {"offset": -3}),
    "known last epoch": (12, {"last_epoch": 0}),
    "unknown last epoch": (12, {"last_epoch": 5}),
}


def _ask(cluster: Cluster, topic: str, node: int, version: int, given: dict[str, Any]) -> object:
    racks = {"own": f"rack{node}", "other": f"rack{OTHER[node]}"}
    values = {"offset": 0, **given}
    values["rack"] = racks.get(values.get("rack", ""), values.get("rack", ""))
    found = answer(cluster.node(node).address, fetch(topic, **values), version)
    if found["preferred"] >= 0:
        found["preferred"] = "other" if found["preferred"] == OTHER[node] else "self"
    return found


@pytest.mark.parametrize("name", FETCHES)
def test_leaders_and_followers_answer_fetches_alike(cluster: Cluster, name: str) -> None:
    """Both kinds, in both roles."""
    version, given = FETCHES[name]
    for role in ("leader", "follower"):
        ours = _ask(cluster, TOPICS[1 if role == "leader" else 2], 1, version, given)
        theirs = _ask(cluster, TOPICS[2 if role == "leader" else 1], 2, version, given)
        assert ours == theirs, role


def _offsets(address: str, topic: str, *, timestamp: int, epoch: int, replica: int = -1) -> object:
    partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
    )
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    peer = Peer(address)
    answer = peer.ask(ListOffsetsRequest(replica_id=replica, isolation_level=0, topics=topics), 7)
    peer.close()
    one = answer.topics[0].partitions[0]
    return ErrorCode(one.error_code).name, one.offset, one.leader_epoch


def _epoch_end(address: str, topic: str, *, epoch: int, requested: int) -> object:
    topics = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = topics.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=epoch, leader_epoch=requested
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[topics(topic=topic, partitions=[partition])]
    )
    peer = Peer(address)
    answer = peer.ask(request, 4)
    peer.close()
    one = answer.topics[0].partitions[0]
    return ErrorCode(one.error_code).name, one.end_offset, one.leader_epoch


@pytest.mark.parametrize("epoch", [-1, 0, 7])
def test_followers_answer_questions_about_offsets_alike(cluster: Cluster, epoch: int) -> None:
    """Only leaders answer ListOffsets and OffsetForLeaderEpoch, but the debugging consumer."""
    ours, theirs = (cluster.node(number).address for number in (1, 2))
    for timestamp in (-1, -2, 0):
        for replica in (-1, -2):
            given = {"timestamp": timestamp, "epoch": epoch, "replica": replica}
            assert _offsets(ours, TOPICS[1], **given) == _offsets(theirs, TOPICS[2], **given)
            assert _offsets(ours, TOPICS[2], **given) == _offsets(theirs, TOPICS[1], **given)
            assert _offsets(ours, "only-on-2", **given) == _offsets(theirs, "only-on-1", **given)
    for requested in (0, 3):
        wanted = {"epoch": epoch, "requested": requested}
        assert _epoch_end(ours, TOPICS[1], **wanted) == _epoch_end(theirs, TOPICS[2], **wanted)
        assert _epoch_end(ours, TOPICS[2], **wanted) == _epoch_end(theirs, TOPICS[1], **wanted)
        assert _epoch_end(ours, "only-on-2", **wanted) == _epoch_end(theirs, "only-on-1", **wanted)


@pytest.mark.parametrize("version", [4, 10, 11, 12])
def test_a_partition_of_the_other_broker_is_answered_alike(cluster: Cluster, version: int) -> None:
    """NOT_LEADER_OR_FOLLOWER: the client's metadata is old."""
    ours, theirs = (cluster.node(number).address for number in (1, 2))
    for epoch in (-1, 0, 7) if version >= 9 else (-1,):
        mine = answer(ours, fetch("only-on-2", offset=0, epoch=epoch), version)
        assert mine == answer(theirs, fetch("only-on-1", offset=0, epoch=epoch), version)
        assert mine["error"] == "NOT_LEADER_OR_FOLLOWER"


def _hints(address: str, request: FetchRequest) -> tuple[str, tuple[int, int], list[int]]:
    """Return the error, the leader that the answer names, and the nodes with an address."""
    peer = Peer(address)
    answer = peer.ask(request, 17)
    peer.close()
    one = answer.responses[0].partitions[0]
    leader = one.current_leader.leader_id, one.current_leader.leader_epoch
    return (
        ErrorCode(one.error_code).name,
        leader,
        [node.node_id for node in answer.node_endpoints],
    )


@pytest.mark.parametrize(("topic", "epoch"), [("only-on-{}", -1), ("led-by-{}", 7)])
def test_leaders_are_named_alike(cluster: Cluster, topic: str, epoch: int) -> None:
    """KIP-951: also of a partition that the broker does not have; with topic ids."""
    ours, theirs = (cluster.node(number).address for number in (1, 2))
    found = []
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for address, leader in ((ours, 2), (theirs, 1)):
            name = topic.format(leader)
            described = admin.describe_topics([name])[name]
            assert not isinstance(described, KafkaError)
            request = fetch(name, offset=0, epoch=epoch)
            request.topics[0].topic_id = described.topic_id
            code, named, nodes = _hints(address, request)
            found.append((code, named == (leader, 0), named == (-1, -1), nodes == [leader]))
    assert found[0] == found[1]


def _refused_produce(address: str, name: str, topic_id: Uuid, version: int) -> dict[str, Any]:
    """Return what a producer is answered by a broker that does not lead."""
    topic = ProduceRequest.TopicProduceData(
        name=name,
        topic_id=topic_id,
        partition_data=[
            ProduceRequest.TopicProduceData.PartitionProduceData(
                index=0, records=encode_batch([(1, None, b"v", ())])
            )
        ],
    )
    peer = Peer(address)
    answer = peer.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), version)
    peer.close()
    one = answer.responses[0].partition_responses[0]
    return {
        "error": ErrorCode(one.error_code).name,
        "message": one.error_message,
        "start": one.log_start_offset,
        "leader": (one.current_leader.leader_id, one.current_leader.leader_epoch),
        "nodes": [node.node_id for node in answer.node_endpoints],
    }


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("name", ["led-by-{}", "only-on-{}"])
def test_producers_are_referred_to_the_leader_alike(
    cluster: Cluster, name: str, version: int
) -> None:
    """KIP-951: from version 10 on, by a follower and by a broker without the partition."""
    ours, theirs = (cluster.node(number).address for number in (1, 2))
    found = []
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        for address, leader in ((ours, 2), (theirs, 1)):
            topic = name.format(leader)
            described = admin.describe_topics([topic])[topic]
            assert not isinstance(described, KafkaError)
            answer = _refused_produce(address, topic, described.topic_id, version)
            nodes, named = answer["nodes"], answer["leader"]
            assert nodes == ([leader] if version >= 10 else [])
            assert named == ((leader, 0) if version >= 10 else (-1, -1))
            found.append({**answer, "nodes": len(nodes), "leader": named[1]})
    assert found[0] == found[1]
    assert found[0]["error"] == "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize(("leader", "reader"), [(1, 2), (2, 1)])
def test_our_consumer_reads_from_a_follower_of_either_kind(
    cluster: Cluster, leader: int, reader: int
) -> None:
    """And hears of what is produced meanwhile."""
    topic = f"read-from-{reader}"
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        made = admin.create_topics([NewTopic(topic, assignments={0: [leader, reader]})])
        assert not isinstance(made[topic], Exception), made
    settings: dict[str, Any] = {"client_rack": f"rack{reader}", "auto_offset_reset": "earliest"}
    with (
        Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer,
        Consumer(bootstrap_servers=cluster.bootstrap, **settings) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes | None] = []
        for number in range(30):
            producer.send(topic, b"%d" % number)
            producer.flush()
            if number % 10 == 9:
                while len(values) <= number:
                    values += [one.value for one in consumer.poll(1.0)]
        assert values == [b"%d" % number for number in range(30)]
        preferred = [
            value
            for name, value in consumer.metrics().items()
            if name.name == "preferred-read-replica"
        ]
        assert preferred == [str(reader)]


MOVED_BYTES, RATE = 1_500_000, 200_000


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_move_takes_its_time_in_both_directions(cluster: Cluster, side: str) -> None:
    """A partition of Ottla to Kafka and one of Kafka to Ottla, both at once."""
    topics = {leader: f"moved-{side}-{leader}" for leader in (1, 2)}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        made = admin.create_topics(
            [NewTopic(topic, assignments={0: [leader]}) for leader, topic in topics.items()]
        )
        assert not any(isinstance(one, Exception) for one in made.values()), made
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for topic in topics.values():
                for _ in range(MOVED_BYTES // 10_000):
                    producer.send(topic, bytes(10_000))
                    producer.flush()
        _throttle(admin, side, topics.values(), RATE)
        begun_s = time.monotonic()
        admin.alter_partition_reassignments(
            {TopicPartition(topic, 0): [leader, OTHER[leader]] for leader, topic in topics.items()}
        )
        took_s: dict[int, float] = {}
        while len(took_s) < 2:
            moving = {one.topic for one in admin.list_partition_reassignments()}
            for leader, topic in topics.items():
                if topic not in moving:
                    took_s.setdefault(leader, time.monotonic() - begun_s)
            time.sleep(0.1)
        _throttle(admin, side, topics.values(), None)
    print(f"{side}: {took_s} s")
    expected_s = MOVED_BYTES / RATE - 3  # the window's worth comes at once
    for leader, one_s in took_s.items():
        assert expected_s * 0.7 < one_s < WAIT_S, (leader, took_s)


def _throttle(admin: Admin, side: str, topics: Iterable[str], rate: int | None) -> None:
    rates = {f"{side}.replication.throttled.rate": rate}
    replicas = {f"{side}.replication.throttled.replicas": None if rate is None else "*"}
    changes = {ConfigResource(ResourceType.TOPIC, topic): replicas for topic in topics}
    done = admin.alter_configs({ConfigResource(ResourceType.BROKER, ""): rates, **changes})
    assert set(done.values()) == {None}

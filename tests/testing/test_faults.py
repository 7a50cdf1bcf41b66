"""Tests of a cluster's clock, disks and links that fail."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from ottla.clients.blocking import Producer
from ottla.errors import ClosedError, InvalidReplicationFactorError, KafkaError
from ottla.testing.cluster import Cluster
from ottla.testing.errors import ClusterError
from ottla.testing.fault_environment import ClusterClock
from ottla.testing.fault_network import CLIENTS, NetworkFaults, Pipe
from ottla.testing.kafka import Kafka
from tests.soaks import with_soaks
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def one() -> Iterator[Kafka]:
    """Give one node."""
    with Cluster() as cluster, Kafka(cluster) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    """Give three nodes."""
    with Cluster(nodes=3) as cluster, Kafka(cluster) as kafka:
        yield kafka


def _send_once(kafka: Kafka, topic: str) -> None:
    limits = {"delivery.timeout.ms": "400", "request.timeout.ms": "300", "linger.ms": "0"}
    with Producer(config={**kafka.client_settings, **limits}) as producer:
        producer.send_and_wait(topic, b"lost")


def _can_create(kafka: Kafka) -> bool:
    """Whether a topic can be created: the broker is not fenced."""
    try:
        kafka.topic("before")
    except InvalidReplicationFactorError:
        return False
    return True


def test_records_expire_when_days_have_passed(one: Kafka) -> None:
    """Retention is applied when `advance` returns; clients keep the machine's clock."""
    old = one.topic("old", config={"retention.ms": 7 * 86_400_000}).produce(["a", "b"])
    one.clock.advance(days=6)
    assert old.start_offset(0) == 0
    one.clock.advance(days=2)
    one.wait(
        lambda: old.start_offset(0) == 2, WAIT_S, lambda: "records of eight days ago are there"
    )
    assert one.topic("new").produce("later").values() == ["later"]


def test_a_clock_goes_ahead_only() -> None:
    """Both clocks move by the same."""
    moved: list[int] = []
    clock = ClusterClock(lambda: moved.append(clock.ahead_ms))
    clock.advance(days=1, hours=1, minutes=1, seconds=1, milliseconds=1)
    assert moved == [90_061_001]
    with pytest.raises(ValueError, match="time does not go back"):
        clock.advance(seconds=-1)


def test_a_controller_waits_for_a_frozen_disk(one: Kafka) -> None:
    """What is not on the disk is not committed."""
    # a busy machine may hold heartbeats back until the broker is fenced
    one.wait(lambda: _can_create(one), WAIT_S, lambda: "the broker is fenced")
    one.disk().freeze()
    created = threading.Thread(target=one.topic, args=("frozen",))
    created.start()
    created.join(0.2)
    assert created.is_alive()
    one.disk().heal()
    created.join(WAIT_S)
    assert not created.is_alive()


@pytest.mark.parametrize("fault", ["fill", "lose"])
def test_a_node_halts_when_its_last_disk_fails(
    kafka_cluster: Callable[..., Kafka], fault: str
) -> None:
    """It serves what it acknowledged when it is started on a disk that works."""
    kafka = kafka_cluster()
    topic = kafka.topic("topic").produce("before")
    disk = kafka.disk()
    {"fill": disk.fill, "lose": disk.lose}[fault]()
    with pytest.raises(KafkaError):
        _send_once(kafka, topic)
    cluster = kafka.cluster
    assert isinstance(cluster, Cluster)
    kafka.wait(lambda: not cluster.is_running, WAIT_S, lambda: "no halt")
    with pytest.raises(ClusterError, match=r"node 1 has halted: .*; heal its disk, then start it"):
        cluster.node(1).run(lambda node: node)
    disk.heal()
    kafka.start()
    assert cluster.is_running
    assert topic.values() == ["before"]


def test_a_controller_that_is_cut_off_is_replaced(three: Kafka) -> None:
    """It follows the new one when the link is healed."""
    cluster = three.cluster
    assert isinstance(cluster, Cluster)
    first = cluster.controller_id
    assert first is not None
    others = {1, 2, 3} - {first}
    with three.partition_network({first}, others):
        three.wait(
            lambda: cluster.controller_id not in {None, first},
            WAIT_S,
            lambda: "no other controller",
        )
    three.wait(
        lambda: not cluster.node(first).run(lambda node: node.controller.active),
        WAIT_S,
        lambda: "two controllers",
    )


def test_connections_are_opened_again(three: Kafka) -> None:
    """After a reset, and over slow links."""
    three.network.drop(1, 2)
    three.network.delay(1, 3, 0.02)
    three.topic("opened").produce("value").expect(value="value").exactly(1)
    three.network.heal()


def test_large_batches_are_replicated(three: Kafka) -> None:
    """A frame that is larger than one read passes a cluster's links in parts."""
    three.admin.create_topic("large", 1, 3)
    with Producer(config={**three.client_settings, "acks": "all"}) as producer:
        producer.send_and_wait("large", bytes(600_000))


def test_clients_that_are_cut_off_go_on_after_a_heal(three: Kafka) -> None:
    """The node answers them nothing meanwhile."""
    cluster = three.cluster
    assert isinstance(cluster, Cluster)
    topic = three.topic("cut").produce("before")
    leader = cluster.leader(topic)
    assert leader is not None
    three.network.cut(leader, CLIENTS)
    with pytest.raises(KafkaError):
        _send_once(three, topic)
    three.network.heal()
    topic.produce("after")
    assert topic.values_text()[-1] == "after"


def test_bytes_arrive_in_order_when_a_link_is_healed_or_slow() -> None:
    """Nothing overtakes what waits."""
    faults, found = NetworkFaults([1, 2, 3]), bytearray()

    async def work() -> None:
        pipe = Pipe(asyncio.get_running_loop(), faults, (1, 2), found.extend)
        pipe.send(b"a")
        faults.cut(1, 2, one_way=True)
        assert not faults.is_cut(2, 1)
        pipe.send(b"b")
        faults.heal()
        faults.delay(2, 1, 0.01)
        pipe.send(b"c")
        assert found == b"a"
        async with asyncio.timeout(60):
            while found != b"abc":  # noqa: ASYNC110 - a real link has no event
                await asyncio.sleep(0.001)

    asyncio.run(work())


def test_a_single_node_has_no_links(one: Kafka) -> None:
    """The text says what there is instead."""
    with pytest.raises(ClusterError, match="pause it, or give nodes=3"):
        _ = one.network


def test_links_that_do_not_exist_are_refused(three: Kafka) -> None:
    """A wrong number or name would cut nothing, and the test would pass."""
    for one, other in ((1, 4), ("client", 1), ("1", 2), (2, 2)):
        with pytest.raises(ClusterError, match=r"no end|no link to itself"):
            three.network.cut(one, other)
    with pytest.raises(ClusterError, match="there is no end 7 of a link: there are the nodes 1, 2"):
        three.partition_network({1, 2}, {7}).__enter__()
    with pytest.raises(ClusterError, match="no end"):
        three.network.delay(0, 1, 0.1)


def test_topics_of_several_nodes_have_replicas(three: Kafka) -> None:
    """On each of up to three nodes, unless the test says otherwise."""
    replicated, alone = three.topic("three"), three.topic("alone", replication_factor=1)

    def counts() -> list[int]:
        """Return the replicas of each topic, 0 on a node that does not know it so early."""
        found = three.admin.describe_topics([replicated, alone]).values()
        return [
            0 if isinstance(one, KafkaError) else len(one.partitions[0].replicas) for one in found
        ]

    three.wait(lambda: counts() == [3, 1], WAIT_S, lambda: f"the replicas are {counts()}")


def test_a_group_without_commits_lags_by_all_records(one: Kafka) -> None:
    """Not by none: a test that forgets to commit must fail."""
    with Kafka(one.cluster) as kafka:
        kafka.topic("lag").produce(["a", "b", "c"])
        assert kafka.lag(kafka.group()) == 3


@pytest.mark.parametrize("fault", with_soaks(["freeze", "fill", "pause", "cut"]))
def test_a_cluster_with_a_fault_is_stopped(fault: str) -> None:
    """The stop heals first; it waited for a frozen disk for ever."""
    with Cluster(nodes=3) as cluster:
        kafka = Kafka(cluster)
        kafka.topic("topic").produce("value")
        if fault == "pause":
            kafka.pause(2)
        elif fault == "cut":
            kafka.network.partition({1}, {2, 3})
        else:
            getattr(kafka.disk(1), fault)()
        kafka.close()
    assert not cluster.is_running


def test_a_consumer_that_is_left_open_is_closed(one: Kafka) -> None:
    """At the end of the test: its warnings would come after pytest's summary."""
    kafka = Kafka(one.cluster)
    consumer = kafka.consumer(kafka.topic("open").produce("value"), group=kafka.group())
    assert consumer.poll(timeout=WAIT_S)
    kafka.close()
    with pytest.raises(ClosedError):
        consumer.poll(timeout=0)


def test_the_clock_of_the_shared_node_cannot_be_moved(kafka: Kafka) -> None:
    """Retention would remove the records of later tests."""
    with pytest.raises(ClusterError, match=r"take kafka_cluster\(\), or mark the test"):
        kafka.clock.advance(days=8)


def test_a_fault_of_a_test_is_healed_after_it(one: Kafka) -> None:
    """The next test of the same node finds it as it was."""
    with Kafka(one.cluster, is_shared=True) as before:
        before.disk().freeze()
        before.pause()
    with Kafka(one.cluster, is_shared=True) as after:
        assert after.topic("after").produce("value").values() == ["value"]

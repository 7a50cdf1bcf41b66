"""Settings of Kafka's that change what a node does: each seen from outside."""

from __future__ import annotations

import pytest

from ottla import Producer
from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from tests.controller.harness import topic
from tests.server.requests.untrusted_clients import Peer
from tests.waits import wait_for

ROUNDS = 20
OFFSETS_TOPIC = "__consumer_offsets"


def _produce(peer: Peer, name: str) -> None:
    data = ProduceRequest.TopicProduceData
    batch = encode_batch([(1, b"key", b"value", ())])
    wanted = data(name=name, partition_data=[data.PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[wanted])

    def is_stored() -> bool:
        code = peer.ask(request, 12).responses[0].partition_responses[0].error_code
        assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return bool(code == ErrorCode.NONE)

    wait_for(is_stored)  # the log of a new topic may not be there yet


def _flushed(cluster: Cluster, name: str) -> int:
    return cluster.run(lambda node: node.broker.replicas.get(name, 0).log.recovery_point)


@pytest.mark.parametrize("setting", ["flush_messages", "flush_ms"])
def test_flushes_that_a_topic_asks_for(setting: str) -> None:
    """After so many records, or so much time, a worker flushes the log; by default none does."""
    with Cluster(
        config={"log.flush.scheduler.interval.ms": "20", "log.flush.interval.ms": "999999"}
    ) as cluster:
        peer = Peer(cluster.bootstrap)
        wanted = [topic("durable", 1, 1, **{setting: "1"}), topic("lazy")]
        peer.ask(CreateTopicsRequest(topics=wanted), 7)
        for end in range(
            1, ROUNDS + 1
        ):  # a new log is flushed once for its names, with what is in it by then
            for name in ("lazy", "durable"):
                _produce(peer, name)
            wait_for(lambda end=end: _flushed(cluster, "durable") == end)  # type: ignore[misc] # the loop's value
        assert _flushed(cluster, "lazy") < ROUNDS


def test_a_silent_connection_is_closed() -> None:
    """connections.max.idle.ms ends who says nothing, not who goes on talking."""
    with Cluster(config={"connections.max.idle.ms": "300"}) as cluster:
        silent, talking = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        assert cluster.run(lambda node: node.connection_count) <= 2
        silent.ask(MetadataRequest(topics=[]), 12)

        def one_left() -> bool:
            talking.ask(MetadataRequest(topics=[]), 12)
            return cluster.run(lambda node: node.connection_count) == 1

        wait_for(one_left)
        with pytest.raises(EOFError):
            silent.read_frame()


def _metadata(peer: Peer, name: str) -> tuple[int, int]:
    wanted = MetadataRequest.MetadataRequestTopic(name=name)
    request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=True)
    answer = peer.ask(request, 12).topics[0]
    return answer.error_code, len(answer.partitions)


def test_topics_are_made_on_demand() -> None:
    """Metadata makes a topic with the broker's numbers, an internal one with its own."""
    config = {"num.partitions": "3", "offsets.topic.num.partitions": "4"}
    with Cluster(config=config) as cluster:
        peer = Peer(cluster.bootstrap)
        for name, count in (("fresh", 3), (OFFSETS_TOPIC, 4)):
            assert _metadata(peer, name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
            wait_for(lambda name=name, count=count: _metadata(peer, name) == (0, count))  # type: ignore[misc] # the loop's values
        assert _metadata(peer, "not*legal") == (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)


def test_topics_are_not_made_where_that_is_switched_off() -> None:
    """Only a coordinator that is asked for still makes its own topic."""
    with Cluster(config={"auto.create.topics.enable": "false"}) as cluster:
        peer = Peer(cluster.bootstrap)
        for name in ("fresh", OFFSETS_TOPIC):
            assert _metadata(peer, name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        assert cluster.run(lambda node: list(node.broker.image.topics.by_name)) == []
        peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        wait_for(lambda: _metadata(peer, OFFSETS_TOPIC)[0] == 0)


def _set_of_all_brokers(peer: Peer, name: str, value: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name=name, config_operation=0, value=value)
    wanted = resource(resource_type=4, resource_name="", configs=[change])
    answer = peer.ask(IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False), 1)
    assert answer.responses[0].error_code == 0


def test_settings_of_producers_change_while_the_node_runs() -> None:
    """How long they are remembered, and whether their transactions are verified."""
    with Cluster(config={"producer.id.expiration.check.interval.ms": "20"}) as cluster:
        peer = Peer(cluster.bootstrap)
        peer.ask(CreateTopicsRequest(topics=[topic("t", 1, 1)]), 7)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("t", b"value")
        log = cluster.run(lambda node: node.broker.replicas.get("t", 0).log)
        assert len(log.producer_state.producers) == 1
        assert log.config.transaction_partition_verification_enable
        _set_of_all_brokers(peer, "transaction.partition.verification.enable", "false")
        _set_of_all_brokers(peer, "producer.id.expiration.ms", "1")
        wait_for(lambda: not log.producer_state.producers)
        assert not log.config.transaction_partition_verification_enable

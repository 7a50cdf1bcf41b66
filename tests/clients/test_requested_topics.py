"""The topics in a consumer's metadata requests: only those in use."""

from __future__ import annotations

from typing import Any

from ottla.protocol.apis.metadata import MetadataRequest
from ottla.types import TopicPartition
from tests.clients.consumer.test_group import Member
from tests.clients.simulated import FakeCluster, run_together
from tests.clients.simulated_consumer import SimulatedConsumer
from tests.clients.simulated_group import FakeGroup


def _cluster() -> FakeCluster:
    cluster = FakeCluster()
    for name in ("a", "b", "c"):
        cluster.create(name, 1)
    FakeGroup(cluster)
    return cluster


def _join_request(consumer: Any) -> set[str] | None:
    """Return what the next request for metadata names, None for everything."""
    cluster = consumer.sim.cluster
    before = len(cluster.requests(MetadataRequest))
    consumer.core.client.metadata.mark_stale()
    consumer.sim.run(lambda: len(cluster.requests(MetadataRequest)) > before)
    topics = cluster.requests(MetadataRequest)[-1].topics
    return None if topics is None else {topic.name for topic in topics}


def _unsubscribe(consumer: SimulatedConsumer) -> None:
    assert consumer.core.group is not None
    consumer.core.group.stop()
    consumer.core.unsubscribe()


def test_a_topic_that_is_no_longer_subscribed_is_asked_for_no_more() -> None:
    """While its partitions are held it is; after the rebalance it is not."""
    consumer = SimulatedConsumer(_cluster())
    consumer.core.subscribe(["a"], None, None)
    consumer.settle(1)
    assert _join_request(consumer) == {"a"}
    consumer.core.subscribe(["b"], None, None)
    assert _join_request(consumer) == {"a", "b"}
    b = TopicPartition("b", 0)

    def moved() -> bool:
        consumer.poll()
        return set(consumer.core.subscription.partitions) == {b}

    consumer.sim.run(moved)
    assert _join_request(consumer) == {"b"}
    _unsubscribe(consumer)
    assert _join_request(consumer) == set()


def test_a_pattern_wants_everything_as_long_as_it_holds() -> None:
    """Without one no longer."""
    consumer = SimulatedConsumer(_cluster())
    consumer.core.subscribe(None, "[ab]", None)
    consumer.settle(2)
    assert _join_request(consumer) is None
    _unsubscribe(consumer)
    consumer.core.subscribe(["a"], None, None)
    assert _join_request(consumer) == {"a"}


def test_partitions_by_hand_and_questions_want_their_topics() -> None:
    """A query's topics stay in use until it completes, also with two queries at a time."""
    consumer = SimulatedConsumer(_cluster())
    consumer.core.assign([TopicPartition("a", 0)])
    with consumer.core.keeping_topics(["b", "c"]):
        with consumer.core.keeping_topics(["b"]):
            assert _join_request(consumer) == {"a", "b", "c"}
        assert _join_request(consumer) == {"a", "b", "c"}
    assert _join_request(consumer) == {"a"}
    consumer.core.assign([TopicPartition("c", 0)])
    assert _join_request(consumer) == {"c"}


def test_a_leader_wants_what_others_subscribe_to() -> None:
    """It watches their partition counts; a query does not change that."""
    cluster = _cluster()
    leader = SimulatedConsumer(cluster)
    leader.core.subscribe(["a"], None, None)
    leader.settle(1)
    other = Member(cluster, ("b",))

    def both() -> bool:
        leader.poll()
        other.poll()
        return len(other.owned) == 1 == len(leader.core.subscription.partitions)

    run_together([leader.sim, other.sim], both, limit_ms=5_000)
    with leader.core.keeping_topics(["c"]):
        pass
    assert _join_request(leader) == {"a", "b"}

"""Which topics a consumer asks for: what it uses, since brokers make topics that are asked for."""

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


def _asked(consumer: Any) -> set[str] | None:
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
    assert _asked(consumer) == {"a"}
    consumer.core.subscribe(["b"], None, None)
    assert _asked(consumer) == {"a", "b"}
    b = TopicPartition("b", 0)

    def moved() -> bool:
        consumer.poll()
        return set(consumer.core.subscription.partitions) == {b}

    consumer.sim.run(moved)
    assert _asked(consumer) == {"b"}
    _unsubscribe(consumer)
    assert _asked(consumer) == set()


def test_a_pattern_wants_everything_as_long_as_it_holds() -> None:
    """Without one no longer."""
    consumer = SimulatedConsumer(_cluster())
    consumer.core.subscribe(None, "[ab]", None)
    consumer.settle(2)
    assert _asked(consumer) is None
    _unsubscribe(consumer)
    consumer.core.subscribe(["a"], None, None)
    assert _asked(consumer) == {"a"}


def test_partitions_by_hand_and_questions_want_their_topics() -> None:
    """A question's topics are wanted until it is answered, two at a time too."""
    consumer = SimulatedConsumer(_cluster())
    consumer.core.assign([TopicPartition("a", 0)])
    with consumer.core.looking_up(["b", "c"]):
        with consumer.core.looking_up(["b"]):
            assert _asked(consumer) == {"a", "b", "c"}
        assert _asked(consumer) == {"a", "b", "c"}
    assert _asked(consumer) == {"a"}
    consumer.core.assign([TopicPartition("c", 0)])
    assert _asked(consumer) == {"c"}


def test_a_leader_wants_what_others_subscribe_to() -> None:
    """It watches their partition counts; a question in between does not change that."""
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
    with leader.core.looking_up(["c"]):
        pass
    assert _asked(leader) == {"a", "b"}

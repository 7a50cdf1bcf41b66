"""librdkafka in consumer groups of the new protocol (KIP-848), on a whole node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

confluent = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

PARTITIONS = 6
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(name="bootstrap")
def _bootstrap() -> Iterator[str]:
    with Cluster(config=SETTINGS) as cluster:
        client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in client.create_topics([admin.NewTopic("t", PARTITIONS, 1)]).values():
            made.result()
        yield cluster.bootstrap


def consumer(bootstrap: str, topic: str = "t", **settings: Any) -> Any:
    """Return a consumer of the new protocol, subscribed to the topic."""
    made = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    made.subscribe([topic])
    return made


def poll_until(consumers: list[Any], condition: Callable[[], bool]) -> list[Any]:
    """Poll all consumers until the condition holds; return their records."""
    records = []
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end
        for one in consumers:
            record = one.poll(0.05)
            if record is not None:
                assert record.error() is None
                records.append(record)
    return records


def owned(one: Any) -> set[int]:
    return {partition.partition for partition in one.assignment()}


def test_members_share_the_partitions_and_go_on_from_the_commits(bootstrap: str) -> None:
    """A second member takes half; after it left, the first goes on where it committed."""
    first = consumer(bootstrap)
    poll_until([first], lambda: len(owned(first)) == PARTITIONS)
    second = consumer(bootstrap, **{"group.remote.assignor": "range"})
    poll_until([first, second], lambda: len(owned(first)) == len(owned(second)) == PARTITIONS // 2)
    assert owned(first) | owned(second) == set(range(PARTITIONS))
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    described = client.describe_consumer_groups(["g"])["g"].result()
    assert described.type is confluent.ConsumerGroupType.CONSUMER
    assert sorted(len(one.assignment.topic_partitions) for one in described.members) == [3, 3]
    partition = min(owned(second))
    second.commit(offsets=[confluent.TopicPartition("t", partition, 7)], asynchronous=False)
    second.close()
    poll_until([first], lambda: len(owned(first)) == PARTITIONS)
    committed = first.committed([confluent.TopicPartition("t", partition)])
    assert committed[0].offset == 7
    first.close()
    assert client.delete_consumer_groups(["g"])["g"].result() is None


def test_new_partitions_reach_a_running_member(bootstrap: str) -> None:
    """A topic that grows is assigned whole, without a new subscription."""
    one = consumer(bootstrap)
    poll_until([one], lambda: len(owned(one)) == PARTITIONS)
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    grown = client.create_partitions([admin.NewPartitions("t", PARTITIONS + 2)])
    assert [made.result() for made in grown.values()] == [None]
    poll_until([one], lambda: len(owned(one)) == PARTITIONS + 2)
    one.close()


def test_a_static_member_keeps_its_partitions_over_a_restart(bootstrap: str) -> None:
    """A new process with the same instance id gets what the old one had."""
    first = consumer(bootstrap, **{"group.instance.id": "i"})
    second = consumer(bootstrap, **{"group.instance.id": "j"})
    poll_until([first, second], lambda: len(owned(first)) == len(owned(second)) == 3)
    before = owned(second)
    second.close()
    again = consumer(bootstrap, **{"group.instance.id": "j"})
    poll_until([first, again], lambda: len(owned(again)) == 3)
    assert owned(again) == before
    first.close()
    again.close()


def test_a_pattern_is_resolved_by_the_broker(bootstrap: str) -> None:
    """A subscription by pattern is assigned the topics that match."""
    one = consumer(bootstrap, "^[s-u]$")
    poll_until([one], lambda: len(owned(one)) == PARTITIONS)
    one.close()

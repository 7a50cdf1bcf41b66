"""Kafka's own share consumer with Ottla: records are accepted once, rejected or released."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import Admin, Producer
from tests.conformance.clients.target import Target, running_target
from tests.conformance.share_groups import begin_at_the_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Run one node, or a cluster."""
    with running_target(tmp_path_factory.mktemp("share")) as running:
        yield running


def consume(kafka: Kafka, node: Target, topic: str, group: str, *flags: str) -> list[str]:
    """Return the values that Kafka's console share consumer prints."""
    flags = ("--bootstrap-server", node.bootstrap, "--topic", topic, "--group", group, *flags)
    done = kafka.run(CONSUMER, *flags)
    return [line for line in done.stdout.splitlines() if line]


def test_kafkas_share_consumer_accepts_and_rejects(node: Target, kafka: Kafka) -> None:
    """What one group has accepted or rejected does not come again; another group has it all."""
    topic = node.create_topic("shared", partitions=2)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for number in range(20):
            producer.send(topic, str(number).encode())
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        for group in ("accepts", "rejects"):
            begin_at_the_start(admin, group)
    values = sorted(str(number) for number in range(20))
    all_of_them = ("--max-messages", "20", "--timeout-ms", "120000")
    one_more = ("--max-messages", "1", "--timeout-ms", "8000")
    assert sorted(consume(kafka, node, topic, "accepts", *all_of_them)) == values
    assert consume(kafka, node, topic, "accepts", *one_more) == []
    assert sorted(consume(kafka, node, topic, "rejects", *all_of_them, "--reject")) == values
    assert consume(kafka, node, topic, "rejects", *one_more) == []

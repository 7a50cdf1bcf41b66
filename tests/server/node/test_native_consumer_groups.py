"""The native consumers in consumer groups (KIP-848), on a whole node, next to librdkafka."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal

import pytest

import ottla
from ottla import AsyncConsumer, Consumer, Producer, SubscriptionPattern
from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTITIONS = 4
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(name="bootstrap", scope="module")
def _bootstrap() -> Iterator[str]:
    with Cluster(config=SETTINGS) as cluster:
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([ottla.NewTopic("t", PARTITIONS, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for index in range(PARTITIONS):
                producer.send("t", f"{index}".encode(), partition=index)
        yield cluster.bootstrap


def consumer(
    bootstrap: str,
    group: str,
    protocol: Literal["classic", "consumer"] = "consumer",
    **settings: Any,
) -> Consumer:
    return Consumer(
        "t",
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        **settings,
    )


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> list[bytes | None]:
    """Poll all until the condition holds; return the values."""
    values: list[bytes | None] = []
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        for one in consumers:
            values += [record.value for record in one.poll(0.05)]
    return values


def test_both_protocols_in_one_group(bootstrap: str) -> None:
    """A rolling change from the classic protocol, and back, keeps every partition owned once."""
    with consumer(bootstrap, "roll", "classic", heartbeat_interval_ms=100) as old:
        values = poll_until(lambda: len(old.assignment) == PARTITIONS, old)
        old.commit()
        with consumer(bootstrap, "roll") as new:
            half = PARTITIONS // 2
            values += poll_until(
                lambda: len(old.assignment) == len(new.assignment) == half, old, new
            )
            assert not old.assignment & new.assignment
            new.commit()
            old.commit()
        poll_until(lambda: len(old.assignment) == PARTITIONS, old)
        with ottla.Admin(bootstrap_servers=bootstrap) as admin:
            (listed,) = [one for one in admin.list_groups() if one.group_id == "roll"]
        assert listed.type == "classic"


def test_the_asyncio_consumer_reads_by_a_pattern(bootstrap: str) -> None:
    """The coordinator resolves the pattern; commits continue in the next consumer."""

    async def read() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with AsyncConsumer(
            bootstrap_servers=bootstrap,
            group_id="async",
            group_protocol="consumer",
            auto_offset_reset="earliest",
            group_remote_assignor="range",
        ) as one:
            one.subscribe(pattern=SubscriptionPattern("t|u"))
            while len(found) < PARTITIONS:
                found += [record.value for record in await one.poll(5)]
            await one.commit()
        return found

    assert set(asyncio.run(asyncio.wait_for(read(), 60))) == {b"0", b"1", b"2", b"3"}
    with consumer(bootstrap, "async", group_instance_id="i") as again:
        poll_until(lambda: len(again.assignment) == PARTITIONS, again)
        assert {again.position(one) for one in again.assignment} == {1}

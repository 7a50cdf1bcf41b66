"""Calls of the rebalance listener when its consumer unsubscribes or closes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, AsyncConsumer, Consumer, Producer, TopicPartition
from ottla.clients.consumer.classic_group import ClassicMembership
from ottla.clients.consumer.core import RebalanceListener
from ottla.errors import KafkaError
from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla import ConsumerSettings

TOPIC = "remaining"
BOTH = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Yield the address of a node with a topic of two partitions, a record in each."""
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, 2)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(2):
                producer.send_and_wait(TOPIC, b"v", partition=number)
        yield cluster.bootstrap


class Notes(RebalanceListener):
    """Records its calls; `then` runs at a revocation."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.then: Any = lambda: None

    def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Note it."""
        self.heard.append(("assigned", tuple(sorted(partitions))))

    def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """Note it."""
        self.heard.append(("revoked", tuple(sorted(partitions))))
        self.then()

    def on_partitions_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Note it."""
        self.heard.append(("lost", tuple(sorted(partitions))))


def _member(bootstrap: str, notes: Notes, group: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", **settings
    )
    consumer.subscribe([TOPIC], listener=notes)
    while len(consumer.assignment) < 2:
        consumer.poll(WAIT_S)
    return consumer


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("instance", [None, "i1"])
def test_close_revokes_before_it_leaves(
    bootstrap: str, strategy: str, instance: str | None
) -> None:
    """Dynamic and static, eager and cooperative: revoked once, with everything, committable."""
    notes = Notes()
    consumer = _member(
        bootstrap,
        notes,
        f"g-{strategy}-{instance}",
        partition_assignment_strategy=strategy,
        group_instance_id=instance,
        enable_auto_commit=False,
    )
    still_held = []

    def commit() -> None:
        still_held.append(consumer.assignment)
        consumer.commit(dict.fromkeys(BOTH, 1))

    notes.then = commit
    consumer.close()
    assert notes.heard == [("assigned", BOTH), ("revoked", BOTH)]
    assert still_held == [frozenset(BOTH)]
    consumer.close()
    assert len(notes.heard) == 2
    with Consumer(bootstrap_servers=bootstrap, group_id=f"g-{strategy}-{instance}") as other:
        assert {p: c.offset for p, c in other.committed(BOTH).items() if c} == dict.fromkeys(
            BOTH, 1
        )


def test_unsubscribe_revokes_and_close_says_nothing_more(bootstrap: str) -> None:
    """What was given up is not given up again."""
    notes = Notes()
    consumer = _member(bootstrap, notes, "g-unsubscribe")
    consumer.unsubscribe()
    assert notes.heard == [("assigned", BOTH), ("revoked", BOTH)]
    assert not consumer.assignment
    consumer.close()
    assert len(notes.heard) == 2


def test_who_is_no_member_any_more_hears_that_all_is_lost(bootstrap: str) -> None:
    """The group went on without it: too late to commit."""
    notes = Notes()
    consumer = _member(bootstrap, notes, "g-lost")
    core = consumer._core
    assert isinstance(core.group, ClassicMembership)
    with core.runtime.lock:
        core.group._forget(lost=True)
    consumer.close()
    assert notes.heard == [("assigned", BOTH), ("lost", BOTH)]


def test_partitions_by_hand_are_no_ones_business(bootstrap: str) -> None:
    """Assigned partitions have no listener; a listener of before is forgotten."""
    notes = Notes()
    consumer = _member(bootstrap, notes, "g-by-hand")
    consumer.unsubscribe()
    consumer.assign(BOTH)
    consumer.seek_to_beginning()
    assert len(consumer.poll(WAIT_S)) >= 1
    consumer.close()
    assert notes.heard == [("assigned", BOTH), ("revoked", BOTH)]


def test_what_a_listener_raises_is_raised_when_all_is_closed(bootstrap: str) -> None:
    """The error is not swallowed, and nothing is left running."""
    notes = Notes()
    consumer = _member(bootstrap, notes, "g-raises")

    def fail() -> None:
        message = "listener"
        raise ValueError(message)

    notes.then = fail
    with pytest.raises(ValueError, match="listener"):
        consumer.close()
    assert consumer._thread.loop.is_closed()


def test_a_listener_may_close_the_consumer(bootstrap: str) -> None:
    """It hears of the revocation once, and the outer close finds nothing left to do."""
    notes = Notes()
    consumer = _member(bootstrap, notes, "g-recursive")
    notes.then = consumer.close
    consumer.close()
    assert notes.heard == [("assigned", BOTH), ("revoked", BOTH)]
    assert consumer._thread.loop.is_closed()


def test_coroutines_of_a_listener_are_awaited_by_an_async_close(bootstrap: str) -> None:
    """The asyncio consumer makes the same calls."""

    class Waiting(Notes):
        def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> Any:
            return self.commit_and_note(partitions)

        async def commit_and_note(self, partitions: tuple[TopicPartition, ...]) -> None:
            await consumer.commit()
            super().on_partitions_revoked(partitions)

    notes = Waiting()
    settings: ConsumerSettings = {
        "bootstrap_servers": bootstrap,
        "group_id": "g-async",
        "auto_offset_reset": "earliest",
    }
    consumer: AsyncConsumer

    async def run() -> None:
        nonlocal consumer
        async with AsyncConsumer(**settings) as consumer:
            consumer.subscribe([TOPIC], listener=notes)
            while len(consumer.assignment) < 2:
                await consumer.poll(WAIT_S)

    asyncio.run(run())
    assert notes.heard == [("assigned", BOTH), ("revoked", BOTH)]


def test_wanting_nothing_is_said_by_unsubscribe(bootstrap: str) -> None:
    """An empty list is refused and changes nothing, whichever way it is given."""
    with _member(bootstrap, Notes(), "g-nothing") as consumer:
        with pytest.raises(KafkaError, match=r"unsubscribe|mutually exclusive"):
            consumer.subscribe([])
        with pytest.raises(KafkaError, match="mutually exclusive"):
            consumer.assign([])
        assert consumer.assignment == frozenset(BOTH)

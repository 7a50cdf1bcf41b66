"""Answers of acks=all name the new leader of a partition that moved away meanwhile (KIP-951)."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.errors import ErrorCode
from ottla.server.handlers.produce_answers import ReplicationWaits
from ottla.server.requests.context import Context
from ottla.types import Node, TopicPartition

if TYPE_CHECKING:
    from ottla.protocol.produce_values import PartitionAnswer
    from ottla.replication.leader_state import LeaderState

KEY = TopicPartition("t", 0)
LEADER = Node(2, "two", 9092, None)


def context(replica: object, *, fenced: bool = False) -> Context:
    """Return a request to a broker with a replica; in its metadata broker 2 leads in epoch 4."""
    topic = SimpleNamespace(partitions={0: SimpleNamespace(leader=2, leader_epoch=4)})
    image = SimpleNamespace(
        topics=SimpleNamespace(by_name={"t": topic}),
        cluster=SimpleNamespace(
            brokers={2: SimpleNamespace(fenced=fenced, node=lambda _listener: LEADER)}
        ),
    )
    replicas = SimpleNamespace(find=lambda _topic, _index: replica)
    broker = SimpleNamespace(image=image, replicas=replicas)
    ctx: Any = SimpleNamespace(broker=broker, listener_name="PLAINTEXT")
    ctx.current_leader = partial(Context.current_leader, ctx)
    return cast("Context", ctx)


def leader_state() -> LeaderState:
    """Return the state of a partition without acknowledgements."""
    return cast(
        "LeaderState",
        SimpleNamespace(
            partition=SimpleNamespace(topic_partition=KEY),
            acknowledge=lambda *_args: None,
            acknowledgements=SimpleNamespace(forget_expired=lambda: None),
        ),
    )


@pytest.mark.parametrize(
    ("ctx", "code", "named"),
    [
        (
            context(SimpleNamespace(leader_id=2, leader_epoch=5)),
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (2, 5, LEADER),
        ),
        (context(None), ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 4, LEADER)),
        (context(None, fenced=True), ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 4, None)),
        (context(None), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None),
    ],
    ids=["as the replica knows it", "from the metadata", "without an address", "another error"],
)
def test_an_append_that_lost_its_leader_names_the_next(
    ctx: Context, code: ErrorCode, named: Any
) -> None:
    """The leader's epoch comes from the broker's own replica, else from the metadata."""
    leading = leader_state()
    answers: list[PartitionAnswer] = [("t", 0, 0, 7, -1, 0, (), None, None)]
    waits = ReplicationWaits(ctx, answers, 0)
    waits.begin([(0, leading, 8)])
    waits.acknowledged(0, code)
    assert waits.value == answers
    assert answers == [("t", 0, int(code), 7, -1, 0, (), None, named)]


def test_an_append_that_is_not_replicated_in_time_says_where_it_is() -> None:
    """REQUEST_TIMED_OUT with the offset, the time and the start of the log."""
    answers: list[PartitionAnswer] = [("t", 0, 0, 7, 99, 3, (), None, None)]
    waits = ReplicationWaits(context(None), answers, 0)
    waits.begin([(0, leader_state(), 8)])
    waits.expire()
    assert answers == [("t", 0, int(ErrorCode.REQUEST_TIMED_OUT), 7, 99, 3, (), None, None)]

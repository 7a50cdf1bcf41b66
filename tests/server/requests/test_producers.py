"""DescribeProducers of a partition with many producers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.purgatory.work import MAX_STEPS, Worker
from ottla.server.handlers.transactions import describe_producers
from ottla.storage.producers.entry import ProducerEntry

if TYPE_CHECKING:
    from collections.abc import Callable

_Topic = DescribeProducersRequest.TopicRequest


def test_many_producers_are_described_in_slices() -> None:
    """The loop serves others in between; what is unknown is refused on the way."""
    count = 5 * MAX_STEPS // 2
    producers = {number: ProducerEntry(number) for number in range(count)}
    state = SimpleNamespace(producers=producers)
    partition = SimpleNamespace(check_epoch=lambda: None, log=SimpleNamespace(producer_state=state))
    turns: list[Callable[[], None]] = []
    known = {"t": "an id"}
    ctx: Any = SimpleNamespace(
        broker=SimpleNamespace(
            image=SimpleNamespace(topics=SimpleNamespace(topic_id=known.get)),
            replicas=SimpleNamespace(get=lambda *_: partition),
            worker=Worker(turns.append),
        )
    )
    request = DescribeProducersRequest(
        topics=[_Topic(name=name, partition_indexes=[0]) for name in ("absent", "t")]
    )
    answer = describe_producers(ctx, request)
    assert not answer.done
    turn_count = 1
    while not answer.done:
        turns.pop()()
        turn_count += 1
    absent, found = (topic.partitions[0] for topic in answer.value.topics)
    assert (absent.error_code, len(found.active_producers), turn_count) == (3, count, 3)
    request.topics.pop()
    turns.pop()()
    assert describe_producers(ctx, request).done

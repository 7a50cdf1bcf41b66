"""The order in which a task processes the records of a micro-batch.

Kafka: org.apache.kafka.streams.processor.internals.{PartitionGroup, RecordQueue}.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from ottla.streams.records import RawRecord


def in_order(
    records: Iterable[tuple[int, RawRecord]], global_topics: Container[str]
) -> Iterator[RawRecord]:
    """Yield records with their origins: of all queues' heads the one with the lowest timestamp.

    A queue is what came from one partition, in the order of its offsets. Global topics come first.
    """
    queues: dict[tuple[str, int], list[RawRecord]] = {}
    for origin, record in records:
        queues.setdefault((record.topic, origin), []).append(record)
    heads = []
    for name, queue in sorted(queues.items()):
        queue.sort(key=lambda record: record.offset)
        if name[0] in global_topics:
            yield from queue
        else:
            heads.append((queue[0].timestamp, name, 0))
    heapq.heapify(heads)
    while heads:
        _, name, number = heapq.heappop(heads)
        queue = queues[name]
        yield queue[number]
        if number + 1 < len(queue):
            heapq.heappush(heads, (queue[number + 1].timestamp, name, number + 1))

"""How many members have a name: a topic, a pattern, a protocol.

Kafka: org.apache.kafka.timeline.TimelineHashMap.compute in ModernGroup and ConsumerGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping


def add_counts(counts: MutableMapping[str, int], names: Iterable[str], change: int) -> None:
    """Change the count of each name; names without a count are removed."""
    for name in names:
        count = counts.get(name, 0) + change
        if count:
            counts[name] = count
        else:
            counts.pop(name, None)

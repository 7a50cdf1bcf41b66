"""The built-in assignors, by the names in partition.assignment.strategy.

Kafka: org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.getAssignorInstances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.consumer.assignors.cooperative_sticky import CooperativeStickyAssignor
from ottla.clients.consumer.assignors.range import RangeAssignor
from ottla.clients.consumer.assignors.roundrobin import RoundRobinAssignor
from ottla.clients.consumer.assignors.sticky import StickyAssignor
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.clients.consumer.assignors.interface import Assignor

ASSIGNORS: dict[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def make_assignors(names: tuple[str, ...]) -> dict[str, Assignor]:
    """Return the assignors by name; ConfigError for unknown ones."""
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        raise ConfigError(
            f"partition.assignment.strategy: {', '.join(unknown) or 'empty'}; "
            f"known: {', '.join(ASSIGNORS)}",
        )
    return {name: ASSIGNORS[name]() for name in names}

"""The assignors of the group coordinator.

Kafka: org.apache.kafka.coordinator.group.assignor.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.consumer.assignors.uniform import assign_ranges, assign_uniform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.coordinator.group.consumer.assignors.uniform import AssignorInput
    from ottla.coordinator.group.consumer.group import TopicPartitions
    from ottla.coordinator.group.slices import Steps

ASSIGNORS: Final[Mapping[str, Callable[[AssignorInput], Steps[dict[str, TopicPartitions]]]]] = (
    MappingProxyType({"uniform": assign_uniform, "range": assign_ranges})
)

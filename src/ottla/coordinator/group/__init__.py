"""The group coordinator: consumer groups and their committed offsets."""

from ottla.coordinator.group.context import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    GroupDependencies,
    RequestContext,
    ShareGroupConfig,
    StreamsGroupConfig,
    TopicNames,
)
from ottla.coordinator.group.coordinator import GroupCoordinator

__all__ = [
    "ConsumerGroupConfig",
    "GroupCoordinator",
    "GroupCoordinatorConfig",
    "GroupDependencies",
    "RequestContext",
    "ShareGroupConfig",
    "StreamsGroupConfig",
    "TopicNames",
]

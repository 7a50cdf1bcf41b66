"""The group coordinator: consumer groups and their committed offsets."""

from ottla.coordinator.group.config import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from ottla.coordinator.group.context import GroupDependencies, RequestContext, TopicNames
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

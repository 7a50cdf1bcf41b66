"""The group coordinator: consumer groups and their committed offsets."""

from ottla.coordinator.group.config import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from ottla.coordinator.group.context import RequestContext, TopicNames
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.shard import ConsumerDependencies

__all__ = [
    "ConsumerDependencies",
    "ConsumerGroupConfig",
    "GroupCoordinator",
    "GroupCoordinatorConfig",
    "RequestContext",
    "ShareGroupConfig",
    "StreamsGroupConfig",
    "TopicNames",
]

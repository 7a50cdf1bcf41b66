"""The group coordinator: consumer groups and their committed offsets."""

from ottla.coordinator.group.config import GroupCoordinatorConfig
from ottla.coordinator.group.context import RequestContext, TopicNames
from ottla.coordinator.group.coordinator import GroupCoordinator

__all__ = ["GroupCoordinator", "GroupCoordinatorConfig", "RequestContext", "TopicNames"]

"""Policies for tests: they refuse by names, and tell what they were asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.controller.policies import PolicyViolation
from ottla.metadata.resources import ConfigResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.controller.policies import ChangedConfigs, NewTopic


class NoForbiddenTopics:
    """Refuses topics called forbidden…, and breaks over those called broken…."""

    settings: Mapping[str, Any] = {}
    closed = 0

    def configure(self, settings: Mapping[str, Any]) -> None:
        type(self).settings = settings

    def validate(self, what: NewTopic) -> None:
        if what.topic.startswith("broken"):
            raise ValueError("broken policy")
        if what.topic.startswith("forbidden"):
            shown = (
                what.topic,
                _java(what.num_partitions),
                _java(what.replication_factor),
                _java(what.replicas_assignments),
                _java(dict(sorted(what.configs.items()))),
            )
            raise PolicyViolation(" ".join(shown))

    def close(self) -> None:
        type(self).closed += 1


class NoGuardedChanges(NoForbiddenTopics):
    """Refuses changes of what is called guarded…, and breaks over one value."""

    def validate(self, what: ChangedConfigs) -> None:  # type: ignore[override] # another policy
        if what.configs.get("retention.ms") == "666":
            raise ValueError("broken policy")
        if what.resource.name.startswith("guarded"):
            kind = ConfigResourceType(what.resource.type).name
            configs = _java(dict(sorted(what.configs.items())))
            raise PolicyViolation(f"{kind} {what.resource.name} {configs}")


def _java(value: Any) -> str:
    """Write a value as Java's toString does."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_java(key)}={_java(one)}" for key, one in value.items()) + "}"
    return str(value)


class NoPolicy:
    """Lacks what a policy needs."""


class Moody(NoForbiddenTopics):
    """Cannot be configured."""

    def configure(self, settings: Mapping[str, Any]) -> None:
        raise ValueError("not today")

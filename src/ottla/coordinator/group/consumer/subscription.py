"""The topics of a group's subscriptions, by name and by pattern.

Kafka: ConsumerGroup.{computeSubscribedTopicNames, subscriptionType}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.member import ConsumerMember


def topics_of(group: ConsumerGroup, member: ConsumerMember) -> tuple[str, ...]:
    """Return the topics of a member's subscription, by name and by pattern."""
    pattern = member.subscribed_regex
    resolved = group.resolved.get(pattern) if pattern else None
    if resolved is None:
        return member.subscribed_topics
    return tuple(dict.fromkeys((*member.subscribed_topics, *resolved.topics)))


def subscribed_topics(
    group: ConsumerGroup,
    added: Iterable[ConsumerMember] = (),
    removed: Iterable[ConsumerMember] = (),
) -> set[str]:
    """Return all topics of the group's subscriptions after members were added and removed."""
    names = dict(group.topic_counts.items())
    patterns = dict(group.regex_counts.items())
    for members, change in ((removed, -1), (added, 1)):
        for member in members:
            for name in member.subscribed_topics:
                names[name] = names.get(name, 0) + change
            if member.subscribed_regex:
                pattern = member.subscribed_regex
                patterns[pattern] = patterns.get(pattern, 0) + change
    found = {name for name, count in names.items() if count > 0}
    for pattern, count in patterns.items():
        resolved = group.resolved.get(pattern)
        if count > 0 and resolved is not None:
            found.update(resolved.topics)
    return found

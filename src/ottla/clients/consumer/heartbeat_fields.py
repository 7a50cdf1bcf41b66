"""The requests of a member of a consumer group: a field is sent when it has changed.

Kafka: ConsumerHeartbeatRequestManager.HeartbeatState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.consumer.subscription import Subscription
    from ottla.clients.settings import ValidatedSettings
    from ottla.types import TopicPartition, Uuid


class _Subscribed(NamedTuple):
    """A subscription as sent to the coordinator."""

    topics: tuple[str, ...]
    pattern: str


class HeartbeatFields:
    """Builds heartbeats; tracks what the coordinator has received."""

    def __init__(
        self, settings: ValidatedSettings, group_id: str, subscription: Subscription
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._subscription = subscription
        self._sending: _Subscribed | None = None
        self._known: _Subscribed | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the next heartbeat has all fields."""
        return self._known is None

    def has_new_subscription(self) -> bool:
        """Whether the subscription has changed since the coordinator received it."""
        return self._known is not None and self._current() != self._known

    def _current(self) -> _Subscribed:
        remote = self._subscription.remote_pattern
        topics = () if remote is not None else tuple(sorted(self._subscription.topics))
        return _Subscribed(topics, remote or "")

    def request(
        self, member_id: str, epoch: int, owned: Iterable[tuple[Uuid, TopicPartition]] | None
    ) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat; owned is None where the coordinator knows it."""
        current = self._sending = self._current()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
            topic_partitions=None if owned is None else _by_topic(owned),
        )
        if self._known is None:
            request.rebalance_timeout_ms = self._settings.max_poll_interval_ms
            request.rack_id = self._settings.client_rack or None
            request.server_assignor = self._settings.group_remote_assignor
            request.subscribed_topic_names = list(current.topics)
            request.subscribed_topic_regex = current.pattern or None
            return request
        if current.topics != self._known.topics:
            request.subscribed_topic_names = list(current.topics)
        if current.pattern != self._known.pattern:
            request.subscribed_topic_regex = current.pattern
        return request

    def leave(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """Return the last heartbeat."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
        )

    def sent(self) -> None:
        """Note that the coordinator has received the last heartbeat."""
        self._known = self._sending

    def reset(self) -> None:
        """Send all fields with the next heartbeat."""
        self._known = self._sending = None


def _by_topic(
    owned: Iterable[tuple[Uuid, TopicPartition]],
) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    found: dict[Uuid, list[int]] = {}
    for topic_id, partition in owned:
        found.setdefault(topic_id, []).append(partition.partition)
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in found.items()
    ]

"""The names of mirrored topics and of the topics of the mirror itself.

Kafka: org.apache.kafka.connect.mirror.{ReplicationPolicy, DefaultReplicationPolicy,
IdentityReplicationPolicy}.
"""

from __future__ import annotations

from typing import Final

HEARTBEATS: Final = "heartbeats"


class DefaultReplicationPolicy:
    """Names a topic of cluster A `A.topic` elsewhere, so that mirrors may run in circles."""

    def __init__(self, separator: str = ".", *, internal_separator_enabled: bool = True) -> None:
        """Take replication.policy.separator, and whether internal topics use it, too."""
        self.separator = separator
        self._internal = separator if internal_separator_enabled else "."

    def format_remote_topic(self, source: str, topic: str) -> str:
        """Return the name that a topic of the source cluster has in others."""
        return source + self.separator + topic

    def topic_source(self, topic: str) -> str | None:
        """Return the alias of the cluster that a topic was mirrored from, None for a local one."""
        source, separator, rest = topic.partition(self.separator)
        # A name of an alias and separators only is local, since Java's split drops empty ends.
        return source if separator and rest.replace(self.separator, "") else None

    def upstream_topic(self, topic: str) -> str | None:
        """Return the name of a mirrored topic in its source, None for a local one."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        """Return the name of a topic in the cluster where it began."""
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic

    def offset_syncs_topic(self, alias: str) -> str:
        """Return the topic of offset syncs; the alias is of the cluster at the other end."""
        between = self._internal
        return f"mm2-offset-syncs{between}{alias}{between}internal"

    def checkpoints_topic(self, source: str) -> str:
        """Return the topic of the checkpoints of a source cluster, in the target."""
        return f"{source}{self._internal}checkpoints{self._internal}internal"

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether a topic has heartbeats, of this cluster or of others."""
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints_topic(self, topic: str) -> bool:
        """Whether a topic has the checkpoints of a mirror."""
        return topic.endswith(f"{self._internal}checkpoints{self._internal}internal")

    def is_internal_topic(self, topic: str) -> bool:
        """Whether a topic is Kafka's or the mirror's own, which is never mirrored."""
        is_mirrors = topic.startswith("mm2") and topic.endswith(f"{self._internal}internal")
        return topic.startswith(("__", ".")) or is_mirrors or self.is_checkpoints_topic(topic)

    def is_cycle(self, topic: str, target: str) -> bool:
        """Whether a topic came from the target cluster, at any hop."""
        while (source := self.topic_source(topic)) is not None:
            if source == target:
                return True
            upstream = self.upstream_topic(topic)
            if upstream is None or upstream == topic:
                return False  # identical names do not show where a topic came from
            topic = upstream
        return False


class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Keeps the names of topics, but of heartbeats; mirrors must not run in circles (KIP-690)."""

    def __init__(
        self, source: str, separator: str = ".", *, internal_separator_enabled: bool = True
    ) -> None:
        """Take the alias of the source cluster, from which every topic seems to come."""
        super().__init__(separator, internal_separator_enabled=internal_separator_enabled)
        self._source = source

    def format_remote_topic(self, source: str, topic: str) -> str:
        """Return the same name, except for heartbeats."""
        if topic.endswith(HEARTBEATS):
            return super().format_remote_topic(source, topic)
        return topic

    def topic_source(self, topic: str) -> str | None:
        """Return the source cluster."""
        return super().topic_source(topic) if topic.endswith(HEARTBEATS) else self._source

    def upstream_topic(self, topic: str) -> str | None:
        """Return the same name, except for heartbeats."""
        return super().upstream_topic(topic) if topic.endswith(HEARTBEATS) else topic

"""Statuses that a heartbeat's response reports in addition to errors.

Kafka: org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse.Status,
org.apache.kafka.coordinator.group.streams.topics.TopicConfigurationException.
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Codes in Kafka's spelling."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicConfigurationError(Exception):
    """The topics of a topology do not fit: members stay in the group without tasks."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status

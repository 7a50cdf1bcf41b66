"""Creates topics on first use: those that clients name, and internal ones.

Kafka: kafka.server.AutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.server.broker.internal_topics import (
    INTERNAL_TOPICS,
    REPLICATION_FACTORS,
    internal_topic_settings,
)
from ottla.server.logging.texts import MAX_LISTED, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.apis.create_topics import CreateTopicsResponse
    from ottla.purgatory.pending import Pending
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.controller.channel import ControllerChannel, Requester

log: Final = logging.getLogger("ottla.broker")
_EVENT: Final = {"event": "topic.not_created"}
_CREATED: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
_BROKER_DEFAULT: Final = -1
"""num_partitions or replication_factor of a request that leaves it to the cluster's settings."""


class TopicAutoCreation:
    """Sends at most one request for a topic at a time."""

    def __init__(self, metadata: BrokerMetadata, controller: ControllerChannel) -> None:
        self._metadata = metadata
        self._controller = controller
        self._creating: set[str] = set()
        self._failures: dict[str, str | None] = {}
        """Last reported errors of internal topics: clients that need them retry every second."""

    def create(self, names: Sequence[str], requester: Requester | None = None) -> None:
        """Begin to create topics, counted in the mutation quota of the requester."""
        missing = [name for name in names if name not in self._creating]
        if missing:
            self._creating.update(missing)
            request = CreateTopicsRequest(
                topics=[self._creatable(name) for name in missing],
                timeout_ms=self._metadata.config.request_timeout_ms,
            )
            if requester is not None:
                requester = requester._replace(api_version=request.versions.highest)
            created = self._controller.send(request, requester)
            created.on_done(lambda done: self._created(missing, done))

    def _created(self, names: Sequence[str], created: Pending[CreateTopicsResponse]) -> None:
        """Report what could not be created: clients get only retriable errors."""
        self._creating.difference_update(names)
        if created.error is not None:
            text = (
                "Auto topic creation failed for %s: %s; clients retry, see the controller's lines"
            )
            log.warning(text, listed(names), created.error, extra=_EVENT)
            return
        failures: dict[tuple[ErrorCode, str | None], list[str]] = {}
        for topic in created.value.topics:
            code = ErrorCode(topic.error_code)
            if code in _CREATED:
                continue
            if topic.name in INTERNAL_TOPICS:
                self._report_internal(topic.name, code, topic.error_message)
            else:
                failures.setdefault((code, topic.error_message), []).append(topic.name)
        for (code, message), failed in islice(failures.items(), MAX_LISTED):
            advice = "correct the settings of new topics, or create it with ottla topics"
            _report(listed(failed), code, message, advice)

    def _report_internal(self, name: str, code: ErrorCode, message: str | None) -> None:
        """Report a failure that has not been reported yet."""
        if self._failures.get(name) == message:
            return
        self._failures[name] = message
        advice = "correct the settings of new topics, or create it with ottla topics"
        if code is ErrorCode.INVALID_REPLICATION_FACTOR and name in REPLICATION_FACTORS:
            advice = f"set {REPLICATION_FACTORS[name]} to the number of brokers, then restart"
        _report(name, code, message, advice)

    def _creatable(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        topic = CreateTopicsRequest.CreatableTopic
        settings = internal_topic_settings(name, self._metadata.config)
        if settings is None:
            return topic(
                name=name,
                num_partitions=_BROKER_DEFAULT,
                replication_factor=_BROKER_DEFAULT,
                assignments=[],
                configs=[],
            )
        return topic(
            name=name,
            num_partitions=settings.partitions,
            replication_factor=settings.replication_factor,
            assignments=[],
            configs=[
                topic.CreatableTopicConfig(name=key, value=value)
                for key, value in settings.configs.items()
            ],
        )


def _report(names: str, code: ErrorCode, message: str | None, advice: str) -> None:
    text = "Auto topic creation failed for %s with error '%s': %s; %s"
    log.warning(text, names, code.name, message, advice, extra=_EVENT)

"""Creates the internal topics of streams applications: repartition topics and changelogs.

Kafka: AutoTopicCreationManager.{createStreamsInternalTopics,
getStreamsInternalTopicCreationErrors} (KIP-1071).
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.server.logging.texts import MAX_LISTED, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clock import Clock
    from ottla.coordinator.group.streams.configuration import InternalTopic
    from ottla.protocol.apis.create_topics import CreateTopicsResponse
    from ottla.purgatory.pending import Pending
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.controller.channel import ControllerChannel, Requester

log: Final = logging.getLogger("ottla.broker")
_BROKER_DEFAULT: Final = -1
_MAX_ERRORS: Final = 1000


class StreamsTopicCreation:
    """Sends at most one request for a topic at a time; keeps errors for a limited time."""

    def __init__(
        self, metadata: BrokerMetadata, controller: ControllerChannel, clock: Clock
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._clock = clock
        self._creating: set[str] = set()
        self._errors: dict[str, tuple[str, int]] = {}
        """By topic: the text, and the monotonic time in ms until which the topic is not retried."""

    def create(
        self, topics: Mapping[str, InternalTopic], requester: Requester, error_ttl_ms: int
    ) -> None:
        """Begin to create topics with the rights and the mutation quota of a member.

        A topic that fails is not retried for error_ttl_ms.
        """
        failed = self.errors(topics)
        missing = [name for name in topics if name not in self._creating and name not in failed]
        if not missing:
            return
        self._creating.update(missing)
        request = CreateTopicsRequest(
            topics=[_creatable(topics[name]) for name in missing],
            timeout_ms=self._metadata.config.request_timeout_ms,
        )
        requester = requester._replace(api_version=request.versions.highest)
        created = self._controller.send(request, requester)
        created.on_done(lambda done: self._created(missing, done, error_ttl_ms))

    def errors(self, names: Iterable[str]) -> dict[str, str]:
        """Return the errors of topics that could not be created, until they are retried."""
        now_ms = self._clock.monotonic_ms()
        found = {name: self._errors[name] for name in names if name in self._errors}
        return {name: text for name, (text, until_ms) in found.items() if now_ms < until_ms}

    def _created(
        self, names: Sequence[str], created: Pending[CreateTopicsResponse], ttl_ms: int
    ) -> None:
        self._creating.difference_update(names)
        now_ms = self._clock.monotonic_ms()
        self._errors = {key: one for key, one in self._errors.items() if now_ms < one[1]}
        failures: dict[str, list[str]] = {}
        if created.error is not None:
            failures[str(created.error)] = list(names)
        else:
            for topic in created.value.topics:
                if topic.error_code:
                    text = topic.error_message or ErrorCode(topic.error_code).text
                    failures.setdefault(text, []).append(topic.name)
        for text, failed in failures.items():
            for name in failed:
                self._keep(name, text, now_ms + ttl_ms)
        for text, failed in islice(failures.items(), MAX_LISTED):
            log.warning(
                "Internal topics %s of a streams group were not created: %s; members retry",
                listed(failed),
                text,
                extra={"event": "streams.topic_not_created"},
            )

    def _keep(self, name: str, text: str, until_ms: int) -> None:
        while len(self._errors) >= _MAX_ERRORS:
            del self._errors[next(iter(self._errors))]
        self._errors[name] = (text, until_ms)


def _creatable(topic: InternalTopic) -> CreateTopicsRequest.CreatableTopic:
    creatable = CreateTopicsRequest.CreatableTopic
    return creatable(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or _BROKER_DEFAULT,
        assignments=[],
        configs=[
            creatable.CreatableTopicConfig(name=key, value=value)
            for key, value in topic.configs.items()
        ],
    )

"""The topics that brokers create: on request, for coordinators, for streams applications.

Kafka: kafka.server.AutoTopicCreationManager; AutoTopicCreationManager.{createStreamsInternalTopics,
getStreamsInternalTopicCreationErrors} (KIP-1071); org.apache.kafka.common.internals.Topic,
GroupCoordinatorService.groupMetadataTopicConfigs,
TransactionCoordinator.transactionStateTopicConfigs, ShareCoordinatorService.
"""

from __future__ import annotations

import logging
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.server.logging.lines import MAX_LISTED, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.group.streams.configuration import InternalTopic
    from ottla.protocol.apis.create_topics import CreateTopicsResponse
    from ottla.purgatory.pending import Pending
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.controller.channel import ControllerChannel, Requester

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})

REPLICATION_FACTORS: Mapping[str, str] = MappingProxyType(
    {
        OFFSETS_TOPIC: "offsets.topic.replication.factor",
        TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
        SHARE_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
    }
)
"""The settings of their replication factors."""


class InternalTopicDefinition(NamedTuple):
    """How an internal topic is created."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


def _offsets(config: BrokerConfig) -> InternalTopicDefinition:
    return InternalTopicDefinition(
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
    )


def _transaction_state(config: BrokerConfig) -> InternalTopicDefinition:
    return InternalTopicDefinition(
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
    )


def _share_state(config: BrokerConfig) -> InternalTopicDefinition:
    return InternalTopicDefinition(
        config.share_coordinator_state_topic_num_partitions,
        config.share_coordinator_state_topic_replication_factor,
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            "retention.ms": "-1",
        },
    )


_SETTINGS: Mapping[str, Callable[[BrokerConfig], InternalTopicDefinition]] = MappingProxyType(
    {
        OFFSETS_TOPIC: _offsets,
        TRANSACTION_STATE_TOPIC: _transaction_state,
        SHARE_STATE_TOPIC: _share_state,
    }
)

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
        # a Metadata request may create an internal topic before a coordinator needs it
        make = _SETTINGS.get(name)
        settings = None if make is None else make(self._metadata.config)
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

"""Stored settings: validation of changes and their records.

Kafka: org.apache.kafka.controller.ConfigurationControlManager.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ottla.config.topic import broker_defaults
from ottla.config.topic import definition_of as topic_definition_of
from ottla.controller.config_operations import (
    check_broker,
    check_settings,
    incremental_changes,
    replacing_changes,
)
from ottla.controller.policies import ChangedConfigs
from ottla.controller.result import ControllerResult, specific_message
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.bootstrap import MIN_INSYNC_REPLICAS
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.image.configs import is_supported
from ottla.metadata.resources import CLUSTER_DEFAULT, ConfigResourceType, ConfiguredResource
from ottla.protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.records.metadata import ClearElrRecord, ConfigRecord
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.controller.config_operations import BrokerRefusal
    from ottla.controller.features import FeatureControl
    from ottla.controller.policies import Policies
    from ottla.timeline import SnapshotRegistry

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_MAX_VALUE_BYTES: Final = 32_767


class ConfigControl:
    """Settings by resource; a resource's mapping is replaced, never changed in place."""

    def __init__(
        self,
        registry: SnapshotRegistry,
        *,
        config: BrokerConfig,
        features: FeatureControl,
        policies: Policies,
        check_exists: Callable[[ConfiguredResource], None],
        broker_refusal: BrokerRefusal | None,
    ) -> None:
        """`check_exists` raises KafkaError for a topic or broker that does not exist.

        `broker_refusal(broker, settings)` is called before settings of brokers change; its text
        refuses them. None where the node is only a controller.
        """
        self._settings: TimelineDict[ConfiguredResource, Mapping[str, str]] = TimelineDict(registry)
        self._config = config
        self._features = features
        self._policies = policies
        self._check_exists = check_exists
        self._broker_refusal = broker_refusal

    def of(self, resource: ConfiguredResource) -> Mapping[str, str]:
        """Return what is stored for a resource."""
        settings: Mapping[str, str] = self._settings.get(resource, _NOTHING)
        return settings

    def topic(self, name: str) -> Mapping[str, str]:
        """Return a topic's own settings."""
        return self.of(ConfiguredResource(ConfigResourceType.TOPIC, name))

    def effective(self, topic: str, name: str) -> str | None:
        """Return a topic's value: its own, the cluster's, the broker file's or the default."""
        stored = self._stored(topic, name)
        if stored is not None:
            return stored
        definition = topic_definition_of(name)
        default = broker_defaults(self._config).get(name)
        return definition.text(default) if definition else None

    def _stored(self, topic: str, name: str) -> str | None:
        """Return a topic's own value, else the cluster's; None when neither is stored."""
        own = self.topic(topic).get(name)
        return self.of(CLUSTER_DEFAULT).get(name) if own is None else own

    def for_elr(self) -> list[MessageAndVersion]:
        """Return records that set min.insync.replicas only for topics and the cluster, for ELR.

        The cluster's value stays, or is set to this node's. Those of brokers are removed.
        """
        cleared: list[tuple[str, str | None]] = [
            (resource.name, None)
            for resource, settings in self._settings.items()
            if resource.type == ConfigResourceType.BROKER
            and resource != CLUSTER_DEFAULT
            and MIN_INSYNC_REPLICAS in settings
        ]
        if MIN_INSYNC_REPLICAS not in self.of(CLUSTER_DEFAULT):
            cleared.insert(0, (CLUSTER_DEFAULT.name, str(self._config.min_insync_replicas)))
        records = (
            ConfigRecord(
                resource_type=ConfigResourceType.BROKER,
                resource_name=name,
                name=MIN_INSYNC_REPLICAS,
                value=value,
            )
            for name, value in cleared
        )
        return [MessageAndVersion(record, 0) for record in records]

    def min_insync_replicas(self, topic: str) -> int:
        """Return the topic's min.insync.replicas."""
        stored = self._stored(topic, MIN_INSYNC_REPLICAS)
        return self._config.min_insync_replicas if stored is None else int(stored)

    def allows_unclean_election(self, topic: str) -> bool:
        """Whether a replica that is out of sync may lead the topic."""
        stored = self._stored(topic, "unclean.leader.election.enable")
        if stored is None:
            return bool(self._config.unclean_leader_election_enable)
        return stored.strip().lower() == "true"

    # Replay

    def replay_config(self, record: ConfigRecord) -> None:
        """Set or (null) remove one setting."""
        if not is_supported(record.resource_type, record.name):
            return
        resource = ConfiguredResource(record.resource_type, record.resource_name)
        settings = dict(self.of(resource))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self._settings[resource] = settings
        else:
            self._settings.pop(resource, None)

    def topic_removed(self, name: str) -> None:
        """Forget a deleted topic's settings."""
        self._settings.pop(ConfiguredResource(ConfigResourceType.TOPIC, name), None)

    # Operations

    def new_topic_records(
        self, name: str, settings: Mapping[str, str | None]
    ) -> list[MessageAndVersion]:
        """Return the config records of a new topic; KafkaError INVALID_CONFIG."""
        empty = [key for key, value in settings.items() if value is None]
        if empty:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {','.join(empty)}",
            )
        resource = ConfiguredResource(ConfigResourceType.TOPIC, name)
        changes = {key: value for key, value in settings.items() if value is not None}
        return self._records(resource, dict(changes), exists=True)

    def alter_incrementally(
        self, request: IncrementalAlterConfigsRequest
    ) -> ControllerResult[IncrementalAlterConfigsResponse]:
        """Change single settings; each resource succeeds or fails on its own."""
        records, outcomes = self._each(
            request,
            lambda key, configs: self._records(
                key, incremental_changes(key, configs, self.of(key), self._check_exists)
            ),
        )
        outcome = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        responses = [outcome(**fields) for fields in outcomes]
        return ControllerResult(records, IncrementalAlterConfigsResponse(responses=responses))

    def alter(self, request: AlterConfigsRequest) -> ControllerResult[AlterConfigsResponse]:
        """Replace all settings of resources (the old API): unnamed settings are removed."""
        records, outcomes = self._each(request, self._replacement)
        outcome = AlterConfigsResponse.AlterConfigsResourceResponse
        responses = [outcome(**fields) for fields in outcomes]
        return ControllerResult(records, AlterConfigsResponse(responses=responses))

    def _each(
        self,
        request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
        records_of: Callable[[ConfiguredResource, list[Any]], list[MessageAndVersion]],
    ) -> tuple[list[MessageAndVersion], list[dict[str, Any]]]:
        """Return the records of all resources, and the fields of each one's outcome."""
        records: list[MessageAndVersion] = []
        outcomes: list[dict[str, Any]] = []
        duplicates = _duplicates([(r.resource_type, r.resource_name) for r in request.resources])
        for resource in request.resources:
            key = ConfiguredResource(resource.resource_type, resource.resource_name)
            error: KafkaError | None = None
            try:
                if tuple(key) in duplicates:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                    )
                records += records_of(key, resource.configs)
            except KafkaError as problem:
                error = problem
            outcomes.append(
                {
                    "error_code": error.code if error else 0,
                    "error_message": specific_message(error),
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
            )
        return [] if request.validate_only else records, outcomes

    def _replacement(
        self,
        key: ConfiguredResource,
        configs: list[AlterConfigsRequest.AlterConfigsResource.AlterableConfig],
    ) -> list[MessageAndVersion]:
        changes, implied = replacing_changes(key, configs, self.of(key))
        return self._records(key, changes, implied=implied)

    def _records(
        self,
        resource: ConfiguredResource,
        changes: dict[str, str | None],
        *,
        exists: bool = False,
        implied: Collection[str] = (),
    ) -> list[MessageAndVersion]:
        """Validate the resulting settings and return the records of the change.

        `implied` are removals that the request does not name; policies do not see them.
        """
        old = self.of(resource)
        new = {name: value for name, value in {**old, **changes}.items() if value is not None}
        if resource.type == ConfigResourceType.BROKER:
            check_broker(
                resource,
                new,
                changes,
                config=self._config,
                check_exists=self._check_exists,
                refusal=self._broker_refusal,
            )
        _check_sizes(changes)
        self._check_min_insync_replicas(resource, changes)
        if resource.type != ConfigResourceType.BROKER:
            check_settings(resource, new, changes=changes, config=self._config, existing=old)
            if not exists and resource.name:
                self._check_exists(resource)
        records: list[MessageAndVersion] = []
        # An unchanged broker setting is recorded again: it may name a file that changed.
        written = {
            name: value
            for name, value in changes.items()
            if old.get(name) != value or resource.type == ConfigResourceType.BROKER
        }
        named = {name: value for name, value in written.items() if name not in implied}
        self._policies.check_alteration(ChangedConfigs(resource, named))
        for name, value in written.items():
            record = ConfigRecord(
                resource_type=resource.type,
                resource_name=resource.name,
                name=name,
                value=value,
            )
            records.append(MessageAndVersion(record, 0))
        if (
            MIN_INSYNC_REPLICAS in written
            and self._features.is_elr_enabled
            and resource.type in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER)
        ):
            topic = resource.name if resource.type == ConfigResourceType.TOPIC else ""
            records.append(MessageAndVersion(ClearElrRecord(topic_name=topic), 0))
        return records

    def _check_min_insync_replicas(
        self, resource: ConfiguredResource, changes: Mapping[str, str | None]
    ) -> None:
        """Refuse changes that make min.insync.replicas differ between brokers (KIP-966)."""
        if (
            resource.type != ConfigResourceType.BROKER
            or MIN_INSYNC_REPLICAS not in changes
            or not self._features.is_elr_enabled
        ):
            return
        if resource.name:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
            )
        if changes[MIN_INSYNC_REPLICAS] is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
            )


def _check_sizes(changes: Mapping[str, str | None]) -> None:
    for value in changes.values():
        if value is not None and len(value.encode()) > _MAX_VALUE_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value "
                f"size of {_MAX_VALUE_BYTES} bytes.",
            )


def _duplicates(resources: list[tuple[int, str]]) -> set[tuple[int, str]]:
    seen: set[tuple[int, str]] = set()
    return {key for key in resources if key in seen or seen.add(key)}  # type: ignore[func-returns-value]  # `add` returns None on purpose

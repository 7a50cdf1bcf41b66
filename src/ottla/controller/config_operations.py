"""Applies the operations of a request to a resource's settings, and validates the result.

Brokers check settings of their own before they forward a change; the active controller checks
again.

Kafka: kafka.server.ConfigAdminManager, org.apache.kafka.controller.ConfigurationControlManager;
kafka.server.{ControllerConfigurationValidator, ConfigAdminManager},
org.apache.kafka.coordinator.group.GroupConfig.validate;
KafkaConfigSchema.resolveEffectiveTopicConfigs.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.config.definition import Type
from ottla.config.dynamic import check_dynamic
from ottla.config.dynamic import definition_of as broker_definition_of
from ottla.config.group import ClientMetricsConfig, GroupConfig, client_pattern
from ottla.config.problems import ConfigErrors
from ottla.config.topic import (
    BROKER_SYNONYMS,
    broker_defaults,
    definition_of,
    parse_topic_config,
    public_names,
)
from ottla.config.topic import definition_of as topic_definition_of
from ottla.controller.topics import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.protocol.apis.create_topics import CreateTopicsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.config.definition import Key
    from ottla.protocol.apis.alter_configs import AlterConfigsRequest
    from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest

    BrokerRefusal: TypeAlias = Callable[[str, Mapping[str, str]], str | None]
    ExistenceCheck: TypeAlias = Callable[[ConfiguredResource], None]
    Operation = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
    Replacement = AlterConfigsRequest.AlterConfigsResource.AlterableConfig

_TOPIC_CONFIG: Final = 1
_DYNAMIC_BROKER_CONFIG: Final = 2
_DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
_STATIC_BROKER_CONFIG: Final = 4
_DEFAULT_CONFIG: Final = 5

_Entry: TypeAlias = CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs


class EffectiveConfigs:
    """Resolved once for each request; topics without own settings share the entries."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        cluster_settings: Mapping[str, str],
        node_settings: Mapping[str, str],
    ) -> None:
        defaults = broker_defaults(config)
        self._entries: dict[str, _Entry] = {}
        for name in sorted(public_names()):
            definition = definition_of(name)
            assert definition is not None, "a public name without a definition"
            value = definition.text(defaults.get(name, definition.default))
            source = _DEFAULT_CONFIG
            for synonym in BROKER_SYNONYMS.get(name, ()):
                if synonym in node_settings:
                    value, source = node_settings[synonym], _DYNAMIC_BROKER_CONFIG
                elif synonym in cluster_settings:
                    value, source = cluster_settings[synonym], _DYNAMIC_DEFAULT_BROKER_CONFIG
                elif synonym in config.given:
                    source = _STATIC_BROKER_CONFIG
                else:
                    continue
                break
            self._entries[name] = _entry(name, value, source)

    def of(self, own: Mapping[str, str]) -> list[_Entry]:
        """Return all settings of a topic with the given own ones, sorted by name."""
        if not own:
            return list(self._entries.values())
        return [
            _entry(name, own[name], _TOPIC_CONFIG) if name in own else entry
            for name, entry in self._entries.items()
        ]


def _entry(name: str, value: str | None, source: int) -> _Entry:
    return _Entry(name=name, value=value, read_only=False, config_source=source, is_sensitive=False)


# A group setting, the broker setting that bounds it, and whether that is the lower bound.
_GROUP_BOUNDS: Final = (
    *(
        (f"{kind}.{name}", f"group.{kind}.{bound}.{name}", bound == "min")
        for kind in ("consumer", "share", "streams")
        for name in ("session.timeout.ms", "heartbeat.interval.ms")
        for bound in ("min", "max")
    ),
    ("share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms", True),
    ("share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms", False),
    ("share.delivery.count.limit", "group.share.min.delivery.count.limit", True),
    ("share.delivery.count.limit", "group.share.max.delivery.count.limit", False),
    ("share.partition.max.record.locks", "group.share.min.partition.max.record.locks", True),
    ("share.partition.max.record.locks", "group.share.max.partition.max.record.locks", False),
    ("streams.num.standby.replicas", "group.streams.max.standby.replicas", False),
)

_MIN_INTERVAL_MS: Final = 100
_LONGEST_INTERVAL_MS: Final = 3_600_000


def check_settings(
    resource: ConfiguredResource,
    settings: Mapping[str, str],
    *,
    changes: Mapping[str, str | None],
    config: BrokerConfig,
    existing: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Validate all settings of a resource against the existing ones that they replace.

    KafkaError INVALID_CONFIG or INVALID_REQUEST.
    """
    match resource.type:
        case ConfigResourceType.TOPIC:
            if not resource.name:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
                )
            check_topic_name(resource.name)
            _check_topic(settings, config, existing)
        case ConfigResourceType.BROKER:
            values = {key: value for key, value in changes.items() if value is not None}
            problems = check_dynamic(values, one_broker=bool(resource.name))
            if problems:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(problems[0]))
        case ConfigResourceType.GROUP:
            _check_group(resource.name, settings, config)
        case ConfigResourceType.CLIENT_METRICS:
            _check_client_metrics(resource.name, settings)


def _check_topic(
    settings: Mapping[str, str], config: BrokerConfig, existing: Mapping[str, str]
) -> None:
    if not settings and not existing:
        return
    try:
        parse_topic_config(settings, config, existing)
    except ConfigErrors as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error.problems[0])) from error


def _check_group(name: str, settings: Mapping[str, str], config: BrokerConfig) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    for unknown in GroupConfig.unknown(settings):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {unknown}")
    try:
        group = GroupConfig.parse(settings)
    except ConfigErrors as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error.problems[0])) from error
    for key, bound, is_lower in _GROUP_BOUNDS:
        if key not in settings or bound not in config.keys:
            continue
        value, limit = group.value(key), config.value(bound)
        if (value < limit) if is_lower else (value > limit):
            relation = "greater" if is_lower else "less"
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{key} must be {relation} than or equal to {bound}"
            )


def _check_client_metrics(name: str, settings: Mapping[str, str]) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for unknown in ClientMetricsConfig.unknown(settings):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown}"
        )
    try:
        metrics = ClientMetricsConfig.parse(settings)
    except ConfigErrors as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error.problems[0])) from error
    interval_ms = metrics.value("interval.ms")
    if not _MIN_INTERVAL_MS <= interval_ms <= _LONGEST_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{_MIN_INTERVAL_MS} and {_LONGEST_INTERVAL_MS} (1 hour)",
        )
    for pattern in metrics.match:
        if client_pattern(pattern) is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}"
            )


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_changes(
    resource: ConfiguredResource,
    configs: Sequence[Operation],
    current: Mapping[str, str],
    check_exists: ExistenceCheck,
) -> dict[str, str | None]:
    """Convert operations to new values; None removes a setting."""
    empty = [
        config.name
        for config in configs
        if config.value is None and config.config_operation != ConfigOperation.DELETE
    ]
    _check_names([config.name for config in configs], empty)
    _check_type(resource)
    if resource.type == ConfigResourceType.BROKER and resource.name:
        check_exists(resource)
    if resource.type == ConfigResourceType.BROKER:
        for operation in (config.config_operation for config in configs):
            if operation not in {*ConfigOperation}:  # before other errors, as in Kafka
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    return {config.name: _changed(resource, config, current) for config in configs}


def _changed(
    resource: ConfiguredResource, config: Operation, current: Mapping[str, str]
) -> str | None:
    operation, value = config.config_operation, config.value or ""
    if operation == ConfigOperation.DELETE:
        return None
    if operation == ConfigOperation.SET:
        return value
    if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        return _edit_list(resource, config.name, value, ConfigOperation(operation), current)
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, where the lookup fails


def _edit_list(
    resource: ConfiguredResource,
    name: str,
    value: str,
    operation: ConfigOperation,
    stored: Mapping[str, str],
) -> str:
    definition = _definition(resource.type, name)
    if definition is None and resource.type == ConfigResourceType.BROKER:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if definition is None or definition.type is not Type.LIST:
        text = f"Can't {operation.name} to key {name} because its type is not LIST."
        if resource.type == ConfigResourceType.BROKER:  # Kafka's brokers validate it first
            verb = operation.name.lower()
            text = f"Config value {verb} is not allowed for config key: {name}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    current = stored.get(name)
    if current is None:  # the node's own file is ignored, as in Kafka
        current = definition.text(definition.default) or ""
    entries = [entry for entry in _split(current) if entry]
    for entry in _split(value):
        if operation is ConfigOperation.APPEND and entry not in entries:
            entries.append(entry)
        elif operation is ConfigOperation.SUBTRACT and entry in entries:
            entries.remove(entry)
    return ",".join(entries)


def replacing_changes(
    resource: ConfiguredResource, configs: Sequence[Replacement], current: Mapping[str, str]
) -> tuple[dict[str, str | None], Collection[str]]:
    """Return the values that leave exactly these settings, and which removals are implied."""
    names = [config.name for config in configs]
    _check_names(names, [config.name for config in configs if config.value is None])
    if resource.type == ConfigResourceType.BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown resource type 8")
    _check_type(resource)
    changes: dict[str, str | None] = {config.name: config.value for config in configs}
    implied = current.keys() - changes.keys()
    return changes | dict.fromkeys(sorted(implied)), implied


def check_broker(
    resource: ConfiguredResource,
    settings: Mapping[str, str],
    changes: Mapping[str, str | None],
    *,
    config: BrokerConfig,
    check_exists: ExistenceCheck,
    refusal: BrokerRefusal | None,
) -> None:
    """Check a broker's settings first, as Kafka's brokers do before they forward a change.

    `refusal` says why the broker cannot run with them; None where no broker runs.
    """
    if resource.name:
        check_exists(resource)
    check_settings(resource, settings, changes=changes, config=config)
    reason = None if refusal is None else refusal(resource.name, settings)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _split(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",")]


def _definition(resource_type: int, name: str) -> Key | None:
    if resource_type == ConfigResourceType.TOPIC:
        return topic_definition_of(name)
    if resource_type == ConfigResourceType.BROKER:
        return broker_definition_of(name)
    return None  # as in Kafka, other resources have no lists


def _check_type(resource: ConfiguredResource) -> None:
    """Refuse a resource type without settings; problems of the settings are reported first."""
    if resource.type == ConfigResourceType.BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected resource type BROKER_LOGGER.")
    if resource.type == 0 or resource.type not in ConfigResourceType._value2member_map_:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")


def _check_names(names: list[str], empty: list[str]) -> None:
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if empty:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}"
        )

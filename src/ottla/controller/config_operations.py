"""Applies the operations of a request to a resource's settings; a broker's own checks.

Brokers check settings of their own before they forward a change; the active controller checks
again.

Kafka: kafka.server.ConfigAdminManager, org.apache.kafka.controller.ConfigurationControlManager.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from ottla.config.definition import Type
from ottla.config.dynamic import definition_of as broker_definition_of
from ottla.config.topic import definition_of as topic_definition_of
from ottla.controller.config_rules import check_settings
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.config.definition import Key
    from ottla.protocol.apis.alter_configs import AlterConfigsRequest
    from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest

    BrokerRefusal: TypeAlias = Callable[[str, Mapping[str, str]], str | None]
    ExistenceCheck: TypeAlias = Callable[[ConfiguredResource], None]
    Operation = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
    Replacement = AlterConfigsRequest.AlterConfigsResource.AlterableConfig


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
        _check_operations(config.config_operation for config in configs)
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


def _check_operations(operations: Iterable[int]) -> None:
    """Refuse unknown operations of a broker's settings, before other errors."""
    for operation in operations:
        if operation not in {*ConfigOperation}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")


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

"""Validates the settings of a resource after a change.

Kafka: kafka.server.{ControllerConfigurationValidator, ConfigAdminManager},
org.apache.kafka.coordinator.group.GroupConfig.validate.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.config.dynamic import check_dynamic
from ottla.config.group import ClientMetricsConfig, GroupConfig, client_pattern
from ottla.config.problems import ConfigErrors
from ottla.config.topic import parse_topic_config
from ottla.controller.topic_names import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.broker import BrokerConfig

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
            _check_broker(resource.name, changes)
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


def _check_broker(name: str, changes: Mapping[str, str | None]) -> None:
    values = {key: value for key, value in changes.items() if value is not None}
    problems = check_dynamic(values, one_broker=bool(name))
    if problems:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(problems[0]))


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

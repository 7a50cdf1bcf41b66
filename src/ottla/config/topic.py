"""The effective configuration of one topic: its own settings and the broker's defaults.

Kafka: org.apache.kafka.storage.internals.log.LogConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ottla.config.problems import ConfigErrors, ConfigProblem, nearest
from ottla.config.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.config.definition import Key

# Topic setting -> the broker settings that give its default, by precedence.
BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "cleanup.policy": ("log.cleanup.policy",),
        "compression.gzip.level": ("compression.gzip.level",),
        "compression.lz4.level": ("compression.lz4.level",),
        "compression.type": ("compression.type",),
        "compression.zstd.level": ("compression.zstd.level",),
        "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
        "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
        "flush.messages": ("log.flush.interval.messages",),
        "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        "index.interval.bytes": ("log.index.interval.bytes",),
        "local.retention.bytes": ("log.local.retention.bytes",),
        "local.retention.ms": ("log.local.retention.ms",),
        "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
        "max.message.bytes": ("message.max.bytes",),
        "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
        "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
        "message.timestamp.type": ("log.message.timestamp.type",),
        "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
        "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
        "min.insync.replicas": ("min.insync.replicas",),
        "preallocate": ("log.preallocate",),
        "retention.bytes": ("log.retention.bytes",),
        "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "segment.bytes": ("log.segment.bytes",),
        "segment.index.bytes": ("log.index.size.max.bytes",),
        "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        "segment.ms": ("log.roll.ms", "log.roll.hours"),
        "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    }
)

_RESOLVED: Final[Mapping[str, Callable[[BrokerConfig], int]]] = MappingProxyType(
    {
        "flush.ms": lambda broker: broker.flush_time_ms,
        "retention.ms": lambda broker: broker.retention_time_ms,
        "segment.jitter.ms": lambda broker: broker.roll_jitter_time_ms,
        "segment.ms": lambda broker: broker.roll_time_ms,
    }
)


class TopicConfig(TopicSettings):
    """Every setting of a topic as an attribute; `given` holds its own settings."""

    @property
    def compact(self) -> bool:
        """Whether old values of a key are removed."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether old segments are removed."""
        return "delete" in self.cleanup_policy

    @property
    def effective_segment_bytes(self) -> int:
        """The size at which a segment is full; tests may set it below the public minimum."""
        internal = self.internal_segment_bytes
        return self.segment_bytes if internal is None else internal


def broker_defaults(broker: BrokerConfig) -> dict[str, Any]:
    """Return the typed defaults of topic settings on this broker."""
    values: dict[str, Any] = {}
    for name, synonyms in BROKER_SYNONYMS.items():
        resolve = _RESOLVED.get(name)
        values[name] = resolve(broker) if resolve else broker.value(synonyms[0])
    return values


def parse_topic_config(
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    existing: Mapping[str, str] = MappingProxyType({}),
) -> TopicConfig:
    """Apply a topic's own settings to the broker's defaults; existing ones are to be replaced.

    Raises ConfigErrors for unknown names, invalid values and contradicting settings.
    """
    problems = list(unknown_topic_settings(overrides))
    reading = TopicConfig.definitions.read(overrides)
    problems += reading.problems
    config = TopicConfig({**broker_defaults(broker), **reading.values}, overrides)
    problems += _contradictions(config, broker, existing)
    if problems:
        raise ConfigErrors(problems)
    return config


def load_topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """Apply stored settings likewise, but ignore invalid values."""
    reading = TopicConfig.definitions.read(overrides)
    return TopicConfig({**broker_defaults(broker), **reading.values}, overrides)


def unknown_topic_settings(names: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """Yield a problem for each name that topics do not have, with the nearest known one."""
    for name, value in names.items():
        if name not in TopicConfig.keys:
            meant = nearest(name, public_names())
            proposal = f"; did you mean {meant}?" if meant else ""
            yield ConfigProblem(name, value, f"Unknown topic config name: {name}{proposal}")


def public_names() -> list[str]:
    """List the settings that are not internal."""
    return [name for name, definition in TopicConfig.keys.items() if not definition.internal]


def definition_of(name: str) -> Key | None:
    """Return the definition of a topic setting, None when there is no such name."""
    return TopicConfig.keys.get(name)


def _contradictions(
    config: TopicConfig, broker: BrokerConfig, existing: Mapping[str, str]
) -> Iterator[ConfigProblem]:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        message = (
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms})"
            f" > max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
        yield ConfigProblem("min.compaction.lag.ms", str(config.min_compaction_lag_ms), message)
    if config.remote_storage_enable:
        yield from _remote_contradictions(config, broker)
    elif (
        existing.get("remote.storage.enable", "").lower() == "true"
        and not config.remote_log_delete_on_disable
    ):
        message = (
            "It is invalid to disable remote storage without deleting remote data. If you want to "
            "keep the remote data and turn to read only, please set "
            "`remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
            "remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )
        yield ConfigProblem("remote.storage.enable", "false", message)


def _remote_contradictions(config: TopicConfig, broker: BrokerConfig) -> Iterator[ConfigProblem]:
    if not broker.remote_log_storage_system_enable:
        message = (
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )
        yield ConfigProblem("remote.storage.enable", "true", message)
    if config.compact:
        message = (
            "Remote log storage only supports topics with cleanup.policy=delete or "
            "cleanup.policy being an empty list."
        )
        yield ConfigProblem("cleanup.policy", config.text("cleanup.policy"), message)
    retentions = [
        (name, f"local.{name}", config.value(name), config.value(f"local.{name}"))
        for name in ("retention.bytes", "retention.ms")
    ]
    for retention in retentions:
        yield from _local_retention(*retention)
    if config.remote_log_copy_disable:
        for name, local_name, whole, local in retentions:
            if local not in (-2, whole):
                message = (
                    f"When `remote.log.copy.disable` is set to true, the `{local_name}` and "
                    f"`{name}` must be set to the identical value because there will be no more "
                    "logs copied to the remote storage."
                )
                yield ConfigProblem(local_name, str(local), message)


def local_retention_problems(broker: BrokerConfig, prefix: str = "") -> Iterator[ConfigProblem]:
    """Yield a problem for each default by which local segments are kept longer than the log.

    Kafka's text has the names of topics at the start, with a prefix those of brokers.
    """
    for unit, whole, local in (
        ("ms", broker.retention_time_ms, broker.log_local_retention_ms),
        ("bytes", broker.log_retention_bytes, broker.log_local_retention_bytes),
    ):
        yield from _local_retention(
            f"{prefix}retention.{unit}", f"{prefix}local.retention.{unit}", whole, local
        )


def _local_retention(name: str, local_name: str, whole: int, local: int) -> Iterator[ConfigProblem]:
    if whole == -1 or local == -2:
        return
    reason = None
    if local == -1:
        reason = f"Value must not be -1 as {name} value is set as {whole}."
    elif local > whole:
        reason = f"Value must not be more than {name} property value: {whole}"
    if reason:
        message = f"Invalid value {local} for configuration {local_name}: {reason}"
        yield ConfigProblem(local_name, str(local), message)

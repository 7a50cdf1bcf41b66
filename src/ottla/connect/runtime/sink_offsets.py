"""The offsets of sink connectors, which are those of their consumer groups.

Kafka: org.apache.kafka.connect.util.SinkUtils, org.apache.kafka.connect.runtime.Worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.blocking import Admin
from ottla.config.client import AdminConfig
from ottla.config.providers import PROVIDERS
from ottla.connect.errors import BadRequestException, ConnectException
from ottla.connect.runtime.pipeline import below
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.settings import OverridePolicy

TOPIC: Final = "kafka_topic"
PARTITION: Final = "kafka_partition"
OFFSET: Final = "kafka_offset"
_TIMEOUT_S: Final = 30.0
"""Time for an answer of the cluster; the herder waits for it."""


def connector_admin(
    settings: Mapping[str, str], overrides: OverridePolicy, config: Mapping[str, str]
) -> Admin:
    """Return the admin client of a connector, by its worker's settings and its own.

    Unlike producers and consumers it takes also what the worker's file says without a prefix.
    """
    overrides.require(config)
    merged = {
        **{name: it for name, it in settings.items() if name != PROVIDERS},  # all are resolved
        **below(settings, "admin."),
        **below(config, "admin.override."),
    }
    return Admin(config={name: it for name, it in merged.items() if name in AdminConfig.keys})


class SinkOffsets:
    """Reads and alters the offsets of groups."""

    def __init__(self, settings: Mapping[str, str], overrides: OverridePolicy) -> None:
        """Take the worker's settings, and what connectors may change of them."""
        self._settings, self._overrides = settings, overrides

    def all_of(self, name: str, config: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return partitions and offsets of a connector."""
        group = config.get("consumer.override.group.id", f"connect-{name}")
        with connector_admin(self._settings, self._overrides, config) as admin:
            committed = admin.list_group_offsets(group, timeout=_TIMEOUT_S)
        return [
            {
                "partition": {PARTITION: it.partition, TOPIC: it.topic},
                "offset": {OFFSET: of.offset},
            }
            for it, of in sorted(committed.items())
            if of is not None
        ]

    def alter(
        self,
        name: str,
        config: Mapping[str, str],
        connector: Any,
        offsets: Sequence[Any] | None,
    ) -> bool:
        """Set offsets, or forget all; whether the connector has looked at them."""
        group = config.get("consumer.override.group.id", f"connect-{name}")
        with connector_admin(self._settings, self._overrides, config) as admin:
            if offsets is None:
                known = admin.list_group_offsets(group, timeout=_TIMEOUT_S)
                requested: dict[TopicPartition, int | None] = dict.fromkeys(known)
            else:
                requested = dict(_parsed(it) for it in offsets)
            looked: bool = connector.alter_offsets(config, requested)
            setting = {it: offset for it, offset in requested.items() if offset is not None}
            dropping = [it for it, offset in requested.items() if offset is None]
            outcomes: dict[Any, Any] = {}
            if setting:
                outcomes |= admin.alter_group_offsets(group, setting, timeout=_TIMEOUT_S)
            if dropping:
                outcomes |= admin.delete_group_offsets(group, dropping, timeout=_TIMEOUT_S)
        failed = next((it for it in outcomes.values() if it is not None), None)
        if failed is not None:
            text = f"Failed to alter consumer group offsets for connector {name}"
            raise ConnectException(text) from failed
        return looked


def _parsed(entry: Mapping[str, Any]) -> tuple[TopicPartition, int | None]:
    partition, offset = entry["partition"], entry["offset"]
    if TOPIC not in partition or PARTITION not in partition:
        raise BadRequestException(
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and "
            "'kafka_partition'"
        )
    number = _whole(partition[PARTITION], "partition", "Partition", "integers")
    where = TopicPartition(str(partition[TOPIC]), number)
    if offset is None:
        return where, None
    if OFFSET not in offset:
        raise BadRequestException(
            "The offset for a sink connector should either be null or contain the key "
            "'kafka_offset'"
        )
    return where, _whole(offset[OFFSET], "offset", "Offset", "integers")


def _whole(value: Any, what: str, title: str, kind: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise BadRequestException(
            f"Failed to parse the following Kafka {what} value in the provided offsets: '{value}'. "
            f"{title} values for sink connectors need to be {kind}."
        ) from None

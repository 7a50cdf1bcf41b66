"""Settings of entities as data: configs of resources, quotas, SCRAM credentials, and their JSON.

Kafka: kafka.admin.ConfigCommand collects them while printing (KIP-554).
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ottla.clients.admin.configs import ConfigResource, ConfigSource, ResourceType
from ottla.clients.admin.quotas import ANY_NAME
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clients.admin.configs import ConfigEntry
    from ottla.clients.blocking import Admin

RESOURCE_TYPES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "groups": ResourceType.GROUP,
}
QUOTA_ENTITIES = {"users": "user", "clients": "client-id", "ips": "ip"}
ALL_BROKERS = ""
"""The name of the defaults of all brokers."""
_OWN_SOURCES = {
    "topics": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    "brokers": ConfigSource.DYNAMIC_BROKER_CONFIG,
    "client-metrics": ConfigSource.CLIENT_METRICS_CONFIG,
    "groups": ConfigSource.GROUP_CONFIG,
}
# Java's names of two sources differ from those of the protocol.
_SOURCE_NAMES = {
    ConfigSource.CLIENT_METRICS_CONFIG: "DYNAMIC_CLIENT_METRICS_CONFIG",
    ConfigSource.GROUP_CONFIG: "DYNAMIC_GROUP_CONFIG",
}


def resource_names(admin: Admin, kind: str) -> list[str]:
    """Return the existing names of a kind of resources."""
    if kind == "topics":
        return [topic.name for topic in admin.list_topics()]
    if kind in ("brokers", "broker-loggers"):
        return [str(node.node_id) for node in admin.describe_cluster().brokers]
    if kind != "groups":
        return _with_configs(admin, RESOURCE_TYPES[kind])
    groups = [group.group_id for group in admin.list_groups()]
    return list(dict.fromkeys([*groups, *_with_configs(admin, ResourceType.GROUP)]))


def _with_configs(admin: Admin, kind: ResourceType) -> list[str]:
    try:
        return [resource.name for resource in admin.list_config_resources([kind])]
    except KafkaError as error:
        # Brokers before 4.1 can list client metrics only; groups are known from list_groups.
        if error.code is ErrorCode.UNSUPPORTED_VERSION and kind is ResourceType.GROUP:
            return []
        raise


def config_entries(admin: Admin, kind: str, name: str, *, describe_all: bool) -> list[ConfigEntry]:
    """Return a resource's settings by name: those set for it, or with describe_all every one."""
    resource = ConfigResource(RESOURCE_TYPES[kind], name)
    entries = admin.describe_configs([resource], include_synonyms=True)[resource]
    if isinstance(entries, KafkaError):
        raise entries
    source = None if describe_all else _OWN_SOURCES.get(kind)
    if source and kind == "brokers" and name == ALL_BROKERS:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    own = [entry for entry in entries.values() if source is None or entry.source == source]
    return sorted(own, key=lambda entry: entry.name)


def source_name(source: int) -> str:
    """Return Java's name of a source of values."""
    known = ConfigSource(source)
    return _SOURCE_NAMES.get(known, known.name)


def configs_document(kind: str, name: str, entries: list[ConfigEntry]) -> dict[str, object]:
    """Return the JSON of a resource's settings."""
    configs = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": source_name(entry.source),
            "sensitive": entry.is_sensitive,
            "read_only": entry.is_read_only,
        }
        for entry in entries
    ]
    return {"entity_type": kind, "entity_name": name or None, "configs": configs}


def quotas(
    admin: Admin, types: Sequence[str], names: Sequence[str | None]
) -> dict[Any, dict[str, float]]:
    """Return the limits of entities of exactly these types; a name of '' is the default's."""
    requested = {
        QUOTA_ENTITIES[kind]: ANY_NAME if name is None else (name or None)
        for kind, name in zip_longest(types, names)
        if kind is not None
    }
    limits: dict[Any, dict[str, float]] = admin.describe_client_quotas(requested, strict=True)
    return limits


def credentials(
    admin: Admin, types: Sequence[str], users: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return the iterations of users by mechanism; without names, of all users.

    Only users by name have credentials: other entities and their defaults have none.
    """
    if types != ["users"] or "" in users:
        return {}
    try:
        outcomes = admin.describe_user_scram_credentials(users or None)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}  # the broker stores no credentials
        raise
    iterations: dict[str, dict[str, int]] = {}
    for user, outcome in outcomes.items():
        if not isinstance(outcome, KafkaError):
            iterations[user] = {entry.mechanism: entry.iterations for entry in outcome}
        elif outcome.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise outcome
    return iterations

"""`configs` for config resources: topics, brokers, loggers, groups, client metrics.

Kafka: kafka.admin.ConfigCommand.describeResourceConfig, alterConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.options.failures import ToolError
from ottla.cli.options.json_output import print_json, wants_json
from ottla.clients.admin.configs import (
    AlterOperation,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.admin.configs import ConfigEntry
    from ottla.clients.blocking import Admin

RESOURCE_TYPES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "groups": ResourceType.GROUP,
}
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
ALL_BROKERS = ""


def describe_resources(admin: Admin, kind: str, name: str | None, *, describe_all: bool) -> None:
    """Print the settings of one resource, or of all of a kind (name None); '' is the default."""
    if name is None:
        names = _known(admin, kind) + ([ALL_BROKERS] if kind == "brokers" else [])
    elif name == ALL_BROKERS or describe_all or name in _known(admin, kind):
        names = [name]
    else:
        click.echo(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    if wants_json():
        print_json(
            [
                _document(kind, name, _entries(admin, kind, name, describe_all=describe_all))
                for name in names
            ]
        )
        return
    for one in names:
        if one == ALL_BROKERS:
            click.echo(f"Default configs for {kind} in the cluster are:")
        else:
            click.echo(f"{'All' if describe_all else 'Dynamic'} configs for {kind[:-1]} {one} are:")
        for entry in _entries(admin, kind, one, describe_all=describe_all):
            click.echo(_line(entry))


def _document(kind: str, name: str, entries: list[ConfigEntry]) -> dict[str, object]:
    shown = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": _source_name(entry.source),
            "sensitive": entry.is_sensitive,
            "read_only": entry.is_read_only,
        }
        for entry in entries
    ]
    return {"entity_type": kind, "entity_name": name or None, "configs": shown}


def _known(admin: Admin, kind: str) -> list[str]:
    """List the existing names of a kind."""
    if kind == "topics":
        return [topic.name for topic in admin.list_topics()]
    if kind in ("brokers", "broker-loggers"):
        return [str(node.node_id) for node in admin.describe_cluster().brokers]
    if kind == "groups":
        groups = [group.group_id for group in admin.list_groups()]
        return list(dict.fromkeys([*groups, *_listed(admin, ResourceType.GROUP)]))
    return _listed(admin, RESOURCE_TYPES[kind])


def _listed(admin: Admin, kind: ResourceType) -> list[str]:
    try:
        return [resource.name for resource in admin.list_config_resources([kind])]
    except KafkaError as error:
        # Brokers before 4.1 can list client metrics only; groups are known from list_groups.
        if error.code is ErrorCode.UNSUPPORTED_VERSION and kind is ResourceType.GROUP:
            return []
        raise


def _entries(admin: Admin, kind: str, name: str, *, describe_all: bool) -> list[ConfigEntry]:
    resource = ConfigResource(RESOURCE_TYPES[kind], name)
    found = admin.describe_configs([resource], include_synonyms=True)[resource]
    if isinstance(found, KafkaError):
        raise found
    source = _OWN_SOURCES.get(kind)
    if kind == "brokers" and name == ALL_BROKERS:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    if describe_all:
        source = None
    chosen = [entry for entry in found.values() if source is None or entry.source == source]
    return sorted(chosen, key=lambda entry: entry.name)


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{_source_name(synonym.source)}:{synonym.name}={_text(synonym.value)}"
        for synonym in entry.synonyms
    )
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _source_name(source: int) -> str:
    known = ConfigSource(source)
    return _SOURCE_NAMES.get(known, known.name)


def _text(value: str | None) -> str:
    return "null" if value is None else value


def alter_resource(
    admin: Admin, kind: str, name: str, added: dict[str, str], deleted: list[str]
) -> None:
    """Set and remove settings of one resource; raises KafkaError, ToolError (unknown loggers)."""
    if kind == "broker-loggers":
        known = {entry.name for entry in _entries(admin, kind, name, describe_all=True)}
        unknown = [key for key in (*deleted, *added) if key not in known]
        if unknown:
            raise ToolError(f"Invalid broker logger(s): {','.join(unknown)}")
    resource = ConfigResource(RESOURCE_TYPES[kind], name)
    changes = [ConfigChange(key, value) for key, value in added.items()]
    changes += [ConfigChange(key, None, AlterOperation.DELETE) for key in deleted]
    error = admin.alter_configs({resource: changes})[resource]
    if error is not None:
        raise error

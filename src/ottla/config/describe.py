"""Settings as DescribeConfigs returns them: value, source and synonyms.

Kafka: kafka.server.ConfigHelper, org.apache.kafka.server.ConfigHelperUtils.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.dynamic import ALL_DYNAMIC, base_name, definition_of
from ottla.config.group import ClientMetricsConfig, GroupConfig
from ottla.config.topic import BROKER_SYNONYMS, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ottla.config.definition import ConfigTable, Key


class Source(IntEnum):
    """The source of a value, numbered as in DescribeConfigs."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """A setting that gives the value, or would if no setting of higher precedence did."""

    name: str
    value: str | None
    source: Source


class DescribedSetting(NamedTuple):
    """One setting as DescribeConfigs returns it; `type` is Kafka's number, 0 for unknown."""

    name: str
    value: str | None
    read_only: bool
    source: Source
    sensitive: bool
    type: int
    synonyms: tuple[Synonym, ...]
    documentation: str | None
    """None for names that are in no table."""


class BrokerSources(NamedTuple):
    """All sources of a broker's settings: its stored changes, the cluster's, its file.

    `config` is the effective configuration, with the changes applied.
    """

    config: BrokerConfig
    own_changes: Mapping[str, str]
    cluster_changes: Mapping[str, str]


# By precedence: every setting of a chain has the whole chain as synonyms.
_CHAINS: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """List the names that can give a broker setting its value, by precedence."""
    for chain in _CHAINS:
        if name in chain:
            return chain
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    base = base_name(name)
    return (name,) if base == name else (name, base)


def describe_broker(
    sources: BrokerSources, names: Sequence[str] | None = None
) -> Iterator[DescribedSetting]:
    """Describe one broker: given names that are not in the table, then all public settings."""
    config = sources.config
    given = {**config.given, **sources.cluster_changes, **sources.own_changes}
    public = [name for name, definition in config.keys.items() if not definition.internal]
    foreign = given.keys() - public
    for name in _selected([*sorted(foreign), *public], names):
        yield _broker_entry(sources, name, given.get(name), whole_cluster=False)


def describe_cluster_default(
    sources: BrokerSources, names: Sequence[str] | None = None
) -> Iterator[DescribedSetting]:
    """Describe the changes stored for all brokers."""
    for name in _selected(list(sources.cluster_changes), names):
        yield _broker_entry(sources, name, sources.cluster_changes[name], whole_cluster=True)


def describe_topic(
    topic: TopicConfig, sources: BrokerSources, names: Sequence[str] | None = None
) -> Iterator[DescribedSetting]:
    """Describe one topic's 33 public settings."""
    public = [name for name, definition in topic.keys.items() if not definition.internal]
    for name in _selected(public, names):
        definition = topic.keys[name]
        own = (
            [Synonym(name, definition.text(topic.value(name)), Source.TOPIC_CONFIG)]
            if name in topic.given
            else []
        )
        broker_name = BROKER_SYNONYMS.get(name, ("",))[0]
        inherited = _synonyms(sources, broker_name, broker_synonyms(broker_name))
        yield _entry(definition, topic.value(name), [*own, *inherited])


# Group setting -> the broker setting that gives its default.
GROUP_SYNONYMS: dict[str, str] = {
    name: f"group.{name}" for name in GroupConfig.keys if f"group.{name}" in BrokerConfig.keys
}


def describe_group(
    own: Mapping[str, str], sources: BrokerSources, names: Sequence[str] | None = None
) -> Iterator[DescribedSetting]:
    """Describe one group's settings, with the broker's as defaults."""

    def inherited(name: str) -> list[Synonym]:
        synonym = GROUP_SYNONYMS.get(name)
        return _synonyms(sources, synonym, (synonym,)) if synonym else []

    yield from _describe_table(
        GroupConfig, own, source=Source.GROUP_CONFIG, inherited=inherited, names=names
    )


def describe_client_metrics(
    own: Mapping[str, str], names: Sequence[str] | None = None
) -> Iterator[DescribedSetting]:
    """Describe one subscription to clients' metrics."""
    yield from _describe_table(
        ClientMetricsConfig, own, source=Source.CLIENT_METRICS_CONFIG, inherited=None, names=names
    )


def _describe_table(
    table: type[ConfigTable],
    own: Mapping[str, str],
    *,
    source: Source,
    inherited: Callable[[str], list[Synonym]] | None,
    names: Sequence[str] | None,
) -> Iterator[DescribedSetting]:
    """Describe a small table; a default is a synonym only where others are inherited."""
    reading = table.definitions.read(own)
    for name in _selected(list(table.keys), names):
        definition = table.keys[name]
        weaker = inherited(name) if inherited else []
        if inherited and not weaker:
            weaker = [Synonym(name, definition.text(definition.default), Source.DEFAULT_CONFIG)]
        if name in reading.values:
            value = reading.values[name]
            yield _entry(
                definition, value, [Synonym(name, definition.text(value), source), *weaker]
            )
        elif weaker:
            yield _entry(definition, definition.convert(weaker[0].value), weaker)
        else:
            yield _entry(definition, definition.default, [])


def _selected(all_names: Iterable[str], names: Sequence[str] | None) -> list[str]:
    return [name for name in all_names if not names or name in names]


def _entry(definition: Key, value: object, synonyms: list[Synonym]) -> DescribedSetting:
    hidden = definition.sensitive
    return DescribedSetting(
        name=definition.name,
        value=None if hidden else definition.text(value),
        read_only=False,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        sensitive=hidden,
        type=definition.type.value,
        synonyms=tuple(synonyms),
        documentation=definition.doc,
    )


def _broker_entry(
    sources: BrokerSources, name: str, given: object, *, whole_cluster: bool
) -> DescribedSetting:
    definition = definition_of(name)
    synonyms = _synonyms(sources, name, broker_synonyms(name))
    if whole_cluster:
        source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        synonyms = [synonym for synonym in synonyms if synonym.source is source]
    sensitive = definition is None or definition.sensitive
    if sensitive:
        value = None
    elif definition is not None and name in sources.config.keys and not whole_cluster:
        value = definition.text(sources.config.value(name))
    else:
        value = None if given is None else str(given)
    return DescribedSetting(
        name=name,
        value=value,
        read_only=name not in ALL_DYNAMIC,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        sensitive=sensitive,
        type=0 if definition is None else definition.type.value,
        synonyms=tuple(synonyms),
        documentation=definition.doc if definition and definition.name == name else None,
    )


def _synonyms(sources: BrokerSources, name: str, chain: Sequence[str]) -> list[Synonym]:
    """List every source of a value for a name of the chain, by precedence."""
    places: list[tuple[Source, Mapping[str, object]]] = [
        (Source.DYNAMIC_BROKER_CONFIG, sources.own_changes),
        (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, sources.cluster_changes),
        (Source.STATIC_BROKER_CONFIG, sources.config.given),
    ]
    found: list[Synonym] = []
    for source, values in places:
        found += [Synonym(key, _shown(key, values[key]), source) for key in chain if key in values]
    for key in chain:
        definition = definition_of(key)
        if definition is None or definition.name != key or definition.required:
            continue
        if definition.default is not None:
            text = None if definition.sensitive else definition.text(definition.default)
            found.append(Synonym(key, text, Source.DEFAULT_CONFIG))
    first = next((at for at, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


def _shown(name: str, value: object) -> str | None:
    definition = definition_of(name)
    if definition is None or definition.sensitive:
        return None
    return str(value)

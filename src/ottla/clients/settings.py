"""Client settings: Kafka's names, types and defaults, validated.

Names, types, ranges and defaults are defined in `ottla.config.client`; this module adds the
differences of these clients: Python functions and objects instead of Java classes, and the type of
a store that is found by its content where none is given.

Kafka: org.apache.kafka.clients.{CommonClientConfigs, producer.ProducerConfig,
consumer.ConsumerConfig, admin.AdminClientConfig}.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.config.client import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ottla.config.definition import REQUIRED, Type
from ottla.config.other_clients import DOCUMENT, librdkafka_hint, python_client_hint
from ottla.config.problems import ConfigErrors, nearest
from ottla.config.providers import PROVIDERS, resolve
from ottla.config.secret import Secret
from ottla.config.security import ALLOWED_FILES, ALLOWED_URLS
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.definition import ConfigTable, Key

SENSITIVE_WORDS = ("password", "passphrase", "jaas", "secret", "token", "key.pem", "keystore.key")
JAVA_CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


class SettingParser(NamedTuple):
    """The parser and the default of one setting."""

    read: Callable[[Any], Any]
    default: Any


def _checked(definition: Key, value: Any) -> Any:
    """Convert and validate by Kafka's definition; raises ConfigErrors."""
    if definition.type is Type.STRING and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if definition.type is Type.LIST and not isinstance(value, str):
        value = [str(entry) for entry in value]
    converted = definition.convert(value)
    problem = definition.problem(converted)
    if problem is not None:
        raise ConfigErrors([problem])
    return converted


def _unchanged(value: Any) -> Any:
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def _secret_or_none(value: Any) -> Secret | None:
    return value if value is None or isinstance(value, Secret) else Secret(str(value))


def _boolean(value: Any) -> bool:
    if str(value).strip().lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return str(value).strip().lower() == "true"


def _acks(value: Any) -> int:
    checked = _checked(ProducerConfig.keys["acks"], str(value).lower())
    return -1 if checked == "all" else int(checked)


def _assignors(value: Any) -> tuple[str, ...]:
    given = _checked(ConsumerConfig.keys["partition.assignment.strategy"], value)
    return tuple(JAVA_CLASSES.get(word.rpartition(".")[2], word) for word in given)


def _in_case(definition: Key, change: Callable[[str], str], value: Any) -> str:
    checked: str = _checked(definition, value)
    return change(checked)


def _objects(value: Any) -> tuple[Any, ...]:
    """Accept one object or several, and names of classes separated by commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, list | tuple) else (value,)


_OWN = {
    ALLOWED_URLS: SettingParser(_text_or_none, None),
    ALLOWED_FILES: SettingParser(_text_or_none, None),
    "sasl.username": SettingParser(_text_or_none, None),
    "sasl.password": SettingParser(_secret_or_none, None),
    "ssl.context": SettingParser(_unchanged, None),
}
"""Alternatives to a JAAS text and to PEM files; what are properties of Java's process."""

_DIFFERENT = {
    "acks": SettingParser(_acks, -1),
    "interceptor.classes": SettingParser(_objects, ()),
    "internal.leave.group.on.close": SettingParser(_boolean, True),
    "key.deserializer": SettingParser(_unchanged, None),
    "key.serializer": SettingParser(_unchanged, None),
    "partition.assignment.strategy": SettingParser(_assignors, ("range", "cooperative-sticky")),
    "partitioner.class": SettingParser(_unchanged, None),
    "value.deserializer": SettingParser(_unchanged, None),
    "value.serializer": SettingParser(_unchanged, None),
}
_DEFAULTS = {"bootstrap.servers": (), "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
_CASES: dict[str, Callable[[str], str]] = {
    "group.protocol": str.lower,
    "metadata.recovery.strategy": str.lower,
    "security.protocol": str.upper,
}


def _table(*configs: type[ConfigTable], extra: tuple[str, ...] = ()) -> dict[str, SettingParser]:
    found: dict[str, SettingParser] = {}
    for config in configs:
        for name, definition in config.keys.items():
            read: Callable[[Any], Any] = partial(_checked, definition)
            if name in _CASES:
                read = partial(_in_case, definition, _CASES[name])
            default = None if definition.default is REQUIRED else definition.default
            found[name] = _DIFFERENT.get(name) or SettingParser(read, _DEFAULTS.get(name, default))
    return {**found, **_OWN, **{name: _DIFFERENT[name] for name in extra}}


PRODUCER = _table(ProducerConfig)
CONSUMER = _table(ConsumerConfig, extra=("internal.leave.group.on.close",))
ADMIN = _table(AdminConfig)
COMMON = {
    name: setting
    for name, setting in ADMIN.items()
    if name in ClientConfig.keys or (name in PRODUCER and name in CONSUMER and name != "retries")
}
"""The settings common to all clients."""


class ValidatedSettings:
    """The validated settings of one client; attributes are dotted names with underscores."""

    kind: str
    client_id: str
    bootstrap_servers: tuple[str, ...]
    default_api_timeout_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int

    def __init__(self, table: Mapping[str, SettingParser], values: Mapping[str, Any]) -> None:
        self.given = frozenset(values)
        self.kind = _kind(table)
        for name, (_, default) in table.items():
            setattr(self, name.replace(".", "_"), values.get(name, default))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __repr__(self) -> str:
        shown = {
            name: "[hidden]" if is_sensitive(name) else getattr(self, name.replace(".", "_"))
            for name in sorted(self.given)
        }
        return f"Settings({shown})"


def _kind(table: Mapping[str, SettingParser]) -> str:
    """Return the prefix of a client's metric groups."""
    if table is PRODUCER:
        return "producer"
    return "consumer" if table is CONSUMER else "admin-client"


def is_sensitive(name: str) -> bool:
    """Whether a setting's value must not be logged."""
    return any(word in name for word in SENSITIVE_WORDS)


def read_settings(
    table: Mapping[str, SettingParser],
    mapping: Mapping[str, Any] | None,
    keywords: Mapping[str, Any],
) -> ValidatedSettings:
    """Merge a mapping with dotted names and keyword arguments with underscores.

    Keyword arguments take precedence. Raises ConfigError with all invalid entries, unknown names
    with the nearest known one.
    """
    if mapping is not None and not isinstance(mapping, Mapping):
        raise TypeError(f"config must be a mapping of settings, not {type(mapping).__name__}")
    by_keyword = {name.replace(".", "_"): name for name in table}
    values: dict[str, Any] = {}
    problems: list[str] = []
    everything, unresolved = _resolved({**dict(mapping or {}), **dict(keywords)})
    problems += unresolved
    for given, value in everything.items():
        name = by_keyword.get(given.replace(".", "_"))
        if name is None:
            problems.append(_unknown(given, table))
            continue
        try:
            values[name] = table[name].read(value)
        except (TypeError, ValueError) as error:
            problems.append(_wrong(name, value, error))
    if problems:
        raise ConfigError("; ".join(problems))
    return ValidatedSettings(table, values)


def _resolved(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Resolve variables by `config.providers`; return the settings and what is wrong.

    The settings of the providers themselves are known to no table, and left out.
    """
    dotted = {name.replace("_", ".") if "." not in name else name: name for name in given}
    listed = dotted.get(PROVIDERS)
    if listed is None:
        return given, []
    names = given[listed] if isinstance(given[listed], str) else ",".join(given[listed])
    texts = {name: given[key] for name, key in dotted.items() if isinstance(given[key], str)}
    found = resolve({**texts, PROVIDERS: names}, os.environ)
    kept = {
        key: found.values[name] if name in texts else given[key]
        for name, key in dotted.items()
        if not name.startswith(f"{PROVIDERS}.")
    }
    return kept, [problem.message for problem in found.problems]


def refuse_positional(client: str, given: tuple[object, ...]) -> None:
    """Raise TypeError for positional arguments: settings are keywords, or `config`."""
    if given:
        raise TypeError(
            f'{client}() takes settings as keywords (bootstrap_servers="localhost:9092") or as '
            f'config={{"bootstrap.servers": "localhost:9092"}}, not as a positional '
            f"{type(given[0]).__name__}"
        )


def _wrong(name: str, value: Any, error: Exception) -> str:
    if is_sensitive(name):
        return f"Invalid value [hidden] for configuration {name}"
    if isinstance(error, ConfigErrors):
        return "; ".join(problem.message for problem in error.problems)
    return f"Invalid value {value} for configuration {name}: {error}"


def _unknown(given: str, table: Mapping[str, SettingParser]) -> str:
    hint = librdkafka_hint(given) or librdkafka_hint(given.replace("_", "."))
    if hint is not None:
        return f"unknown setting {given!r} (a name of librdkafka): {hint}; see {DOCUMENT}"
    hint = python_client_hint(given.replace(".", "_"))
    if hint is not None:
        libraries = "kafka-python or aiokafka"
        return f"unknown setting {given!r} (a name of {libraries}): {hint}; see {DOCUMENT}"
    near = nearest(given.replace("_", "."), table)
    if near is None:
        return f"unknown setting {given!r}"
    spelled = near if "." in given else near.replace(".", "_")
    return f"unknown setting {given!r}; did you mean {spelled!r}?"

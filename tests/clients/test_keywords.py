"""The typed keywords of the clients agree with the definitions of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.clients import keywords, settings
from ottla.config.checks import OneOf, OneOfAnyCase
from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.definition import Type

if TYPE_CHECKING:
    from ottla.config.definition import ConfigTable, Key

TYPES = {
    Type.BOOLEAN: "bool",
    Type.CLASS: "str",
    Type.DOUBLE: "float",
    Type.INT: "int",
    Type.LIST: "str | Sequence[str]",
    Type.LONG: "int",
    Type.PASSWORD: "str",
    Type.SHORT: "int",
    Type.STRING: "str",
}
# Python objects where Kafka has classes; additions of these clients.
SPECIAL = {
    "acks": "Literal['all', '-1', '0', '1', -1, 0, 1]",
    "interceptor.classes": "object",
    "key.deserializer": "Deserializer | None",
    "key.serializer": "Serializer | None",
    "partitioner.class": "str | Callable[[str, bytes | None, int], int] | type | None",
    "org.apache.kafka.sasl.oauthbearer.allowed.files": "str | None",
    "org.apache.kafka.sasl.oauthbearer.allowed.urls": "str | None",
    "sasl.password": "str | None",
    "sasl.username": "str | None",
    "ssl.context": "SSLContext | None",
    "value.deserializer": "Deserializer | None",
    "value.serializer": "Serializer | None",
}
TABLES: dict[str, tuple[dict[str, settings.SettingParser], type[ConfigTable]]] = {
    "ProducerSettings": (settings.PRODUCER, ProducerConfig),
    "ConsumerSettings": (settings.CONSUMER, ConsumerConfig),
    "AdminSettings": (settings.ADMIN, AdminConfig),
}


def annotation(name: str, key: Key | None) -> str:
    """Return the type of a setting's keyword."""
    if name in SPECIAL:
        return SPECIAL[name]
    assert key is not None
    kind = TYPES[key.type]
    if isinstance(key.check, OneOf):
        kind = literal(*key.check.words)
    elif isinstance(key.check, OneOfAnyCase):
        kind = literal(*key.check.words, *(word.lower() for word in key.check.words))
    return f"{kind} | None" if key.default is None else kind


def literal(*words: str) -> str:
    """Return the type of a choice."""
    return f"Literal[{', '.join(map(repr, words))}]"


def expected(name: str) -> dict[str, str]:
    """Return the keywords of a client with their types."""
    table, config = TABLES[name]
    return {
        one.replace(".", "_"): annotation(one, config.keys.get(one))
        for one in sorted(table)
        if not one.startswith("internal.")
    }


@pytest.mark.parametrize("name", TABLES)
def test_the_keywords_are_those_of_the_definitions(name: str) -> None:
    """Each setting is a keyword with the type of its definition, and nothing else is."""
    hints = getattr(keywords, name).__annotations__
    assert {keyword: hint.__forward_arg__ for keyword, hint in hints.items()} == expected(name)

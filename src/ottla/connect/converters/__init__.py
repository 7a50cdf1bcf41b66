"""Converters: the bytes of keys, values and headers to values of Connect, and back.

Kafka: org.apache.kafka.connect.storage.{Converter, HeaderConverter, ConverterConfig}.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.config.checks import one_of
from ottla.config.definition import LOW, ConfigDefinitions, Type
from ottla.connect import PLUGIN_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.data import Header, Schema, SchemaAndValue


def converter_definitions() -> ConfigDefinitions:
    """Return the setting that all converters have, which the worker sets itself."""
    return ConfigDefinitions().define(
        "converter.type",
        Type.STRING,
        doc="How this converter will be used.",
        check=one_of("key", "value", "header"),
        importance=LOW,
    )


class HeaderConverter(ABC):
    """Converts the values of headers."""

    version: ClassVar[str] = PLUGIN_VERSION
    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()

    def configure_header(self, settings: Mapping[str, str]) -> None:
        """Take the settings for headers; ConfigErrors for invalid ones."""
        self._use(self.definitions.parse({**settings, "converter.type": "header"}))

    def _use(self, values: Mapping[str, Any]) -> None:  # noqa: B027 - some have no settings
        """Take the parsed settings."""

    @abstractmethod
    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the bytes of a header's value; DataException if it cannot be written."""

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Return a header's value; DataException for bytes that cannot be read."""


class Converter(HeaderConverter):
    """Converts keys and values, and headers in the same way."""

    definitions: ClassVar[ConfigDefinitions] = converter_definitions()

    def configure(self, settings: Mapping[str, str], *, is_key: bool) -> None:
        """Take the settings for keys or for values; ConfigErrors for invalid ones."""
        self._use(
            self.definitions.parse({**settings, "converter.type": "key" if is_key else "value"})
        )

    @abstractmethod
    def from_connect(
        self, topic: str, headers: Sequence[Header], schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the bytes of a value; DataException if it cannot be written."""

    @abstractmethod
    def to_connect(
        self, topic: str, headers: Sequence[Header], data: bytes | None
    ) -> SchemaAndValue:
        """Return the value of bytes; DataException if they cannot be read."""

    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Any
    ) -> bytes | None:
        """Convert as a value."""
        del key
        return self.from_connect(topic, (), schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Convert as a value."""
        del key
        return self.to_connect(topic, (), data)

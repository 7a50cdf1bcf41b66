"""Converters of single values: texts, bytes, booleans, numbers; and headers as texts.

Kafka: org.apache.kafka.connect.storage.{StringConverter, SimpleHeaderConverter} and
org.apache.kafka.connect.converters.{ByteArray, Boolean, Double, Float, Integer, Long,
Short}Converter.
"""

from __future__ import annotations

import codecs
import struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.config.definition import HIGH, ConfigDefinitions, Type, Width
from ottla.config.problems import ConfigErrors, invalid
from ottla.connect.converters import Converter, HeaderConverter, converter_definitions
from ottla.connect.data import (
    BOOLEAN,
    BOUNDS,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    SchemaAndValue,
    SchemaType,
)
from ottla.connect.errors import DataException
from ottla.connect.values import NULL, display_text, float32, parse_string, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.data import Header, Schema

_OPTIONAL_STRING: Final = STRING.as_optional()
_OPTIONAL_BYTES: Final = BYTES.as_optional()
_OPTIONAL_BOOLEAN: Final = BOOLEAN.as_optional()


class StringConverter(Converter):
    """Texts in some encoding; other values as Java's toString shows them."""

    definitions: ClassVar[ConfigDefinitions] = converter_definitions().define(
        "converter.encoding",
        Type.STRING,
        "UTF-8",
        "The name of the Java character set to use for encoding strings as byte arrays.",
        importance=HIGH,
        width=Width.MEDIUM,
        display_name="Encoding",
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._encoding = values["converter.encoding"]
        try:
            codecs.lookup(self._encoding)
            "".encode(self._encoding, "replace")
        except (LookupError, ValueError):
            raise ConfigErrors(
                [invalid("converter.encoding", self._encoding, "Unsupported encoding")]
            ) from None

    def from_connect(
        self, topic: str, headers: Sequence[Header], schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the text's bytes; characters that the encoding lacks become `?`."""
        del topic, headers
        if value is None:
            return None
        text = value if type(value) is str else display_text(value, schema)
        return text.encode(self._encoding, "replace")

    def to_connect(
        self, topic: str, headers: Sequence[Header], data: bytes | None
    ) -> SchemaAndValue:
        """Return the text; bytes that are none become U+FFFD."""
        del topic, headers
        text = None if data is None else str(data, self._encoding, "replace")
        return SchemaAndValue(_OPTIONAL_STRING, text)


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    def from_connect(
        self, topic: str, headers: Sequence[Header], schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the bytes; DataException for other values."""
        del topic, headers
        if schema is not None and schema.type is not SchemaType.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {schema.type.name}")
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        kind = type(value).__name__
        raise DataException(f"ByteArrayConverter is not compatible with objects of type {kind}")

    def to_connect(
        self, topic: str, headers: Sequence[Header], data: bytes | None
    ) -> SchemaAndValue:
        """Return the bytes."""
        del topic, headers
        return SchemaAndValue(_OPTIONAL_BYTES, data)


class BooleanConverter(Converter):
    """A byte: 1 or 0."""

    def from_connect(
        self, topic: str, headers: Sequence[Header], schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the byte; DataException for other values."""
        del topic, headers
        if schema is not None and schema.type is not SchemaType.BOOLEAN:
            raise DataException(f"Invalid schema type for BooleanConverter: {schema.type.name}")
        if value is None:
            return None
        if value is True or value is False:
            return b"\x01" if value else b"\x00"
        kind = type(value).__name__
        raise DataException(f"BooleanConverter is not compatible with objects of type {kind}")

    def to_connect(
        self, topic: str, headers: Sequence[Header], data: bytes | None
    ) -> SchemaAndValue:
        """Return the boolean; DataException for other bytes than 0 and 1."""
        del topic, headers
        if data not in {None, b"\x00", b"\x01"}:
            raise DataException("Failed to deserialize boolean: ")
        return SchemaAndValue(_OPTIONAL_BOOLEAN, None if data is None else data == b"\x01")


class _NumberConverter(Converter):
    """Numbers of a size, big-endian; without a schema an int or a float has any size."""

    name: ClassVar[str]
    schema: ClassVar[Schema]
    form: ClassVar[struct.Struct]

    def from_connect(
        self, topic: str, headers: Sequence[Header], schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the bytes; DataException for values of another type or size."""
        del topic, headers
        if value is None:
            return None
        bound = BOUNDS.get(self.schema.type)
        if bound is not None:
            fits = type(value) is int and -bound <= value < bound
        else:
            fits = type(value) is float
        # In Kafka the value itself has the size; here only the schema has it
        if not fits or (schema is not None and schema.type is not self.schema.type):
            kind = type(value).__name__
            raise DataException(f"Failed to serialize to {self.name} (was {kind}): ")
        return self.form.pack(float32(value) if self.schema.type is SchemaType.FLOAT32 else value)

    def to_connect(
        self, topic: str, headers: Sequence[Header], data: bytes | None
    ) -> SchemaAndValue:
        """Return the number; DataException for bytes of another size."""
        del topic, headers
        if data is None:
            return SchemaAndValue(self.schema, None)
        if len(data) != self.form.size:
            raise DataException(f"Failed to deserialize {self.name}: ")
        return SchemaAndValue(self.schema, self.form.unpack(data)[0])


class DoubleConverter(_NumberConverter):
    """Eight bytes of a float."""

    name, schema, form = "double", FLOAT64.as_optional(), struct.Struct(">d")


class FloatConverter(_NumberConverter):
    """Four bytes of a float."""

    name, schema, form = "float", FLOAT32.as_optional(), struct.Struct(">f")


class IntegerConverter(_NumberConverter):
    """Four bytes of an integer."""

    name, schema, form = "integer", INT32.as_optional(), struct.Struct(">i")


class LongConverter(_NumberConverter):
    """Eight bytes of an integer."""

    name, schema, form = "long", INT64.as_optional(), struct.Struct(">q")


class ShortConverter(_NumberConverter):
    """Two bytes of an integer."""

    name, schema, form = "short", INT16.as_optional(), struct.Struct(">h")


class SimpleHeaderConverter(HeaderConverter):
    """Values as texts whose form shows their type: `5` is an INT8, `[1,2]` a list, `x` a text."""

    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the value as text in UTF-8."""
        del topic, key
        text = to_text(value, schema)
        return None if text is None else text.encode("utf-8", "replace")

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Return the value that the text stands for; bytes that are no text become U+FFFD."""
        del topic, key
        if data is None:
            return NULL
        try:
            return parse_string(data.decode("utf-8", "replace"))
        except DataException:  # a date outside of Python's years
            return SchemaAndValue(BYTES, data)

"""Formats a record as a line of text.

Kafka: org.apache.kafka.tools.consumer.DefaultMessageFormatter.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.fetched import AppendedRecord
from ottla.config.definition import double_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clients.consumer.record_decoder import ConsumerRecord

    Reader = Callable[[bytes], str]

DEFAULTS = {
    "print.timestamp": "false",
    "print.key": "false",
    "print.offset": "false",
    "print.partition": "false",
    "print.delivery": "false",
    "print.epoch": "false",
    "print.headers": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "headers.deserializer": "",
}


def _unpacked(layout: str, data: bytes) -> Any:
    """Return the number of these bytes; raises ValueError for another number of bytes."""
    try:
        (number,) = struct.unpack(layout, data)
    except struct.error as error:
        raise ValueError(f"{len(data)} bytes cannot be deserialized") from error
    return number


def _integer(layout: str) -> Reader:
    return lambda data: str(_unpacked(layout, data))


def _float(data: bytes) -> str:
    """Write the shortest decimal that denotes this 32-bit number, as Java does."""
    number = _unpacked(">f", data)
    if not math.isfinite(number):
        return double_text(number)
    texts = (f"{number:.{digits}g}" for digits in range(2, 10))
    return double_text(float(next(text for text in texts if _is_float(text, data))))


def _is_float(text: str, data: bytes) -> bool:
    try:
        return struct.pack(">f", float(text)) == data
    except OverflowError:  # rounded up beyond the largest float
        return False


def _double(data: bytes) -> str:
    return double_text(_unpacked(">d", data))


def _truth(data: bytes) -> str:
    if data not in {b"\0", b"\1"}:
        raise ValueError("Unexpected byte received by BooleanDeserializer")
    return "true" if data == b"\1" else "false"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_READERS: dict[str, Reader] = {
    "StringDeserializer": _text,
    "ByteArrayDeserializer": _text,
    "IntegerDeserializer": _integer(">i"),
    "LongDeserializer": _integer(">q"),
    "BooleanDeserializer": _truth,
    "UUIDDeserializer": _text,
    "ShortDeserializer": _integer(">h"),
    "DoubleDeserializer": _double,
    "FloatDeserializer": _float,
}


class FormatterError(Exception):
    """An invalid property of the formatter."""


class Formatter:
    """Writes records according to its properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        given = {**DEFAULTS, **properties}

        def is_printed(name: str) -> bool:
            return given[f"print.{name}"].strip().lower() == "true"

        self._timestamp, self._partition = is_printed("timestamp"), is_printed("partition")
        self._offset, self._epoch = is_printed("offset"), is_printed("epoch")
        self._delivery = is_printed("delivery")
        self._headers, self._key, self._value = (
            is_printed("headers"),
            is_printed("key"),
            is_printed("value"),
        )
        self._separator = given["key.separator"]
        self._end = given["line.separator"]
        self._headers_separator = given["headers.separator"]
        self._null = given["null.literal"]
        self._read_key = reader(given["key.deserializer"])
        self._read_value = reader(given["value.deserializer"])
        self._read_header = reader(given["headers.deserializer"])

    def format(self, record: ConsumerRecord) -> str:
        """Return one record with its line separator; raises ValueError if it cannot be decoded."""
        parts: list[str] = []
        if self._timestamp:
            kind = "LogAppendTime" if isinstance(record, AppendedRecord) else "CreateTime"
            parts.append(f"{kind}:{record.timestamp}" if record.timestamp >= 0 else "NO_TIMESTAMP")
        if self._partition:
            parts.append(f"Partition:{record.partition}")
        if self._offset:
            parts.append(f"Offset:{record.offset}")
        if self._delivery:
            parts.append(f"Delivery:{getattr(record, 'delivery_count', 'NOT_PRESENT')}")
        if self._epoch:
            parts.append("Epoch:NOT_PRESENT")  # Kafka's tool drops the epoch before it prints
        if self._headers:
            parts.append(self._headers_text(record))
        if self._key:
            parts.append(self._shown(record.key, self._read_key))
        if self._value:
            parts.append(self._shown(record.value, self._read_value))
        return self._separator.join(parts) + self._end if parts else ""

    def _headers_text(self, record: ConsumerRecord) -> str:
        if not record.headers:
            return "NO_HEADERS"
        pairs = (
            f"{name}:{self._shown(value, self._read_header)}" for name, value in record.headers
        )
        return self._headers_separator.join(pairs)

    def _shown(self, data: bytes | None, read: Reader) -> str:
        return self._null if data is None else read(data)


def reader(class_name: str) -> Reader:
    """Return a deserializer as a function to text; it raises ValueError for invalid bytes."""
    if not class_name:
        return _text
    try:
        return _READERS[class_name.rpartition(".")[2]]
    except KeyError:
        raise FormatterError(f"Class {class_name} could not be found.") from None

"""Writes a record as one line of JSON: console-consumer --json.

Kafka: none; its formatters print columns.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

from ottla.cli.output.formatter import reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.consumer.record_decoder import ConsumerRecord


class RecordJson:
    """Writes records with key, value, headers and place.

    Bytes that are no UTF-8 are written as base64, under the name `key_base64` or `value_base64`.
    """

    def __init__(self, key_deserializer: str, value_deserializer: str) -> None:
        self._read_key = reader(key_deserializer) if key_deserializer else None
        self._read_value = reader(value_deserializer) if value_deserializer else None

    def format(self, record: ConsumerRecord) -> str:
        """Return one line; raises ValueError if the record cannot be decoded."""
        document = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **_field("key", record.key, self._read_key),
            **_field("value", record.value, self._read_value),
            "headers": [{"key": name, **_field("value", one)} for name, one in record.headers],
        }
        return json.dumps(document, ensure_ascii=False) + "\n"


def _field(
    name: str, data: bytes | None, read: Callable[[bytes], str] | None = None
) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode() if read is None else read(data)}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}

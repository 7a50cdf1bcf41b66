"""Formats records of the coordinators' internal topics as JSON for `ottla console-consumer`.

Kafka: org.apache.kafka.tools.consumer.CoordinatorRecordMessageFormatter and its subclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.output.coordinator_records import (
    UnknownTypeError,
    coordinator_kinds,
    read_coordinator_record,
)
from ottla.cli.output.message_json import json_text, message_json
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.consumer.record_decoder import ConsumerRecord

PACKAGE = "org.apache.kafka.tools.consumer."
_GROUP = ("group", "consumer_group", "share_group", "streams_group")


class _Kinds(NamedTuple):
    """The modules of a topic's records, and the types that are shown (None: all)."""

    modules: tuple[str, ...]
    shown: frozenset[int] | None = None


FORMATTERS = {
    "OffsetsMessageFormatter": _Kinds(_GROUP, frozenset({0, 1})),
    "GroupMetadataMessageFormatter": _Kinds(_GROUP, frozenset({2})),
    "ShareGroupMessageFormatter": _Kinds(_GROUP, frozenset(range(10, 16))),
    "TransactionLogMessageFormatter": _Kinds(("transaction",)),
    "group.share.ShareGroupStateMessageFormatter": _Kinds(("share",)),
}


def coordinator_formatter(class_name: str) -> Callable[[ConsumerRecord], str] | None:
    """Return the formatter for one of Kafka's classes, or None for another class.

    Its output has no line ends, as that of Kafka's formatters. Records of other types are
    omitted; ValueError is raised for a record that cannot be decoded.
    """
    found = FORMATTERS.get(class_name.removeprefix(PACKAGE))
    if found is None:
        return None
    kinds = coordinator_kinds(*found.modules)

    def write(record: ConsumerRecord) -> str:
        if record.key is None:
            return ""
        try:
            read = read_coordinator_record(record.key, record.value, kinds)
        except UnknownTypeError:
            return ""
        except (OttlaError, ValueError) as error:
            raise ValueError(
                f"Could not read record at offset {record.offset} due to: {error}"
            ) from error
        if found.shown is not None and read.type not in found.shown:
            return ""
        value = None
        if read.value is not None:
            data = message_json(read.value, read.version)
            value = {"version": read.version, "data": data}
        key = {"type": read.type, "data": message_json(read.key, 0)}
        return json_text({"key": key, "value": value})

    return write

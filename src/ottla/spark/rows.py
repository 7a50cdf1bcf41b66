"""The columns of a written frame, found by name and validated.

Kafka: org.apache.spark.sql.kafka010.{KafkaWriter.validateQuery, KafkaRowWriter}.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

STATE_DIGEST = "__ottla_state_digest"
"""The column of rows that are no records: digests of what stages have changed in their state."""
SINK_COLUMNS = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    STATE_DIGEST: ("bigint",),
}


class FrameColumns(NamedTuple):
    """The index of each column in the frame, None if it is missing."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None
    timestamp: int | None
    state_digest: int | None = None


def find_columns(schema: StructType, topic: str | None) -> FrameColumns:
    """Return the column indexes; KafkaError(INVALID_CONFIG) for missing or mistyped columns."""
    by_name = {field.name.lower(): index for index, field in enumerate(schema.fields)}
    found = {name: by_name.get(name.lower()) for name in SINK_COLUMNS}
    for name, index in found.items():
        if index is not None:
            _check_type(name, _type_name(schema.fields[index].dataType))
    value = found.pop("value")
    if value is None:
        unused = [field.name for field in schema.fields if field.name.lower() not in SINK_COLUMNS]
        near = get_close_matches("value", unused, n=1)
        hint = f"; rename {near[0]!r}?" if near else ""
        raise _invalid(
            "the frame has no column 'value' (string or binary)"
            + (hint or "; for several columns write to_json(struct('*')) AS value")
        )
    if topic is None and found["topic"] is None:
        raise _invalid("no topic: give option topic, or a column 'topic'")
    digest = found.pop(STATE_DIGEST)
    return FrameColumns(value=value, state_digest=digest, **found)


def _type_name(data_type: Any) -> str:
    text: str = data_type.simpleString()
    return text


def _check_type(name: str, given: str) -> None:
    if name == "timestamp" and given == "timestamp_ntz":
        raise _invalid(
            "column 'timestamp' is timestamp_ntz, which names no instant without a time zone; "
            "write cast(timestamp AS timestamp) AS timestamp, which takes the session's"
        )
    if given not in SINK_COLUMNS[name]:
        raise _invalid(f"column {name!r} is {given}; it must be {' or '.join(SINK_COLUMNS[name])}")


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)

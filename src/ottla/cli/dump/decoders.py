"""Key and value decoders of `ottla dump-log`: text, and the records of internal topics.

Kafka: the MessageParser classes of org.apache.kafka.tools.DumpLogSegments.
"""

from __future__ import annotations

import re
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from ottla.cli.output.coordinator_records import (
    DecodedCoordinatorRecord,
    UnknownTypeError,
    coordinator_kinds,
    read_coordinator_record,
    read_message,
    read_version,
)
from ottla.cli.output.message_json import RawJson, json_list, json_text, message_json
from ottla.config.dynamic import definition_of
from ottla.config.secret import HIDDEN
from ottla.errors import CorruptMessage, OttlaError
from ottla.metadata.framing import FRAME_VERSION, decode_record
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.codec import decode_at
from ottla.protocol.primitives import decode_uvarint
from ottla.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.records.group import GroupMetadataValue
from ottla.protocol.records.metadata import ConfigRecord
from ottla.protocol.records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.schema import Struct
    from ottla.records.record import Record

_INT32 = Layout(">i")
_INT64 = Layout(">q")
DECODER_PACKAGE = "org.apache.kafka.tools.api."


class Shown(NamedTuple):
    """A record's key and value as text; None where nothing is printed."""

    key: str | None
    value: str | None


class DecoderError(Exception):
    """An unknown decoder, or a record that a decoder cannot decode."""


# ---------------------------------------------------------------- applications' records


def decoder_class_parser(key_decoder: str, value_decoder: str) -> Callable[[Record], Shown]:
    """Return a parser by the names of Kafka's decoder classes; raises DecoderError."""
    read_key, read_value = _decoder(key_decoder), _decoder(value_decoder)

    def parse(record: Record) -> Shown:
        key, value = record.key, record.value
        return Shown(
            None if key is None else read_key(key), None if value is None else read_value(value)
        )

    return parse


def _decoder(name: str) -> Callable[[bytes], str]:
    found = _DECODERS.get(name)
    if found is None:
        known = ", ".join(_DECODERS)
        raise DecoderError(
            f"Failed to load decoder class {name}: it is a custom Java class or unknown. "
            f"Supported decoders are {known}."
        )
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _number(layout: Layout, kind: str) -> Callable[[bytes], str]:
    def read(data: bytes) -> str:
        if len(data) < layout.size:
            raise DecoderError(f"a value of {len(data)} bytes is not a {kind}")
        return str(layout.unpack_from(data)[0])

    return read


def _array(data: bytes) -> str:
    """Show bytes as Java prints an array; the checksum replaces Java's identity hash."""
    return f"[B@{crc32(data):x}"


_DECODERS: dict[str, Callable[[bytes], str]] = {
    f"{DECODER_PACKAGE}DefaultDecoder": _array,
    f"{DECODER_PACKAGE}StringDecoder": _text,
    f"{DECODER_PACKAGE}IntegerDecoder": _number(_INT32, "integer"),
    f"{DECODER_PACKAGE}LongDecoder": _number(_INT64, "long"),
}


# ---------------------------------------------------------------- coordinators' records


def coordinator_parser(*modules: str) -> Callable[[Record], Shown]:
    """Return a parser for a coordinator's topic, whose records the given modules describe."""
    kinds = coordinator_kinds(*modules)

    def parse(record: Record) -> Shown:
        if record.key is None:
            raise DecoderError(
                f"Failed to decode message at offset {record.offset} using the specified decoder "
                "(message had a missing key)"
            )
        try:
            return _shown(read_coordinator_record(record.key, record.value, kinds))
        except UnknownTypeError as error:
            return Shown(f"{error} at offset {record.offset}, skipping.", None)
        except (OttlaError, ValueError) as error:
            return Shown(f"Error at offset {record.offset}, skipping. {error}", None)

    return parse


def _shown(record: DecodedCoordinatorRecord) -> Shown:
    key = json_text({"type": str(record.type), "data": message_json(record.key, 0)})
    if record.value is None:
        return Shown(key, "<DELETE>")
    data = _value(record.value, record.version)
    return Shown(key, json_text({"version": str(record.version), "data": data}))


def _value(message: Struct, version: int) -> RawJson:
    if not isinstance(message, GroupMetadataValue) or message.protocol_type != "consumer":
        return message_json(message, version)
    members = json_list(_member(member, version) for member in message.members)
    return message_json(message, version, {"members": members})


def _member(member: Any, version: int) -> RawJson:
    """Write a member with its two opaque fields decoded where possible."""
    replaced = {}
    for name, cls in (
        ("subscription", ConsumerProtocolSubscription),
        ("assignment", ConsumerProtocolAssignment),
    ):
        data = getattr(member, name)
        try:
            inner_version = read_version(data, name)
            inner = read_message(cls, inner_version, data, (name, inner_version))
            replaced[name] = message_json(inner, inner_version)
        except CorruptMessage:  # shown as raw bytes
            continue
    return message_json(member, version, replaced)


# ---------------------------------------------------------------- metadata


_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def metadata_parser(record: Record) -> Shown:
    """Show a record of __cluster_metadata."""
    try:
        message, version = decode_record(record.value)
        if isinstance(message, ConfigRecord) and _is_secret(message):
            message.value = HIDDEN
        kind = _WORD.sub("_", type(message).__name__).upper()
        text = json_text({"type": kind, "version": version, "data": message_json(message, version)})
    except (OttlaError, ValueError) as error:
        text = f"Error at {record.offset}, skipping. {error}"
    return Shown(None, text)


def _is_secret(record: ConfigRecord) -> bool:
    """Whether a broker's setting is a password; Kafka's tool prints it."""
    if record.resource_type != ConfigResourceType.BROKER or record.value is None:
        return False
    definition = definition_of(record.name)
    return definition is None or definition.sensitive


# ---------------------------------------------------------------- remote log metadata

_SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def remote_log_parser(record: Record) -> Shown:
    """Show a record of __remote_log_metadata as Java prints its object."""
    try:
        text = _remote_log_text(record.value or b"")
    except (OttlaError, ValueError, IndexError) as error:
        text = f"Error at offset {record.offset}, skipping. {error}"
    return Shown(None, text)


def _remote_log_text(value: bytes) -> str:
    view = memoryview(value)
    frame, position = decode_uvarint(view, 0)
    if frame != FRAME_VERSION:
        raise CorruptMessage(f"Could not deserialize metadata record due to unknown frame {frame}")
    key, position = decode_uvarint(view, position)
    version, position = decode_uvarint(view, position)
    found = _REMOTE.get(key)
    if found is None:
        raise CorruptMessage(f"Unknown metadata record of kind {key}")
    cls, write = found
    message, _ = decode_at(cls, version, view, position)
    return write(message)


def _segment(message: Any) -> str:
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(message)}, "
        f"startOffset={message.start_offset}, endOffset={message.end_offset}, "
        f"brokerId={message.broker_id}, {_timestamps_and_rest(message)}}}"
    )


def _timestamps_and_rest(message: Any) -> str:
    return (
        f"maxTimestampMs={message.max_timestamp_ms}, "
        f"eventTimestampMs={message.event_timestamp_ms}, {_epochs_and_rest(message)}"
    )


def _epochs_and_rest(message: Any) -> str:
    epochs = sorted((epoch.leader_epoch, epoch.offset) for epoch in message.segment_leader_epochs)
    shown = ", ".join(f"{epoch}={offset}" for epoch, offset in epochs)
    empty = "true" if message.txn_index_empty else "false"
    return (
        f"segmentLeaderEpochs={{{shown}}}, segmentSizeInBytes={message.segment_size_in_bytes}, "
        f"customMetadata={_custom(message)}, state={_state(message, _SEGMENT_STATES)}, "
        f"txnIdxEmpty={empty}"
    )


def _update(message: Any) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(message)}, "
        f"customMetadata={_custom(message)}, state={_state(message, _SEGMENT_STATES)}, "
        f"eventTimestampMs={message.event_timestamp_ms}, brokerId={message.broker_id}}}"
    )


def _deletion(message: Any) -> str:
    state = _PARTITION_STATES[message.remote_partition_delete_state]
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(message.topic_id_partition)}, "
        f"state={state}, eventTimestampMs={message.event_timestamp_ms}, "
        f"brokerId={message.broker_id}}}"
    )


def _snapshot(message: Any) -> str:
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={message.segment_id}, "
        f"startOffset={message.start_offset}, endOffset={message.end_offset}, "
        f"maxTimestampMs={message.max_timestamp_ms}, {_epochs_and_rest(message)}}}"
    )


def _segment_id(message: Any) -> str:
    found = message.remote_log_segment_id
    where = _partition(found.topic_id_partition)
    return f"RemoteLogSegmentId{{topicIdPartition={where}, id={found.id}}}"


def _partition(entry: Any) -> str:
    return f"{entry.id}:{entry.name}-{entry.partition}"


def _custom(message: Any) -> str:
    if message.custom_metadata is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(message.custom_metadata)} bytes}}]"


def _state(message: Any, names: tuple[str, ...]) -> str:
    number: int = message.remote_log_segment_state
    return names[number]


_REMOTE: dict[int, tuple[type[Struct], Callable[[Any], str]]] = {
    0: (RemoteLogSegmentMetadataRecord, _segment),
    1: (RemoteLogSegmentMetadataUpdateRecord, _update),
    2: (RemotePartitionDeleteMetadataRecord, _deletion),
    3: (RemoteLogSegmentMetadataSnapshotRecord, _snapshot),
}

"""How `ottla dump-log` shows keys and values: as text, or as what internal topics keep in them.

Kafka: the MessageParser classes of org.apache.kafka.tools.DumpLogSegments.
"""

from __future__ import annotations

import re
from importlib import import_module
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from ottla.cli.output.message_json import RawJson, json_list, json_text, message_json
from ottla.errors import CorruptMessage, OttlaError
from ottla.metadata.framing import FRAME_VERSION, decode_record
from ottla.protocol.codec import decode_at
from ottla.protocol.primitives import decode_uvarint
from ottla.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.records.group import GroupMetadataValue
from ottla.protocol.records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from ottla.protocol.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.records.record import Record

_VERSION = Layout(">h")
_INT32 = Layout(">i")
_INT64 = Layout(">q")
DECODER_PACKAGE = "org.apache.kafka.tools.api."


class Shown(NamedTuple):
    """A record's key and value as text; None where nothing is printed."""

    key: str | None
    value: str | None


class DecoderError(Exception):
    """A decoder that there is not, or a record that a decoder cannot take."""


# ---------------------------------------------------------------- applications' records


def plain_parser(key_decoder: str, value_decoder: str) -> Callable[[Record], Shown]:
    """Return a parser by the names of Kafka's decoder classes; DecoderError names an unknown."""
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
            f"Failed to load decoder class {name}: it is Java code of your own or not known. "
            f"The decoders here are {known}."
        )
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _number(layout: Layout, kind: str) -> Callable[[bytes], str]:
    def read(data: bytes) -> str:
        if len(data) < layout.size:
            raise DecoderError(f"a value of {len(data)} bytes is no {kind}")
        return str(layout.unpack_from(data)[0])

    return read


def _array(data: bytes) -> str:
    """Show bytes as Java prints an array: it says where the array lies, here a checksum."""
    return f"[B@{crc32(data):x}"


_DECODERS: dict[str, Callable[[bytes], str]] = {
    f"{DECODER_PACKAGE}DefaultDecoder": _array,
    f"{DECODER_PACKAGE}StringDecoder": _text,
    f"{DECODER_PACKAGE}IntegerDecoder": _number(_INT32, "integer"),
    f"{DECODER_PACKAGE}LongDecoder": _number(_INT64, "long"),
}


# ---------------------------------------------------------------- what coordinators write


class Kind(NamedTuple):
    """The messages of one type of a coordinator's records."""

    key: type[Struct]
    value: type[Struct]


class UnknownTypeError(CorruptMessage):
    """A record whose type is none of its coordinator's: a newer version wrote it."""


class CoordinatorRecord(NamedTuple):
    """What a coordinator's record says; value None deletes what the key names."""

    type: int
    key: Struct
    version: int
    value: Struct | None


def coordinator_kinds(*modules: str) -> dict[int, Kind]:
    """Pair the keys and values of record modules by their type."""
    keys: dict[int, type[Struct]] = {}
    values: dict[int, type[Struct]] = {}
    for name in modules:
        for one in vars(import_module(f"ottla.protocol.records.{name}")).values():
            if isinstance(one, type) and issubclass(one, Struct) and one.message_key >= 0:
                (keys if one.__name__.endswith("Key") else values)[one.message_key] = one
    return {number: Kind(key, values[number]) for number, key in keys.items()}


def coordinator_parser(*modules: str) -> Callable[[Record], Shown]:
    """Return a parser for the topic of a coordinator, whose records these modules describe."""
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


def _shown(record: CoordinatorRecord) -> Shown:
    key = json_text({"type": str(record.type), "data": message_json(record.key, 0)})
    if record.value is None:
        return Shown(key, "<DELETE>")
    data = _value(record.value, record.version)
    return Shown(key, json_text({"version": str(record.version), "data": data}))


def read_coordinator_record(
    key: bytes, value: bytes | None, kinds: dict[int, Kind]
) -> CoordinatorRecord:
    """Read a record of these kinds; UnknownTypeError for another kind, CorruptMessage."""
    number = _read_version(key, "key")
    kind = kinds.get(number)
    if kind is None:
        raise UnknownTypeError(f"Unknown record type {number}")
    message = _read(kind.key, kind.key.versions.lowest, key, ("key", number))
    if value is None:
        return CoordinatorRecord(number, message, 0, None)
    version = _read_version(value, "value")
    if version not in kind.value.versions:
        raise CorruptMessage(f"Found an unknown record version {version} for {number} type")
    body = _read(kind.value, version, value, ("value", version))
    return CoordinatorRecord(number, message, version, body)


def _read_version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise CorruptMessage(f"Could not read version from {what}'s buffer.")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _read(cls: type[Struct], version: int, data: bytes, shown: tuple[str, int]) -> Struct:
    what, number = shown
    try:
        return decode_at(cls, version, memoryview(data), _VERSION.size)[0]
    except (OttlaError, ValueError, IndexError) as error:
        raise CorruptMessage(
            f"Could not read record with version {number} from {what}'s buffer due to: {error}."
        ) from error


def _value(message: Struct, version: int) -> RawJson:
    if not isinstance(message, GroupMetadataValue) or message.protocol_type != "consumer":
        return message_json(message, version)
    members = json_list(_member(member, version) for member in message.members)
    return message_json(message, version, {"members": members})


def _member(member: Any, version: int) -> RawJson:
    """Write a member with what its two opaque fields hold, where that can be read."""
    replaced = {}
    for name, cls in (
        ("subscription", ConsumerProtocolSubscription),
        ("assignment", ConsumerProtocolAssignment),
    ):
        data = getattr(member, name)
        try:
            inner_version = _read_version(data, name)
            inner = _read(cls, inner_version, data, (name, inner_version))
            replaced[name] = message_json(inner, inner_version)
        except CorruptMessage:  # the bytes are shown as they are
            continue
    return message_json(member, version, replaced)


# ---------------------------------------------------------------- metadata


_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def metadata_parser(record: Record) -> Shown:
    """Show a record of __cluster_metadata."""
    try:
        message, version = decode_record(record.value)
        kind = _WORD.sub("_", type(message).__name__).upper()
        text = json_text({"type": kind, "version": version, "data": message_json(message, version)})
    except (OttlaError, ValueError) as error:
        text = f"Error at {record.offset}, skipping. {error}"
    return Shown(None, text)


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
    epochs = sorted((one.leader_epoch, one.offset) for one in message.segment_leader_epochs)
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

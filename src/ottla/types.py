"""Small value types that every layer shares.

Kafka: org.apache.kafka.common.{Uuid, TopicPartition, TopicIdPartition, Node, internals.Topic},
clients.consumer.AcknowledgeType.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import IntEnum
from string import ascii_letters, digits
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Self

Buffer: TypeAlias = bytes | bytearray | memoryview
_BASE64_DIGITS = f"{ascii_letters}{digits}-_".encode()


class Uuid(bytes):
    """Sixteen bytes, printed as Kafka prints them: 22 characters of unpadded URL-safe base64."""

    __slots__ = ()

    def __new__(cls, value: Buffer = bytes(16)) -> Self:
        """Take exactly 16 bytes; raise ValueError otherwise."""
        self = super().__new__(cls, value)
        if len(self) != 16:
            raise ValueError(f"a Uuid has 16 bytes, not {len(self)}")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the 22-character form; raise ValueError with Kafka's text if it is not valid.

        Padding and set bits after the last byte are accepted, as in Java.
        """
        if len(text) > 24:
            raise ValueError(
                f"Input string with prefix `{text[:24]}` is too long to be decoded as a base64 UUID"
            )
        raw = _decode_base64(text)
        if len(raw) != 16:
            raise ValueError(
                f"Input string `{text}` decoded as {len(raw)} bytes, which is not equal to the "
                "expected 16 bytes of a base64-encoded UUID"
            )
        return cls(raw)

    @classmethod
    def drawn(cls, draw: Callable[[], Buffer]) -> Self:
        """Return the first id of a source whose text does not begin with a dash, as a flag does."""
        while True:
            found = cls(draw())
            if not str(found).startswith("-"):
                return found

    def __str__(self) -> str:
        return urlsafe_b64encode(self).decode("ascii").rstrip("=")

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"

    def __bool__(self) -> bool:
        return self != ZERO_UUID


def _decode_base64(text: str) -> bytes:
    """Decode URL-safe base64, with the error texts of java.util.Base64."""
    encoded = text.encode("latin-1", "replace")
    if len(encoded) == 1:
        raise ValueError("Input byte[] should at least have 2 bytes for base64 bytes")
    content = encoded.rstrip(b"=")
    if wrong := content.translate(None, _BASE64_DIGITS):
        raise ValueError(f"Illegal base64 character {wrong[0]:x}")
    if content != encoded and len(encoded) % 4:
        raise ValueError("Input byte array has wrong 4-byte ending unit")
    if len(content) % 4 == 1:
        raise ValueError("Last unit does not have enough valid bits")
    return urlsafe_b64decode(content + b"=" * (-len(content) % 4))


ZERO_UUID = Uuid()
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")


_new_tuple = tuple.__new__


class _TopicPartition(NamedTuple):
    topic: str
    partition: int


class TopicPartition(_TopicPartition):
    """A partition by topic name; other types than str and int are a TypeError."""

    __slots__ = ()

    def __new__(cls, topic: str, partition: int) -> Self:
        """Take a topic and a partition number."""
        if isinstance(topic, str) and isinstance(partition, int):
            return _new_tuple(cls, (topic, partition))
        text = f"TopicPartition takes a str and an int, not ({topic!r}, {partition!r})"
        raise TypeError(text)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


_MAX_TOPIC_LENGTH = 249
"""With the longest partition number and a suffix a directory's name has at most 255 bytes."""
_TOPIC_CHARACTERS = frozenset(f"{ascii_letters}{digits}._-")


def topic_name_problem(name: str) -> str | None:
    """Return why a topic cannot have this name, in Kafka's words; None when it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > _MAX_TOPIC_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {_MAX_TOPIC_LENGTH}"
    if not _TOPIC_CHARACTERS.issuperset(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name; it is safe as a part of a path."""
    return topic_name_problem(name) is None


class OffsetAndEpoch(NamedTuple):
    """A log position that is comparable across leaders."""

    offset: int
    leader_epoch: int


class Node(NamedTuple):
    """A broker's address on one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class AcknowledgeType(IntEnum):
    """What a member of a share group decides on a record (KIP-932); a gap has no record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ReadableFile(Protocol):
    """What a slice needs from the file that holds it."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to size bytes at position, as many as the file has."""

    def send_to(self, sock: socket.socket, position: int, size: int) -> int:
        """Send bytes of the file to a socket, as sendfile does; return how many it took."""

    def pin(self) -> None:
        """Stay open until `unpin`."""

    def unpin(self) -> None:
        """Undo one `pin`."""


class FileSlice(NamedTuple):
    """Bytes that lie in a file and can be sent without being read."""

    file: ReadableFile
    position: int
    size: int

    def read(self) -> bytes:
        """Copy the bytes out of the file."""
        return self.file.read(self.position, self.size)


SendItem: TypeAlias = Buffer | FileSlice

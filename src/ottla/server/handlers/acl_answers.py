"""Responses to DescribeAcls, encoded while they are built: 100,000 entries take 75 ms at once.

Kafka: org.apache.kafka.server.AclApis; each of its requests occupies a thread.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.protocol import codec
from ottla.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.frames import response_header
from ottla.protocol.primitives import encode_uvarint
from ottla.server.requests.api import Form, codec_form

if TYPE_CHECKING:
    from collections.abc import Iterator

Resource = DescribeAclsResponse.DescribeAclsResource
Entry = Resource.AclDescription
_ENTRIES_AT_ONCE: Final = 100
"""Entries of one resource that are encoded together: some 70 µs."""
_RESOURCES_AT_ONCE: Final = 100
_FLEXIBLE_FROM: Final = 2
_LENGTH: Final = struct.Struct(">i")


@dataclass(slots=True)
class EncodedAcls:
    """A response without its resources, and the resources as bytes."""

    response: DescribeAclsResponse
    resource_count: int = 0
    parts: list[bytes] = field(default_factory=list)
    """In order; each holds several resources."""


class EncodedResource:
    """The entries of one resource pattern, most of them as bytes."""

    def __init__(self, resource: Resource, version: int) -> None:
        """Take the resource, to which entries are added."""
        self._resource, self._version = resource, version
        self._encoded: list[bytes] = []
        self._encoded_count = 0

    def add(self, entry: Entry) -> None:
        """Add an entry; every hundredth time the last hundred are encoded."""
        entries = self._resource.acls
        entries.append(entry)
        if len(entries) == _ENTRIES_AT_ONCE:
            head, data = self._head(), self._whole()
            start = len(head) + len(_count(len(entries), self._version))
            self._encoded.append(data[start : len(data) - len(_tags(self._version))])
            self._encoded_count += len(entries)
            entries.clear()

    def to_bytes(self) -> bytes:
        """Return the resource with all its entries."""
        if not self._encoded:
            return self._whole()
        head, data = self._head(), self._whole()
        left = self._resource.acls
        rest = data[len(head) + len(_count(len(left), self._version)) :]  # with tagged fields
        count = _count(self._encoded_count + len(left), self._version)
        return b"".join((head, count, *self._encoded, rest))

    def _head(self) -> bytes:
        """Return what is before the number of entries."""
        one = self._resource
        empty = Resource(
            resource_type=one.resource_type,
            resource_name=one.resource_name,
            pattern_type=one.pattern_type,
            acls=[],
        )
        data = _element(empty, self._version)
        return data[: len(data) - len(_count(0, self._version)) - len(_tags(self._version))]

    def _whole(self) -> bytes:
        return _element(self._resource, self._version)


def encode_all(resources: dict[Any, EncodedResource], answer: EncodedAcls) -> Iterator[None]:
    """Encode a resource in a step, from the last one on; it is taken from the dict.

    A dict that holds all of them to the end is freed at once, which takes 20 ms.
    """
    answer.resource_count = len(resources)
    encoded: list[bytes] = []
    while resources:
        encoded.append(resources.popitem()[1].to_bytes())
        if len(encoded) == _RESOURCES_AT_ONCE or not resources:
            answer.parts.append(b"".join(reversed(encoded)))
            encoded.clear()
        yield
    answer.parts.reverse()


def _element(resource: Resource, version: int) -> bytes:
    """Return an element of the response's array, which is the last field."""
    data = codec.to_bytes(DescribeAclsResponse(error_message="", resources=[resource]), version)
    return data[_start(version) : len(data) - len(_tags(version))]


@cache
def _start(version: int) -> int:
    """Return where the first element is, while there are fewer than 127."""
    empty = codec.to_bytes(DescribeAclsResponse(error_message="", resources=[]), version)
    return len(empty) - len(_tags(version))


def _count(length: int, version: int) -> bytes:
    return encode_uvarint(length + 1) if version >= _FLEXIBLE_FROM else _LENGTH.pack(length)


def _tags(version: int) -> bytes:
    """Return the tagged fields of a struct without any."""
    return b"\0" if version >= _FLEXIBLE_FROM else b""


_by_codec = codec_form(DescribeAclsRequest)


def _write(
    response: DescribeAclsResponse | EncodedAcls,
    correlation_id: int,
    version: int,
    throttle_time_ms: int,
) -> Any:
    if isinstance(response, DescribeAclsResponse):
        return _by_codec.write(response, correlation_id, version, throttle_time_ms)
    if throttle_time_ms:
        response.response.throttle_time_ms = throttle_time_ms
    tags = _tags(version)
    head = codec.to_bytes(response.response, version)
    head = head[: len(head) - len(_count(0, version)) - len(tags)]
    count = _count(response.resource_count, version)
    body = b"".join((head, count, *response.parts, tags))
    return response_header(len(body), correlation_id, version >= _FLEXIBLE_FROM) + body


FORM: Final = Form(_by_codec.read, _write, _by_codec.fail)

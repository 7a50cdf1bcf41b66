"""DescribeAcls, CreateAcls, DeleteAcls; descriptions are encoded while they are built.

Kafka: org.apache.kafka.server.AclApis; org.apache.kafka.server.AclApis; each of its requests
occupies a thread.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.acls import acl_of, checked_filter
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import codec
from ottla.protocol.apis.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.apis.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.frames import response_header
from ottla.protocol.primitives import encode_uvarint
from ottla.purgatory.pending import Pending
from ottla.security.acl import Operation
from ottla.server.requests.api import Form, codec_form, handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from ottla.protocol.records.metadata import AccessControlEntryRecord
    from ottla.purgatory.work import Work
    from ottla.security.acl import Acl, AclFilter
    from ottla.server.requests.context import Context

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


@handles(DescribeAclsRequest, right=Right(Operation.DESCRIBE), form=FORM)
def describe_acls(ctx: Context, request: DescribeAclsRequest) -> Pending[EncodedAcls]:
    """List the entries that match a filter, by resource: there may be 100,000."""
    if ctx.broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    acl_filter = checked_filter(request)
    answer = EncodedAcls(DescribeAclsResponse(error_message="", resources=[]))
    records = list(ctx.broker.image.acls.by_id.values())
    return ctx.broker.worker.run(_describe(records, acl_filter, answer, ctx.api_version))


def _describe(
    records: list[AccessControlEntryRecord],
    acl_filter: AclFilter,
    answer: EncodedAcls,
    version: int,
) -> Work[EncodedAcls]:
    """Add the resources of the entries that the filter fits to the answer."""
    resources: dict[tuple[int, str, int], EncodedResource] = {}
    for record in records:
        yield
        acl = acl_of(record)
        if acl_filter.fits(acl):
            key = acl.resource_type, acl.resource_name, acl.pattern_type
            resource = resources.get(key)
            if resource is None:
                resource = resources[key] = EncodedResource(_resource(*key), version)
            resource.add(_entry(acl))
    # encode a resource in a step, from the last one on; it is taken from the dict. A dict
    # that holds all of them to the end is freed at once, which takes 20 ms
    answer.resource_count = len(resources)
    encoded: list[bytes] = []
    while resources:
        encoded.append(resources.popitem()[1].to_bytes())
        if len(encoded) == _RESOURCES_AT_ONCE or not resources:
            answer.parts.append(b"".join(reversed(encoded)))
            encoded.clear()
        yield
    answer.parts.reverse()
    return answer


def _resource(kind: int, name: str, pattern: int) -> Resource:
    return Resource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=[])


def _entry(acl: Acl) -> Entry:
    return Entry(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


@handles(CreateAclsRequest, right=Right(Operation.ALTER), forwarded=True)
def create_acls(ctx: Context, request: CreateAclsRequest) -> Pending[CreateAclsResponse]:
    """Store entries; answered for each entry when they are committed."""
    return _sent(ctx, request)


@handles(DeleteAclsRequest, right=Right(Operation.ALTER), forwarded=True)
def delete_acls(ctx: Context, request: DeleteAclsRequest) -> Pending[DeleteAclsResponse]:
    """Remove the entries that match filters; answered for each filter when that is committed."""
    return _sent(ctx, request)


def _sent(ctx: Context, request: CreateAclsRequest | DeleteAclsRequest) -> Pending[Any]:
    if ctx.broker.authorizer is None:
        error = KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return Pending.failed(error)
    return ctx.controller.send(request, ctx.requester())

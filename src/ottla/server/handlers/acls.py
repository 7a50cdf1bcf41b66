"""DescribeAcls, CreateAcls, DeleteAcls.

Kafka: org.apache.kafka.server.AclApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.controller.acls import acl_of, checked_filter
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.apis.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.purgatory.pending import Pending
from ottla.security.acl import Operation
from ottla.server.handlers.acl_answers import (
    FORM,
    EncodedAcls,
    EncodedResource,
    Entry,
    Resource,
    encode_all,
)
from ottla.server.requests.api import handles
from ottla.server.requests.rights import Right

if TYPE_CHECKING:
    from ottla.protocol.records.metadata import AccessControlEntryRecord
    from ottla.purgatory.work import Work
    from ottla.security.acl import Acl, AclFilter
    from ottla.server.requests.context import Context


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
    yield from encode_all(resources, answer)
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

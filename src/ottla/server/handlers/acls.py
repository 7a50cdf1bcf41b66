"""DescribeAcls, CreateAcls, DeleteAcls.

Kafka: org.apache.kafka.server.AclApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.controller.acls import acl_of, checked_filter
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.apis.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.purgatory.pending import Pending
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.requests.api import handles
from ottla.server.requests.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.records.metadata import AccessControlEntryRecord
    from ottla.security.acl import AclFilter
    from ottla.server.requests.context import Context

_Resource = DescribeAclsResponse.DescribeAclsResource
ENTRIES_IN_A_TURN: Final = 500
"""At 4 µs each, 12 for those that match."""


@handles(DescribeAclsRequest)
def describe_acls(ctx: Context, request: DescribeAclsRequest) -> Pending[DescribeAclsResponse]:
    """List the entries that match a filter, by resource, in slices: there may be 100,000."""
    if ctx.broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    acl_filter = checked_filter(request)
    response = DescribeAclsResponse(error_message="", resources=[])
    steps = _describe(list(ctx.broker.image.acls.by_id.values()), acl_filter, response)
    return in_slices(ctx.broker.replicas.call_soon, steps, ENTRIES_IN_A_TURN, response)


def _describe(
    records: list[AccessControlEntryRecord], acl_filter: AclFilter, response: DescribeAclsResponse
) -> Iterator[None]:
    """Compare one entry with the filter in a step."""
    resources: dict[tuple[int, str, int], _Resource] = {}
    for record in records:
        yield
        acl = acl_of(record)
        if not acl_filter.fits(acl):
            continue
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        resource = resources.get(key)
        if resource is None:
            kind, name, pattern = key
            resource = resources[key] = _Resource(
                resource_type=kind, resource_name=name, pattern_type=pattern, acls=[]
            )
            response.resources.append(resource)
        resource.acls.append(
            _Resource.AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )


@handles(CreateAclsRequest)
def create_acls(ctx: Context, request: CreateAclsRequest) -> Pending[CreateAclsResponse]:
    """Store entries; answered for each entry when they are committed."""
    response = CreateAclsResponse
    return per_item_errors(
        _sent(ctx, request),
        lambda error: response(
            results=[response.AclCreationResult(**error) for _ in request.creations]
        ),
    )


@handles(DeleteAclsRequest)
def delete_acls(ctx: Context, request: DeleteAclsRequest) -> Pending[DeleteAclsResponse]:
    """Remove the entries that match filters; answered for each filter when that is committed."""
    response = DeleteAclsResponse
    return per_item_errors(
        _sent(ctx, request),
        lambda error: response(
            filter_results=[
                response.DeleteAclsFilterResult(**error, matching_acls=[]) for _ in request.filters
            ]
        ),
    )


def _sent(ctx: Context, request: CreateAclsRequest | DeleteAclsRequest) -> Pending[Any]:
    if ctx.broker.authorizer is None:
        error = KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return Pending.failed(error)
    return ctx.controller.send(request, ctx.requester())

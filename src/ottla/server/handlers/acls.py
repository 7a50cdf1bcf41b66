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
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.security.acl import Acl
    from ottla.server.requests.context import Context


@handles(DescribeAclsRequest)
def describe_acls(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """List the entries that match a filter, by resource."""
    if ctx.broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    acl_filter = checked_filter(request)
    by_resource: dict[tuple[int, str, int], list[Acl]] = {}
    for record in ctx.broker.image.acls.by_id.values():
        acl = acl_of(record)
        if acl_filter.fits(acl):
            key = acl.resource_type, acl.resource_name, acl.pattern_type
            by_resource.setdefault(key, []).append(acl)
    resource = DescribeAclsResponse.DescribeAclsResource
    return DescribeAclsResponse(
        error_message="",
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    resource.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            for (kind, name, pattern), acls in by_resource.items()
        ],
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

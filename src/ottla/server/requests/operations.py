"""Authorized operations in descriptions: bits of AclOperation, on request (KIP-430).

Kafka: org.apache.kafka.common.acl.AclOperation, MetadataResponse.AUTHORIZED_OPERATIONS_OMITTED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

T = TypeVar("T")
OMITTED: Final = -0x8000_0000
"""The value for operations that were not requested."""


def of_cluster(ctx: Context) -> int:
    """Return what the client may do with the cluster; nothing without DESCRIBE on it."""
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return ctx.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def with_group_operations(ctx: Context, request: Any, answer: Pending[T]) -> Pending[T]:
    """Return a response that describes groups, with the client's operations where requested."""
    if not request.include_authorized_operations:
        return answer

    def fill(response: Any) -> Any:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
        return response

    return answer.then(fill)

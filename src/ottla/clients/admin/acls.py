"""Admin calls for access control entries: describe, create, delete.

Kafka: org.apache.kafka.clients.admin.{DescribeAclsResult, CreateAclsResult, DeleteAclsResult}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.calls import AdminCalls, error_or_none
from ottla.protocol.apis.create_acls import CreateAclsRequest
from ottla.protocol.apis.delete_acls import DeleteAclsRequest
from ottla.protocol.apis.describe_acls import DescribeAclsRequest
from ottla.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.errors import KafkaError

ANY_ACL: Final = AclFilter(
    ResourceType.ANY, PatternType.ANY, None, None, None, Operation.ANY, Permission.ANY
)
"""Fits every entry."""


class AclsAdmin(AdminCalls):
    """The part of the admin for access control entries."""

    async def describe_acls(
        self, acl_filter: AclFilter = ANY_ACL, *, timeout: float | None = None
    ) -> list[Acl]:
        """Return the entries that a filter fits, by default all."""
        request = DescribeAclsRequest(
            resource_type_filter=acl_filter.resource_type,
            resource_name_filter=acl_filter.resource_name,
            pattern_type_filter=acl_filter.pattern_type,
            principal_filter=acl_filter.principal,
            host_filter=acl_filter.host,
            operation=acl_filter.operation,
            permission_type=acl_filter.permission,
        )
        answer = await self._call(request, timeout=timeout)
        return [_acl(resource, one) for resource in answer.resources for one in resource.acls]

    async def create_acls(
        self, acls: Iterable[Acl], *, timeout: float | None = None
    ) -> dict[Acl, KafkaError | None]:
        """Store entries; one that exists is no error."""
        listed = list(dict.fromkeys(acls))
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in listed
        ]
        answer = await self._call(CreateAclsRequest(creations=creations), timeout=timeout)
        return dict(zip(listed, map(_error_of, answer.results), strict=True))

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout: float | None = None
    ) -> dict[AclFilter, list[Acl] | KafkaError]:
        """Delete the entries that filters fit; return them by filter."""
        listed = list(dict.fromkeys(filters))
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=one.resource_type,
                    resource_name_filter=one.resource_name,
                    pattern_type_filter=one.pattern_type,
                    principal_filter=one.principal,
                    host_filter=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in listed
            ]
        )
        answer = await self._call(request, timeout=timeout)
        return dict(zip(listed, map(_deleted, answer.filter_results), strict=True))


def _error_of(result: Any) -> KafkaError | None:
    return error_or_none(result.error_code, result.error_message)


def _deleted(result: Any) -> list[Acl] | KafkaError:
    return _error_of(result) or [_acl(one, one) for one in result.matching_acls]


def _acl(resource: Any, entry: Any) -> Acl:
    return Acl(
        ResourceType(resource.resource_type),
        PatternType(resource.pattern_type),
        resource.resource_name,
        entry.principal,
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )

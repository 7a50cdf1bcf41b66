"""Access control entries as data: the entries of each resource pattern, and their JSON.

Kafka: AclCommand collects them while printing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.security.acl import Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.blocking import Admin
    from ottla.security.acl import Acl, AclFilter


class Resource(NamedTuple):
    """A resource pattern; its text is that of Kafka's ResourcePattern."""

    type: ResourceType
    name: str | None
    pattern: PatternType

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.type.name}, name={self.name}, "
            f"patternType={self.pattern.name})"
        )


def acls_by_resource(
    admin: Admin, filters: Iterable[AclFilter], principals: Iterable[str] = ()
) -> dict[Resource, list[Acl]]:
    """Return the entries that any filter fits, each once; of these principals, or of all."""
    resources: dict[Resource, list[Acl]] = {}
    for acl_filter in filters:
        for principal in principals or (None,):
            for acl in admin.describe_acls(acl_filter._replace(principal=principal)):
                kind, pattern = ResourceType(acl.resource_type), PatternType(acl.pattern_type)
                acls = resources.setdefault(Resource(kind, acl.resource_name, pattern), [])
                if acl not in acls:
                    acls.append(acl)
    return resources


def acl_document(acl: Acl) -> dict[str, str]:
    """Return the JSON of an entry."""
    return {
        "resource_type": ResourceType(acl.resource_type).name,
        "pattern_type": PatternType(acl.pattern_type).name,
        "resource_name": acl.resource_name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": Operation(acl.operation).name,
        "permission_type": Permission(acl.permission).name,
    }

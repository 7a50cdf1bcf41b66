"""List access rules that match a filter.

Kafka: DescribeAclsRequest, DescribeAclsResponse (key 29).

v1 pattern types (KIP-290); v2 flexible; v3 user resources (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int8, int16, int32


class DescribeAclsRequest(
    Request, key=29, versions="1-3", flexible="2+", listeners=("broker", "controller")
):
    resource_type_filter: int8
    resource_name_filter: str | None
    pattern_type_filter: int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: int8
    permission_type: int8


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None
    resources: list[DescribeAclsResource]

    class DescribeAclsResource(Struct):
        resource_type: int8
        resource_name: str
        pattern_type: int8 = 3
        acls: list[AclDescription]

        class AclDescription(Struct):
            principal: str
            host: str
            operation: int8
            permission_type: int8

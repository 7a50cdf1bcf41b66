"""Remove the access rules that match filters.

Kafka: DeleteAclsRequest, DeleteAclsResponse (key 31).

v1 pattern types (KIP-290); v2 flexible; v3 user resources (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int8, int16, int32


class DeleteAclsRequest(
    Request, key=31, versions="1-3", flexible="2+", listeners=("broker", "controller")
):
    filters: list[DeleteAclsFilter]

    class DeleteAclsFilter(Struct):
        resource_type_filter: int8
        resource_name_filter: str | None
        pattern_type_filter: int8 = 3
        principal_filter: str | None
        host_filter: str | None
        operation: int8
        permission_type: int8


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult]

    class DeleteAclsFilterResult(Struct):
        error_code: int16 = 0
        error_message: str | None
        matching_acls: list[DeleteAclsMatchingAcl]

        class DeleteAclsMatchingAcl(Struct):
            error_code: int16 = 0
            error_message: str | None
            resource_type: int8
            resource_name: str
            pattern_type: int8 = 3
            principal: str
            host: str
            operation: int8
            permission_type: int8

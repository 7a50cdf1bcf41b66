"""Add access rules.

Kafka: CreateAclsRequest, CreateAclsResponse (key 30).

v1 pattern types (KIP-290); v2 flexible; v3 user resources (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int8, int16, int32


class CreateAclsRequest(
    Request, key=30, versions="1-3", flexible="2+", listeners=("broker", "controller")
):
    creations: list[AclCreation]

    class AclCreation(Struct):
        resource_type: int8
        resource_name: str
        resource_pattern_type: int8 = 3
        principal: str
        host: str
        operation: int8
        permission_type: int8


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[AclCreationResult]

    class AclCreationResult(Struct):
        error_code: int16 = 0
        error_message: str | None

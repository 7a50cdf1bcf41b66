"""Delete empty groups (KIP-229).

Kafka: DeleteGroupsRequest, DeleteGroupsResponse (key 42).

v2 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, int16, int32


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+", listeners=("broker",)):
    groups_names: list[str]


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult]

    class DeletableGroupResult(Struct):
        group_id: str
        error_code: int16 = 0

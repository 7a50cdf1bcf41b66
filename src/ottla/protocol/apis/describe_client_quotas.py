"""Quotas of users, client ids and addresses that match (KIP-546).

Kafka: DescribeClientQuotasRequest, DescribeClientQuotasResponse (key 48).

v1 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, float64, int8, int16, int32


class DescribeClientQuotasRequest(
    Request, key=48, versions="0-1", flexible="1+", listeners=("broker",)
):
    components: list[ComponentData]
    strict: bool

    class ComponentData(Struct):
        entity_type: str
        match_type: int8
        match: str | None


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None
    entries: list[EntryData] | None

    class EntryData(Struct):
        entity: list[EntityData]
        values: list[ValueData]

        class EntityData(Struct):
            entity_type: str
            entity_name: str | None

        class ValueData(Struct):
            key: str
            value: float64

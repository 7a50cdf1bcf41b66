"""Set and remove quotas (KIP-546).

Kafka: AlterClientQuotasRequest, AlterClientQuotasResponse (key 49).

v1 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, float64, int16, int32


class AlterClientQuotasRequest(
    Request, key=49, versions="0-1", flexible="1+", listeners=("broker", "controller")
):
    entries: list[EntryData]
    validate_only: bool

    class EntryData(Struct):
        entity: list[EntityData]
        ops: list[OpData]

        class EntityData(Struct):
            entity_type: str
            entity_name: str | None

        class OpData(Struct):
            key: str
            value: float64
            remove: bool


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    entries: list[EntryData]

    class EntryData(Struct):
        error_code: int16 = 0
        error_message: str | None
        entity: list[EntityData]

        class EntityData(Struct):
            entity_type: str
            entity_name: str | None

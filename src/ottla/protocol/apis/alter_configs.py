"""Replace all settings of a resource; kept for old clients (KIP-133).

Kafka: AlterConfigsRequest, AlterConfigsResponse (key 33).

Settings that are not named are reset; prefer IncrementalAlterConfigs. v2 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class AlterConfigsRequest(
    Request, key=33, versions="0-2", flexible="2+", listeners=("broker", "controller")
):
    resources: list[AlterConfigsResource]
    validate_only: bool

    class AlterConfigsResource(Struct):
        resource_type: int8
        resource_name: str
        configs: list[AlterableConfig]

        class AlterableConfig(Struct):
            name: str
            value: str | None = field(sensitive=True)


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse]

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None
        resource_type: int8
        resource_name: str

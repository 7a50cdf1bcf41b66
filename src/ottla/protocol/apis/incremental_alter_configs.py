"""Set, delete, append to or subtract from single settings (KIP-339).

Kafka: IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse (key 44).

v1 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class IncrementalAlterConfigsRequest(
    Request, key=44, versions="0-1", flexible="1+", listeners=("broker", "controller")
):
    resources: list[AlterConfigsResource]
    validate_only: bool

    class AlterConfigsResource(Struct):
        resource_type: int8
        resource_name: str
        configs: list[AlterableConfig]

        class AlterableConfig(Struct):
            name: str
            config_operation: int8  # 0 set, 1 delete, 2 append, 3 subtract
            value: str | None = field(sensitive=True)


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse]

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None
        resource_type: int8
        resource_name: str

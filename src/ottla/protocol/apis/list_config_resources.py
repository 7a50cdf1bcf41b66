"""Names of resources that have settings (KIP-1142).

Kafka: ListConfigResourcesRequest, ListConfigResourcesResponse (key 74).

v0 lists client metrics resources only, formerly ListClientMetricsResources (KIP-1000); v1 all
types.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int8, int16, int32


class ListConfigResourcesRequest(
    Request, key=74, versions="0-1", flexible="0+", listeners=("broker",)
):
    resource_types: list[int8] = field("1+", default=EMPTY)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource]

    class ConfigResource(Struct):
        resource_name: str
        resource_type: int8 = field("1+", default=16, ignorable=True)

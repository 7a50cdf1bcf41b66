"""The API versions and features of a broker; the first request of a connection.

Kafka: ApiVersionsRequest, ApiVersionsResponse (key 18).

The response always has header v0, and an unsupported request version is answered in v0 with error
35 (KIP-511), so that clients and brokers of all releases can negotiate. v3 flexible, adds the
client's software name and features (KIP-584); v4 allows a minimum feature version of 0.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32, int64


class ApiVersionsRequest(
    Request, key=18, versions="0-4", flexible="3+", listeners=("broker", "controller")
):
    client_software_name: str = field("3+", default="", ignorable=True)
    client_software_version: str = field("3+", default="", ignorable=True)


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    error_code: int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        "3+", default=EMPTY, tag=0, ignorable=True
    )
    finalized_features_epoch: int64 = field("3+", default=-1, tag=1, ignorable=True)  # KIP-584
    finalized_features: list[FinalizedFeatureKey] = field(
        "3+", default=EMPTY, tag=2, ignorable=True
    )
    zk_migration_ready: bool = field("3+", default=False, tag=3, ignorable=True)  # KIP-866

    class ApiVersion(Struct):
        api_key: int16
        min_version: int16
        max_version: int16

    class SupportedFeatureKey(Struct):
        name: str
        min_version: int16
        max_version: int16

    class FinalizedFeatureKey(Struct):
        name: str
        max_version_level: int16
        min_version_level: int16

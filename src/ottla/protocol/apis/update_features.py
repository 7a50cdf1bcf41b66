"""Raise or lower finalised feature levels (KIP-584).

Kafka: UpdateFeaturesRequest, UpdateFeaturesResponse (key 57).

v1 dry run and downgrade types (KIP-778); v2 one result for all features, which change atomically.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int8, int16, int32


class UpdateFeaturesRequest(
    Request, key=57, versions="0-2", flexible="0+", listeners=("broker", "controller")
):
    timeout_ms: int32 = 60_000
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool = field("1+", default=False)

    class FeatureUpdateKey(Struct):
        feature: str
        max_version_level: int16
        allow_downgrade: bool = field("0", default=False)
        upgrade_type: int8 = field("1+", default=1)  # 1 upgrade, 2 safe, 3 unsafe downgrade


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None
    results: list[UpdatableFeatureResult] = field("0-1", default=EMPTY, ignorable=True)

    class UpdatableFeatureResult(Struct):
        feature: str
        error_code: int16 = 0
        error_message: str | None

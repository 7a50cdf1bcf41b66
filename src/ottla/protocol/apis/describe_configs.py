"""Read settings of topics, brokers, groups and the like, with their sources.

Kafka: DescribeConfigsRequest, DescribeConfigsResponse (key 32).

v1 synonyms and source; v3 types and documentation (KIP-569); v4 flexible.
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class DescribeConfigsRequest(
    Request, key=32, versions="1-4", flexible="4+", listeners=("broker", "controller")
):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = field("3+", default=False)

    class DescribeConfigsResource(Struct):
        resource_type: int8
        resource_name: str
        configuration_keys: list[str] | None  # null: all


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult]

    class DescribeConfigsResult(Struct):
        error_code: int16 = 0
        error_message: str | None
        resource_type: int8
        resource_name: str
        configs: list[DescribeConfigsResourceResult]

        class DescribeConfigsResourceResult(Struct):
            name: str
            value: str | None = field(sensitive=True)
            read_only: bool
            config_source: int8 = field(default=-1, ignorable=True)
            is_sensitive: bool
            synonyms: list[DescribeConfigsSynonym] = field(ignorable=True)
            config_type: int8 = field("3+", default=0, ignorable=True)
            documentation: str | None = field("3+", default="", ignorable=True)

            class DescribeConfigsSynonym(Struct):
                name: str
                value: str | None = field(sensitive=True)
                source: int8

"""Brokers or controllers of a cluster and its id (KIP-700).

Kafka: DescribeClusterRequest, DescribeClusterResponse (key 60).

v1 selects brokers or controllers (KIP-919); v2 can include fenced brokers (KIP-1073).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32


class DescribeClusterRequest(
    Request, key=60, versions="0-2", flexible="0+", listeners=("broker", "controller")
):
    include_cluster_authorized_operations: bool
    endpoint_type: int8 = field("1+", default=1)  # 1 brokers, 2 controllers
    include_fenced_brokers: bool = field("2+", default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: int8 = field("1+", default=1)
    cluster_id: str
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int32 = -2_147_483_648

    class DescribeClusterBroker(Struct):
        broker_id: int32
        host: str
        port: int32
        rack: str | None = None
        is_fenced: bool = field("2+", default=False)

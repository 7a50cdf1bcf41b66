"""DescribeCluster.

Kafka: KafkaApis.handleDescribeCluster (KIP-700, KIP-919).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.server.dispatch import handles

if TYPE_CHECKING:
    from ottla.server.context import Context

_BROKERS, _CONTROLLERS = 1, 2
_NO_OPERATIONS = -0x8000_0000


@handles(DescribeClusterRequest)
def describe_cluster(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """List the brokers, or on a controller's listener the controllers."""
    wanted = _CONTROLLERS if ctx.listener == "controller" else _BROKERS
    if request.endpoint_type != wanted:
        known = request.endpoint_type in (_BROKERS, _CONTROLLERS)
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=int(code),
            error_message=code.text,
            endpoint_type=wanted,
            cluster_id="",
            brokers=[],
        )
    broker = ctx.broker
    return DescribeClusterResponse(
        endpoint_type=wanted,
        cluster_id=broker.cluster_id,
        controller_id=broker.any_controller_id(),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in broker.nodes(ctx.listener_name)
        ],
        cluster_authorized_operations=_NO_OPERATIONS,
    )

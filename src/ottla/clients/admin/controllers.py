"""Admin connections to controllers instead of brokers (bootstrap.controllers).

Kafka: org.apache.kafka.clients.admin.internals.AdminBootstrapAddresses, KIP-919.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.metadata import ClusterMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.types import Node

if TYPE_CHECKING:
    from ottla.protocol.schema import Request

BROKERS, CONTROLLERS = 1, 2


class ControllerMetadata(ClusterMetadata):
    """Metadata with the controllers in place of brokers, and without topics."""

    def request(self) -> Any:
        """Build the request for the controllers."""
        self._stale = False
        return DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS
        )

    def update(self, response: Any, now_ms: int) -> None:
        """Apply a DescribeClusterResponse."""
        self.brokers = {
            one.broker_id: Node(one.broker_id, one.host, one.port, one.rack)
            for one in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.updated_ms = now_ms
        self._changed()


def refuse_for_controllers(request: Request) -> None:
    """Raise KafkaError(UNSUPPORTED_ENDPOINT_TYPE) for a request that no controller serves."""
    if "controller" not in type(request).api_listeners:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "This Admin API is not yet supported when communicating directly with the controller "
            "quorum.",
        )

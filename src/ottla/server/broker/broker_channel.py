"""The channel to any broker: requests of coordinators to partition leaders and to each other.

A request to this broker itself needs no connection.

Kafka: org.apache.kafka.server.util.InterBrokerSendThread and its users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.network.node_channel import NodeChannel
    from ottla.protocol.apis.write_txn_markers import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )
    from ottla.protocol.schema import Request
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.types import TopicPartition

NO_LEADER = -1


class BrokerChannel:
    """Sends requests to brokers by id, over their inter-broker listeners."""

    def __init__(self, metadata: BrokerMetadata, nodes: NodeChannel) -> None:
        self._metadata = metadata
        self._nodes = nodes
        self._node_id = metadata.node_id
        self._listener = metadata.config.inter_broker_endpoint_name
        self._timeout_ms: int = metadata.config.request_timeout_ms
        self._local: dict[type[Request], Callable[[Any], Pending[Any]]] = {}

    def answer_locally(
        self, request_type: type[Request], answer: Callable[[Any], Pending[Any]]
    ) -> None:
        """Set the function that answers this broker's requests of a type to itself."""
        self._local[request_type] = answer

    def send_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> Pending[WriteTxnMarkersResponse]:
        """Send markers to the leader of their partitions."""
        return self.send(broker_id, request)

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the broker that leads a partition, NO_LEADER, or None without such a partition."""
        topic = self._metadata.image.topics.by_name.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return None if found is None else found.leader

    def send(self, broker_id: int, request: Request) -> Pending[Any]:
        """Send a request; fails with KafkaError when the broker is unreachable or does not answer.

        BROKER_NOT_AVAILABLE for an unknown or fenced broker, else as `NodeChannel.send`.
        """
        if broker_id == self._node_id:
            return self._local[type(request)](request)
        broker = self._metadata.image.cluster.brokers.get(broker_id)
        node = None if broker is None or broker.fenced else broker.node(self._listener)
        if node is None:
            return Pending.failed(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
        address = node.host, node.port
        return self._nodes.send(broker_id, address, request, timeout_ms=self._timeout_ms)

    def close(self) -> None:
        """Close the connections."""
        self._nodes.close()

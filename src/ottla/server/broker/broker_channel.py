"""The channel to any broker: requests of coordinators to partition leaders and to each other.

A request to this broker itself needs no connection.

Kafka: org.apache.kafka.server.util.InterBrokerSendThread and its users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.runtime import EndTransaction
    from ottla.coordinator.transaction.decisions import ProducerKey
    from ottla.network.node_channel import NodeChannel
    from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersResponse
    from ottla.protocol.schema import Request
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.broker.transaction_markers import MarkerWriter
    from ottla.server.broker.transaction_partitions import TransactionPartitions
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
        self._own_markers: MarkerWriter | None = None
        self._own_transactions: TransactionPartitions | None = None

    def answer_locally(
        self, request_type: type[Request], answer: Callable[[Any], Pending[Any]]
    ) -> None:
        """Set the function that answers this broker's requests of a type to itself."""
        self._local[request_type] = answer

    def serve_own(self, markers: MarkerWriter, transactions: TransactionPartitions) -> None:
        """Let this broker's coordinator and leaders call each other without requests."""
        self._own_markers, self._own_transactions = markers, transactions
        self.answer_locally(WriteTxnMarkersRequest, markers.write)
        self.answer_locally(AddPartitionsToTxnRequest, transactions.answer)

    def write_own_markers(
        self, broker_id: int, end: EndTransaction, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Write markers to partitions that only this broker has; return those for a request."""
        if broker_id != self._node_id or self._own_markers is None:
            return partitions
        return self._own_markers.write_own(end, partitions)

    def add_own_partitions(
        self,
        coordinator_id: int | None,
        transactional_id: str,
        producer: ProducerKey,
        partitions: list[TopicPartition],
    ) -> Pending[ErrorCode] | None:
        """Add partitions to a transaction without a request; None where one is needed."""
        if coordinator_id != self._node_id or self._own_transactions is None:
            return None
        return self._own_transactions.add_own(transactional_id, producer, partitions)

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

"""The short way of a plain produce request, from its frame to its answer.

What it does not take, because something about request, client, partition or batch is out of the
ordinary, goes by the codec and `handlers/produce.py`, which answer the same
(tests/server/test_produce_lane.py).

Hot path: `ProduceLane.take`. benchmarks/against_kafka.
Kafka: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError
from ottla.protocol.plain_produce import BYTES_BEHIND, client_id_of, plain_answer, split_plain
from ottla.server.context import ANONYMOUS

if TYPE_CHECKING:
    from ottla.network.connection import Connection
    from ottla.server.broker import Broker

_ACKNOWLEDGED: Final = (1, -1)


class ProduceLane:
    """Takes the plain requests of one dispatcher."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def take(self, connection: Connection, frame: memoryview) -> bool:
        """Append and answer; False when nothing was done and the request goes the long way."""
        request = split_plain(frame)
        if request is None:
            return False
        _, acks, topic, index, start, has_name = request
        broker = self._broker
        replicas = broker.replicas
        if has_name:
            partition = replicas.find(str(topic, "utf-8", "replace"), index)
        else:
            partitions = replicas.by_topic_id.get(topic)
            partition = partitions.get(index) if partitions else None
        quotas = broker.quotas
        if (
            partition is None
            or acks not in _ACKNOWLEDGED
            or (quotas.is_on and quotas.concerns(ANONYMOUS, client_id_of(frame)))
        ):
            return False
        try:
            info = replicas.append_plain(
                partition, frame[start:-BYTES_BEHIND], acks, broker.clock.now_ms()
            )
        except OttlaError:  # it happens again on the long way, where it is told
            return False
        if info is None:
            return False
        connection.respond_bytes(plain_answer(request, info[0], info[4]))
        return True

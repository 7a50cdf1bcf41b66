"""The short way of a plain produce request, from its frame to its answer.

What it does not take, because something about request, client, partition or batch is out of the
ordinary, goes by the codec and `handlers/produce.py`, which answer the same
(tests/server/requests/test_produce_lane.py).

Hot path: `ProduceLane.take`. benchmarks/against_kafka.
Kafka: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError
from ottla.protocol.plain_produce import BYTES_BEHIND, plain_answer, split_plain
from ottla.server.requests.lane import VERSION_POSITION, Lane

if TYPE_CHECKING:
    from ottla.network.connection import Connection

_ACKNOWLEDGED: Final = (1, -1)


class ProduceLane(Lane):
    """Takes the plain requests of one dispatcher."""

    def take(self, connection: Connection, frame: memoryview) -> bool:
        """Append and answer; False when nothing was done and the request goes the long way."""
        started_s = 0.0 if self.samples is None else perf_counter()
        request = split_plain(frame)
        if request is None:
            return False
        _, client_id, acks, topic, index, start, has_name = request
        broker, unlimited = self._broker, self._unlimited
        quotas, replicas = broker.quotas, broker.replicas
        if has_name:
            partition = replicas.find(str(topic, "utf-8", "replace"), index)
        else:
            partitions = replicas.by_topic_id.get(topic)
            partition = partitions.get(index) if partitions else None
        if partition is None or acks not in _ACKNOWLEDGED:
            return False
        if (
            quotas.is_on
            and (quotas.version != unlimited.version or client_id not in unlimited.known)
            and not unlimited.learn(client_id)
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
        if self.samples is not None:
            self.samples[frame[VERSION_POSITION]].append(perf_counter() - started_s)
        return True

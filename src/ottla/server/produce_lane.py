"""The short way of a plain produce request, from its frame to its answer.

What it does not take, because something about request, client, partition or batch is out of the
ordinary, goes by the codec and `handlers/produce.py`, which answer the same
(tests/server/test_produce_lane.py).

Hot path: `ProduceLane.take`. benchmarks/against_kafka.
Kafka: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError
from ottla.protocol.plain_produce import BYTES_BEHIND, plain_answer, split_plain
from ottla.server.context import ANONYMOUS

if TYPE_CHECKING:
    from ottla.network.connection import Connection
    from ottla.server.broker import Broker

_ACKNOWLEDGED: Final = (1, -1)
_VERSION_POSITION: Final = 3  # in a frame: the lower byte
_MOST_REMEMBERED: Final = 4096


class ProduceLane:
    """Takes the plain requests of one dispatcher."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unlimited: set[bytes] = set()
        """Ids of clients that no quota concerns, as long as the quotas stay as they are."""
        self._quotas_version = -1
        self.samples: list[list[float]] | None = None
        """By version: the seconds that each request took; None where nobody counts."""

    def take(self, connection: Connection, frame: memoryview) -> bool:
        """Append and answer; False when nothing was done and the request goes the long way."""
        started_s = 0.0 if self.samples is None else perf_counter()
        request = split_plain(frame)
        if request is None:
            return False
        _, client_id, acks, topic, index, start, has_name = request
        broker = self._broker
        quotas, replicas = broker.quotas, broker.replicas
        if has_name:
            partition = replicas.find(str(topic, "utf-8", "replace"), index)
        else:
            partitions = replicas.by_topic_id.get(topic)
            partition = partitions.get(index) if partitions else None
        if partition is None or acks not in _ACKNOWLEDGED:
            return False
        if quotas.is_on and (
            quotas.version != self._quotas_version or client_id not in self._unlimited
        ):
            if quotas.concerns(ANONYMOUS, str(client_id, "utf-8", "replace")):
                return False
            self._remember(client_id, quotas.version)
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
            self.samples[frame[_VERSION_POSITION]].append(perf_counter() - started_s)
        return True

    def _remember(self, client_id: bytes, version: int) -> None:
        if version != self._quotas_version or len(self._unlimited) >= _MOST_REMEMBERED:
            self._quotas_version = version
            self._unlimited.clear()
        self._unlimited.add(client_id)

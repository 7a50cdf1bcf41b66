"""The short way of a plain fetch that finds data, from its frame to its answer.

What it does not take, because there is nothing to send yet, the disk has to be waited for, or
something about request, session, client or partition is out of the ordinary, goes by the codec and
`handlers/fetch.py`, which answer the same (tests/server/requests/test_fetch_lane.py).

Hot path: `FetchLane.take`. benchmarks/against_kafka.
Kafka: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError
from ottla.protocol.plain_fetch import ANSWER_BEHIND, plain_answer_head, split_plain
from ottla.replication.fetch_session import FINAL_EPOCH, INVALID_SESSION_ID
from ottla.server.requests.lane import VERSION_POSITION, Lane
from ottla.server.requests.page_cache import is_cold
from ottla.storage.log.append_info import FetchIsolation
from ottla.types import FileSlice

if TYPE_CHECKING:
    from ottla.network.connection import Connection
    from ottla.protocol.plain_fetch import PlainFetch
    from ottla.replication.fetch_session import FetchPartition, FetchSession
    from ottla.replication.partition import Partition

_NOTHING: Final = (None, None, None)
_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
_ALL: Final = FetchIsolation.HIGH_WATERMARK


class FetchLane(Lane):
    """Takes the plain requests of one dispatcher."""

    def take(self, connection: Connection, frame: memoryview) -> bool:
        """Read and answer; False when nothing was done and the request goes the long way."""
        started_s = 0.0 if self.samples is None else perf_counter()
        request = split_plain(frame)
        if request is None:
            return False
        broker, unlimited = self._broker, self._unlimited
        quotas = broker.quotas
        if (
            quotas.is_on
            and (quotas.version != unlimited.version or request.client_id not in unlimited.known)
            and not unlimited.learn(request.client_id)
        ):
            return False
        session, wanted, partition = self._find(request)
        if partition is None:
            return False
        if wanted is None or request.topic_id:
            asked = request.asked
        else:  # as it asked before
            asked = (
                wanted.current_leader_epoch,
                wanted.fetch_offset,
                wanted.last_fetched_epoch,
                wanted.max_bytes,
            )
        records = self._read(request, partition, *asked)
        if records is None:
            return False
        log = partition.log
        offsets = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
        if session is not None and wanted is not None:
            wanted.told(asked, offsets)
            session.continued(broker.clock.now_ms())
        partition.read_count += 1
        partition.bytes_out += records.size
        head = plain_answer_head(
            request,
            partition.topic_id,
            partition.topic_partition.partition,
            offsets,
            records.size,
        )
        connection.respond_around(head, records, ANSWER_BEHIND)
        if self.samples is not None:
            self.samples[frame[VERSION_POSITION]].append(perf_counter() - started_s)
        return True

    def _find(
        self, request: PlainFetch
    ) -> tuple[FetchSession | None, FetchPartition | None, Partition | None]:
        """Return the session that it continues, what that knows of its partition, and this."""
        if request.session_epoch == FINAL_EPOCH:
            if request.session_id != INVALID_SESSION_ID:
                return _NOTHING
            partitions = self._broker.replicas.by_topic_id.get(request.topic_id)
            return None, None, partitions.get(request.partition) if partitions else None
        session = self._broker.fetch_sessions.of_one_partition(
            request.session_id, request.session_epoch
        )
        if session is None:
            return _NOTHING
        (wanted,) = session.partitions.values()
        if request.topic_id and (
            request.topic_id != wanted.key.topic_id or request.partition != wanted.key.partition
        ):
            return _NOTHING
        return session, wanted, wanted.replica

    def _read(
        self,
        request: PlainFetch,
        partition: Partition,
        leader_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        max_bytes: int,
    ) -> FileSlice | None:
        """Return enough records to answer at once, which need not be waited for; None else."""
        log = partition.log
        if (
            offset >= log.high_watermark
            or not partition.is_leader
            or log.failure is not None
            or (leader_epoch >= 0 and leader_epoch != partition.leader_epoch)
            or last_fetched_epoch >= 0
        ):
            return None
        try:
            read = log.read(
                offset,
                min(max_bytes, request.max_bytes, self._broker.fetch_max_bytes),
                isolation=_COMMITTED if request.is_filtered else _ALL,
                min_one_message=True,
            )
            records = read.records
            if (
                type(records) is not FileSlice
                or records.size < request.min_bytes
                or read.aborted_transactions
                or is_cold(records)
            ):
                return None
        except (OttlaError, OSError):  # it happens again on the long way, where it is told
            return None
        return records

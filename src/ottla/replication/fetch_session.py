"""Incremental fetch sessions: the broker caches a client's partitions and what it last returned.

Kafka: org.apache.kafka.server.FetchManager, FetchSession (KIP-227). Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from ottla.protocol.fetch_values import (
        FetchAnswer,
        FetchedPartition,
        FetchValues,
        PartitionFetch,
        PartitionKey,
    )
    from ottla.replication.partition import Partition

INVALID_SESSION_ID = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MIN_EVICTION_MS = 120_000
_MAX_EPOCH = 0x7FFF_FFFF
_TOPIC_IDS_FROM = 13


class CachedPartition:
    """What was requested of a partition, where the broker found it, and the offsets it returned."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "replica",
        "requested",
        "topic",
    )

    def __init__(self, topic: str, requested: PartitionFetch) -> None:
        self.topic = topic
        """The name behind a topic id; "" if unknown."""
        self.replica: Partition | None = None
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update(requested)

    def update(self, requested: PartitionFetch) -> None:
        """Store the parameters of a request."""
        self.requested = requested
        self.current_leader_epoch, self.fetch_offset, self.last_fetched_epoch, _, _ = requested

    def found(self, replica: Partition) -> None:
        """Note the replica and its topic, which may be gone after a wait."""
        self.replica = replica
        self.topic = replica.topic_partition.topic

    def is_unchanged(self) -> bool:
        """Return whether an incremental response can leave the partition out without a read."""
        replica, offset = self.replica, self.fetch_offset
        if replica is None or offset != self.high_watermark:
            return False
        log = replica.log
        if offset != log.high_watermark or self.log_start_offset != log.log_start_offset:
            return False
        epoch = self.current_leader_epoch
        if epoch >= 0 and epoch != replica.leader_epoch:
            return False
        return replica.is_leader and log.failure is None and self.last_fetched_epoch < 0

    def must_respond(self, fetched: FetchedPartition) -> bool:
        """Return whether an incremental response has to name the partition; store what it says."""
        _, error_code, high_watermark, _, log_start_offset, _, _, size, diverging, _ = fetched
        if error_code or diverging is not None:
            self.high_watermark = -1  # so that the partition is named again when that is over
            return True
        changed = size > 0
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            changed = True
        if log_start_offset != self.log_start_offset:
            self.log_start_offset = log_start_offset
            changed = True
        return changed


class FetchSession:
    """The partitions of one client, in the order in which they are served."""

    __slots__ = (
        "created_ms",
        "epoch",
        "last_used_ms",
        "partitions",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def update(self, partitions: dict[PartitionKey, PartitionFetch]) -> None:
        """Add and change the partitions that a request names."""
        for key, requested in partitions.items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(key[0], requested)
            else:
                cached.update(requested)

    def changed(self, results: Iterable[FetchedPartition]) -> list[FetchedPartition]:
        """Return those that differ from what was returned last; store what they say."""
        partitions = self.partitions
        return [fetched for fetched in results if partitions[fetched[0]].must_respond(fetched)]

    def serve_later(self, returned: Iterable[FetchedPartition]) -> None:
        """Move partitions that returned data to the end, so that a byte limit starves none."""
        partitions = self.partitions
        if len(partitions) > 1:
            for key, _, _, _, _, _, _, size, _, _ in returned:
                if size:
                    partitions[key] = partitions.pop(key)


class FetchSessionCache:
    """At most `slots` sessions; one that is idle, or smaller, for two minutes may be evicted."""

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions cached in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def session_of(self, request: FetchValues, version: int, now_ms: int) -> FetchSession | None:
        """Return the session that a fetch begins or continues, None when it has none.

        Raises KafkaError for an unknown session or epoch.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id:
                self._sessions.pop(session_id, None)
            return self._begin(request, version, now_ms) if epoch == INITIAL_EPOCH else None
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= _TOPIC_IDS_FROM):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request.partitions)
        for key in request.forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:  # as in Kafka, an empty session ends
            del self._sessions[session_id]
            return None
        session.last_used_ms = now_ms
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def take_back(self, request: FetchValues, unsent: FetchAnswer) -> None:
        """Forget an unsent response: its session if it began one, else the offsets it named."""
        if request.session_epoch == INITIAL_EPOCH:
            self._sessions.pop(unsent.session_id, None)
            return
        session = self._sessions.get(unsent.session_id)
        if session is None:
            return
        for fetched in unsent.partitions:
            cached = session.partitions.get(fetched[0])
            if cached is not None:
                cached.high_watermark = -1

    def _begin(self, request: FetchValues, version: int, now_ms: int) -> FetchSession | None:
        size = len(request.partitions)
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms):
            return None
        session_id = self._rng.randint(1, _MAX_EPOCH)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, _MAX_EPOCH)
        uses_topic_ids = version >= _TOPIC_IDS_FROM
        session = FetchSession(session_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        session.update(request.partitions)
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, now_ms: int) -> bool:
        """Evict a stale session, or a smaller one than the new session; return whether one went."""
        going = self._stale(now_ms) or self._smaller(size, now_ms)
        if going is None:
            return False
        del self._sessions[going.session_id]
        self.evictions += 1
        return True

    def _stale(self, now_ms: int) -> FetchSession | None:
        oldest = min(
            self._sessions.values(), key=lambda session: session.last_used_ms, default=None
        )
        is_stale = oldest is not None and now_ms - oldest.last_used_ms > MIN_EVICTION_MS
        return oldest if is_stale else None

    def _smaller(self, size: int, now_ms: int) -> FetchSession | None:
        smallest = min(
            (one for one in self._sessions.values() if now_ms - one.created_ms > MIN_EVICTION_MS),
            key=lambda one: (len(one.partitions), one.session_id),
            default=None,
        )
        return smallest if smallest is not None and len(smallest.partitions) < size else None

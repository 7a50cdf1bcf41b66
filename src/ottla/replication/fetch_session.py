"""Incremental fetch sessions: the broker caches a client's partitions and what it last returned.

Kafka: org.apache.kafka.server.FetchManager, FetchSession (KIP-227). Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable

    from ottla.protocol.fetch_values import (
        FetchAnswer,
        FetchedPartition,
        FetchValues,
        PartitionFetch,
        PartitionKey,
    )
    from ottla.replication.partition import Partition

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MIN_EVICTION_MS = 120_000
_MAX_EPOCH = 0x7FFF_FFFF


class FetchPartition:
    """One partition of a session: the request's parameters and the offsets last returned."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "replica",
        "topic",
    )

    def __init__(self, requested: PartitionFetch) -> None:
        (
            self.key,
            self.current_leader_epoch,
            self.fetch_offset,
            self.last_fetched_epoch,
            _,
            self.max_bytes,
        ) = requested
        self.topic = self.key.topic
        self.replica: Partition | None = None
        self.high_watermark = -1
        self.log_start_offset = -1

    def update(self, requested: PartitionFetch) -> None:
        """Store the parameters of a request."""
        (
            _,
            self.current_leader_epoch,
            self.fetch_offset,
            self.last_fetched_epoch,
            _,
            self.max_bytes,
        ) = requested

    def must_respond(self, fetched: FetchedPartition) -> bool:
        """Return whether an incremental response has to name the partition; store what it says."""
        if fetched.error_code:
            self.high_watermark = -1  # so that the end of the error is reported as well
            return True
        changed = fetched.size_bytes > 0 or fetched.diverging_epoch is not None
        if fetched.high_watermark != self.high_watermark:
            self.high_watermark = fetched.high_watermark
            changed = True
        if fetched.log_start_offset != self.log_start_offset:
            self.log_start_offset = fetched.log_start_offset
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
        self.partitions: dict[PartitionKey, FetchPartition] = {}
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def update(self, request: FetchValues) -> None:
        """Add, change and remove the partitions that an incremental request names."""
        for requested in request.partitions:
            key = requested.key
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = FetchPartition(requested)
            else:
                cached.update(requested)
        for key in request.forgotten:
            self.partitions.pop(key, None)

    def continued(self, now_ms: int) -> None:
        """Advance the epoch after a request."""
        self.last_used_ms = now_ms
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def serve_later(self, served: Iterable[PartitionKey]) -> None:
        """Move partitions that returned data to the end, so that a byte limit starves none."""
        for key in served:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                self.partitions[key] = cached


def _requested(request: FetchValues) -> dict[PartitionKey, FetchPartition]:
    """Return the partitions of a request, to be read without what a session knows."""
    return {requested.key: FetchPartition(requested) for requested in request.partitions}


class FetchPlan:
    """The partitions that one Fetch reads, with or without a session."""

    __slots__ = ("_epoch", "is_incremental", "partitions", "session")

    def __init__(
        self,
        partitions: Collection[FetchPartition],
        session: FetchSession | None,
        *,
        is_incremental: bool,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.is_incremental = is_incremental
        self._epoch = session.epoch if session else INITIAL_EPOCH

    @property
    def is_overtaken(self) -> bool:
        """Whether a later request continued the session while this one waited."""
        return (
            self.is_incremental and self.session is not None and self.session.epoch != self._epoch
        )

    @property
    def session_id(self) -> int:
        """The session id for the response; 0 without a session."""
        return self.session.session_id if self.session else INVALID_SESSION_ID


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

    def plan(self, request: FetchValues, version: int, now_ms: int) -> FetchPlan:
        """Return the partitions to read; raises KafkaError for an unknown session or epoch."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            return self._full_plan(request, version, now_ms)
        session = self._continue(request, version)
        session.update(request)
        if not session.partitions:  # as in Kafka, an empty session ends
            del self._sessions[session.session_id]
            return FetchPlan(_requested(request).values(), None, is_incremental=False)
        session.continued(now_ms)
        return FetchPlan(session.partitions.values(), session, is_incremental=True)

    def take_back(self, request: FetchValues, unsent: FetchAnswer) -> None:
        """Forget an unsent response: its session if it began one, else the offsets it named."""
        if request.session_epoch == INITIAL_EPOCH:
            self._sessions.pop(unsent.session_id, None)
            return
        session = self._sessions.get(unsent.session_id)
        if session is None:
            return
        for fetched in unsent.partitions:
            cached = session.partitions.get(fetched.key)
            if cached is not None:
                cached.high_watermark = -1

    def _full_plan(self, request: FetchValues, version: int, now_ms: int) -> FetchPlan:
        requested = _requested(request)
        session = None
        if request.session_epoch == INITIAL_EPOCH:
            session = self._create(len(requested), uses_topic_ids=version >= 13, now_ms=now_ms)
        if session is not None:
            session.partitions = requested
        return FetchPlan(requested.values(), session, is_incremental=False)

    def _continue(self, request: FetchValues, version: int) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= 13):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def _create(self, size: int, *, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms):
            return None
        session_id = self._rng.randint(1, _MAX_EPOCH)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, _MAX_EPOCH)
        session = FetchSession(session_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms)
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

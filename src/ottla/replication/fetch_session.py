"""Incremental fetch sessions: the broker caches a client's partitions and what it last returned.

A fetch examines only the session's active partitions. A partition that was unchanged twice becomes
idle: it is not examined until its replica reports a change (`Partition.changed`), so that idle
partitions cost the fetches of a session nothing.

Kafka: org.apache.kafka.server.FetchManager, FetchSession (KIP-227). Hot path:
benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.ledger import size_of_texts

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from ottla.metrics.ledger import Ledger
    from ottla.protocol.fetch_values import (
        FetchAnswer,
        FetchedPartition,
        FetchValues,
        PartitionFetch,
        PartitionKey,
    )
    from ottla.purgatory.purgatory import Purgatory
    from ottla.replication.delayed_fetch import DelayedFetch
    from ottla.replication.partition import Partition

INVALID_SESSION_ID = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MIN_EVICTION_MS = 120_000
MAX_BYTES: Final = 128 << 20
"""Of all clients' sessions: some 200,000 partitions."""
MAX_ORPHAN_BYTES: Final = 8 << 20
"""Of the sessions whose connections have ended: clients begin new ones after a disconnect."""
_MAX_EVICTIONS: Final = 10
"""For one new session, in the turn that begins it."""
_PARTITION_BYTES: Final = 400
_SESSION_BYTES: Final = 1000
_MAX_EPOCH = 0x7FFF_FFFF
_TOPIC_IDS_FROM = 13


class CachedPartition:
    """What was requested of a partition, where the broker found it, and the offsets it returned."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "position",
        "replica",
        "requested",
        "size_bytes",
        "topic",
        "was_unchanged",
    )

    def __init__(self, key: PartitionKey, requested: PartitionFetch) -> None:
        self.key = key
        self.topic = key[0]
        """The name behind a topic id; "" if unknown."""
        self.replica: Partition | None = None
        self.position = 0
        """Partitions of a session are served in this order."""
        self.was_unchanged = False
        """Whether the last fetch found no change."""
        self.size_bytes = 0
        """Of its log, when it became idle."""
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update(requested)

    def update(self, requested: PartitionFetch) -> None:
        """Store the parameters of a request."""
        self.requested = requested
        self.current_leader_epoch, self.fetch_offset, self.last_fetched_epoch, _, _ = requested

    def found(self, replica: Partition) -> None:
        """Store the replica and its topic, which may be deleted during a wait."""
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
        if log.failure is not None or log.is_deleted:  # a read reports it
            return False
        return self.last_fetched_epoch < 0

    def must_respond(self, fetched: FetchedPartition) -> bool:
        """Return whether an incremental response has to name the partition; store what it says."""
        if fetched.error_code or fetched.diverging is not None:
            self.high_watermark = -1  # so that the partition is named again after the error
            return True
        changed = fetched.size_bytes > 0 or fetched.preferred_replica >= 0
        high_watermark, log_start_offset = fetched.high_watermark, fetched.log_start_offset
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
        "_active",
        "_is_ended",
        "_is_in_order",
        "_last_position",
        "_purgatory",
        "_waiting",
        "created_ms",
        "epoch",
        "is_follower",
        "last_fetch_ms",
        "last_used_ms",
        "owner",
        "partitions",
        "replica_epoch",
        "replica_id",
        "rights_version",
        "session_id",
        "used_bytes",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, *, uses_topic_ids: bool, now_ms: int, is_follower: bool = False
    ) -> None:
        self.session_id = session_id
        self.is_follower = is_follower
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.owner: object = None
        """The connection of the last fetch, None after it has ended."""
        self.used_bytes = _SESSION_BYTES
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self._active: dict[PartitionKey, CachedPartition] = {}
        """Those that a fetch examines; the others are idle."""
        self._is_ended = False
        self._is_in_order = True
        self._last_position = 0
        self._waiting: DelayedFetch | None = None
        self._purgatory: Purgatory[DelayedFetch] | None = None
        self.replica_id = self.replica_epoch = -1
        """The follower whose session it is."""
        self.rights_version = 0
        """The state of the authorizer when its partitions were last checked."""
        self.last_fetch_ms = 0
        """On the monotonic clock."""
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def update(self, partitions: dict[PartitionKey, PartitionFetch]) -> None:
        """Add and change the partitions that a request names."""
        for key, requested in partitions.items():
            cached = self.partitions.get(key)
            if cached is None:
                cached = self.partitions[key] = CachedPartition(key, requested)
                self.used_bytes += _size_of(key)
                self._last_position += 1
                cached.position = self._last_position
            else:
                cached.update(requested)
            if key not in self._active:
                self._activate(cached)

    def forget(self, key: PartitionKey) -> None:
        """Leave a partition out from now on."""
        cached = self.partitions.pop(key, None)
        if cached is not None:
            self.used_bytes -= _size_of(key)
        if cached is not None and self._active.pop(key, None) is None:
            _stop_watching(cached)

    def end(self) -> None:
        """Stop watching the replicas of idle partitions, for good."""
        self._is_ended = True
        for key, cached in self.partitions.items():
            if key not in self._active:
                _stop_watching(cached)

    # Idle partitions

    @property
    def active_count(self) -> int:
        """The number of partitions that a fetch has to examine."""
        return len(self._active)

    def active(self) -> list[CachedPartition]:
        """Return the partitions that a fetch has to examine, in the order of the session."""
        if not self._is_in_order:
            if len(self._active) > 1:
                in_order = sorted(self._active.values(), key=lambda cached: cached.position)
                self._active = {cached.key: cached for cached in in_order}
            self._is_in_order = True
        return list(self._active.values())

    def _activate(self, cached: CachedPartition) -> None:
        _stop_watching(cached)
        cached.was_unchanged = False
        self._active[cached.key] = cached
        self._is_in_order = False

    def activate_all(self) -> None:
        """Activate every idle partition."""
        for key, cached in self.partitions.items():
            if key not in self._active:
                self._activate(cached)

    def unchanged(self, cached: CachedPartition) -> None:
        """Record that a partition was unchanged; the second time in a row it becomes idle.

        Not the first time: a partition that is read at its end is unchanged before each record.
        """
        replica = cached.replica
        if not cached.was_unchanged or replica is None:
            cached.was_unchanged = True
            return
        if self._is_ended or self._active.get(cached.key) is not cached:
            return  # the session went on or ended while the fetch waited or took turns
        del self._active[cached.key]
        cached.size_bytes = replica.log.size_bytes
        replica.watch(cached, self)

    def wait(self, delayed: DelayedFetch, purgatory: Purgatory[DelayedFetch]) -> None:
        """Let idle partitions that change join a waiting fetch."""
        self._waiting, self._purgatory = delayed, purgatory

    def replica_changed(self, cached: CachedPartition) -> None:
        """Activate an idle partition, whose replica has ended the watch."""
        replica, waiting = cached.replica, self._waiting
        assert replica is not None
        if self.replica_id >= 0 and replica.leading is not None:
            # each fetch since was at the log end: the follower has all records
            replica.leading.was_caught_up(self.replica_id, self.replica_epoch, self.last_fetch_ms)
        self._activate(cached)
        if waiting is not None and self._purgatory is not None and not waiting.is_completed:
            waiting.add(replica, cached.fetch_offset, cached.size_bytes)
            self._purgatory.watch_also(waiting, replica.log if self.replica_id >= 0 else replica)

    # Responses

    def serve_in_order(self, returned: Iterable[FetchedPartition]) -> None:
        """Serve the partitions in the order of the session's first response, as Kafka."""
        for fetched in returned:
            self._last_position += 1
            self.partitions[fetched.key].position = self._last_position
        self._is_in_order = False

    def changed(self, results: Iterable[FetchedPartition]) -> list[FetchedPartition]:
        """Return those that differ from what was returned last; store what they say."""
        partitions = self.partitions
        return [fetched for fetched in results if partitions[fetched.key].must_respond(fetched)]

    def serve_later(self, returned: Iterable[FetchedPartition]) -> None:
        """Move partitions that returned data to the end, so that a byte limit starves none."""
        partitions = self.partitions
        if len(partitions) > 1:
            for fetched in returned:
                if fetched.size_bytes:
                    cached = partitions.pop(fetched.key)
                    partitions[fetched.key] = cached
                    self._last_position += 1
                    cached.position = self._last_position
                    self._is_in_order = False


def _size_of(key: PartitionKey) -> int:
    """Return the memory of a partition; its name counts as if no other shared it."""
    return _PARTITION_BYTES + size_of_texts(key[0])


def _stop_watching(cached: CachedPartition) -> None:
    if cached.replica is not None:
        cached.replica.stop_watching(cached)


class FetchSessionCache:
    """At most `slots` sessions; a new one may evict one that is stale or less important.

    A client's session that would exceed MAX_BYTES in all is not begun, or ends: its client sends
    full fetches. The sessions of ended connections share MAX_ORPHAN_BYTES; the oldest end first.
    Followers have at most their partitions, and are no part of this: no client takes their room.
    """

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        self._owned: dict[object, dict[int, FetchSession]] = {}
        self._orphans: dict[int, FetchSession] = {}
        """In the order in which their connections ended."""
        self.used_bytes = 0
        """Of clients' sessions."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions cached in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        ledger.register("fetch_sessions", MAX_BYTES, lambda: (len(self), self.used_bytes))
        ledger.register("fetch_sessions_of_ended_connections", MAX_ORPHAN_BYTES, self._measure)

    def _measure(self) -> tuple[int, int]:
        return len(self._orphans), sum(orphan.used_bytes for orphan in self._orphans.values())

    def session_of(
        self,
        request: FetchValues,
        version: int,
        now_ms: int,
        owner: object = None,
        *,
        is_follower: bool = False,
    ) -> FetchSession | None:
        """Return the session that a fetch begins or continues, None when it has none.

        owner is the connection of the fetch; is_follower says that it may replicate. Raises
        KafkaError for an unknown session, that of a follower to a client, or epoch.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id:
                self._remove(session_id)
            if epoch == FINAL_EPOCH:
                return None
            return self._begin(request, version, now_ms, owner, is_follower=is_follower)
        session = self._checked(request, version, is_follower=is_follower)
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1  # a fetch in turns is overtaken
        if request.partitions or request.forgotten:
            self._change(session, request)
        if not session.partitions:  # it may have begun so
            self._remove(session.session_id)
            return None
        if session.owner is not owner:
            self._own(session, owner)
        session.last_used_ms = now_ms
        return session

    def _checked(self, request: FetchValues, version: int, *, is_follower: bool) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None or (session.is_follower and not is_follower):
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= _TOPIC_IDS_FROM):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def _change(self, session: FetchSession, request: FetchValues) -> None:
        """Add and remove partitions."""
        before_bytes = session.used_bytes
        session.update(request.partitions)
        for key in request.forgotten:
            session.forget(key)
        is_too_much = False
        if not session.is_follower:
            self.used_bytes += session.used_bytes - before_bytes
            is_too_much = self.used_bytes > MAX_BYTES
        if is_too_much:
            self._remove(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def take_back(self, request: FetchValues, unsent: FetchAnswer) -> None:
        """Forget an unsent response: its session if it began one, else the offsets it named."""
        if request.session_epoch == INITIAL_EPOCH:
            self._remove(unsent.session_id)
            return
        session = self._sessions.get(unsent.session_id)
        if session is None:
            return
        for fetched in unsent.partitions:
            cached = session.partitions.get(fetched.key)
            if cached is not None:
                cached.high_watermark = -1

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._disown(session)
            if not session.is_follower:
                self.used_bytes -= session.used_bytes
            session.end()

    def _own(self, session: FetchSession, owner: object) -> None:
        self._disown(session)
        session.owner = owner
        if owner is not None:
            self._owned.setdefault(owner, {})[session.session_id] = session

    def _disown(self, session: FetchSession) -> None:
        self._orphans.pop(session.session_id, None)
        owned = self._owned.get(session.owner)
        if owned is not None:
            owned.pop(session.session_id, None)
            if not owned:
                del self._owned[session.owner]

    def connection_closed(self, owner: object) -> None:
        """Keep the sessions of a connection as long as those of ended ones fit into their bytes.

        A follower begins another one.
        """
        for session in self._owned.pop(owner, {}).values():
            session.owner = None
            if session.is_follower:
                self._remove(session.session_id)
                continue
            self._orphans[session.session_id] = session
            left_bytes = MAX_ORPHAN_BYTES - self._measure()[1]
            while left_bytes < 0:
                oldest = next(iter(self._orphans.values()))
                left_bytes += oldest.used_bytes
                self._remove(oldest.session_id)

    def _begin(
        self,
        request: FetchValues,
        version: int,
        now_ms: int,
        owner: object,
        *,
        is_follower: bool,
    ) -> FetchSession | None:
        size = len(request.partitions)
        is_full = len(self._sessions) >= self._slots
        if is_full and not self._evict(size, now_ms, is_follower=is_follower):
            return None
        session_id = self._rng.randint(1, _MAX_EPOCH)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, _MAX_EPOCH)
        uses_topic_ids = version >= _TOPIC_IDS_FROM
        session = FetchSession(
            session_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms, is_follower=is_follower
        )
        session.replica_id, session.replica_epoch = request.replica_id, request.replica_epoch
        session.update(request.partitions)
        if not is_follower:
            for _ in range(_MAX_EVICTIONS):
                if self.used_bytes + session.used_bytes <= MAX_BYTES:
                    break
                if not self._evict(size, now_ms, is_follower=False):
                    break
            if self.used_bytes + session.used_bytes > MAX_BYTES:
                session.end()
                return None
            self.used_bytes += session.used_bytes
        self._sessions[session_id] = session
        self._own(session, owner)
        return session

    def _evict(self, size: int, now_ms: int, *, is_follower: bool) -> bool:
        """Evict a stale or a less important session; return whether one was evicted."""
        evicted = self._stale(now_ms) or self._less_important(size, now_ms, is_follower=is_follower)
        if evicted is None:
            return False
        self._remove(evicted.session_id)
        self.evictions += 1
        return True

    def _stale(self, now_ms: int) -> FetchSession | None:
        oldest = min(
            self._sessions.values(), key=lambda session: session.last_used_ms, default=None
        )
        is_stale = oldest is not None and now_ms - oldest.last_used_ms > MIN_EVICTION_MS
        return oldest if is_stale else None

    def _less_important(self, size: int, now_ms: int, *, is_follower: bool) -> FetchSession | None:
        """Return the least important session if a new one ranks above it.

        Followers rank above consumers, then more partitions above fewer. A session is kept for
        MIN_EVICTION_MS, but a consumer's not from a follower.
        """
        candidates = (
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > MIN_EVICTION_MS
            or (is_follower and not session.is_follower)
        )
        least = min(candidates, key=_importance, default=None)
        if least is None or (is_follower, size, 0) < _importance(least):
            return None
        return least


def _importance(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_follower, len(session.partitions), session.session_id

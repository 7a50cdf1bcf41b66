"""One pass over the partitions of a fetch, common to reads for consumers and for followers.

Kafka: ReplicaManager.readFromLog. Hot path: benchmarks/against_kafka.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch_values import FetchAnswer, FetchedPartition
from ottla.purgatory.work import NEXT_TURN
from ottla.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, CachedPartition
from ottla.server.requests.parts import PARTITIONS_IN_A_TURN
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.fetch_values import (
        FetchValues,
        PartitionFetch,
        PartitionKey,
    )
    from ottla.purgatory.work import Work
    from ottla.replication.fetch_session import FetchSession
    from ottla.replication.partition import Partition
    from ottla.server.remote.reader import RemoteRead
    from ottla.server.requests.context import Context
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.storage.log.append_info import FetchIsolation
    from ottla.storage.log.reads import Found
    from ottla.types import Node, SendItem

_DIVERGING_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_STORAGE_ERROR_FROM: Final = 6
_LEADERS_FROM: Final = 16
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_UNREAD: Final = (*_UNKNOWN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""Kafka answers so before it reads: such a partition ends no wait, and stands last."""
_LED_ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_new_tuple: Final = tuple.__new__
_NO_READS: Final[dict[int, RemoteRead[Found]]] = {}


class FetchRead(ABC):
    """One pass over the partitions of a fetch; subclasses read for consumers and followers."""

    __slots__ = (
        "_bytes_left",
        "_cached",
        "_ctx",
        "_has_error",
        "_is_checked",
        "_is_denied",
        "_leader_ids",
        "_max_wait_ms",
        "_partitions",
        "_replicas",
        "_results",
        "_was_known",
        "cold",
        "grown_bytes",
        "is_incremental",
        "isolation",
        "min_bytes",
        "remote",
        "session",
        "size_bytes",
        "unread",
    )

    def __init__(
        self,
        ctx: Context,
        request: FetchValues,
        session: FetchSession | None,
        isolation: FetchIsolation,
        is_checked: bool,  # noqa: FBT001 - keywords cost much per call
    ) -> None:
        """is_checked: each partition needs further checks, see `_read_checked`."""
        _, _, _, max_wait_ms, min_bytes, max_bytes, _, _, session_epoch, partitions, _, _ = request
        self._ctx = ctx
        self.session = session
        if session is None:
            self.is_incremental = False
            self._cached: dict[PartitionKey, CachedPartition] = {}
        else:
            self.is_incremental = session_epoch != INITIAL_EPOCH
            self._cached = session.partitions
        self._partitions = partitions
        self._is_checked = is_checked
        self._max_wait_ms = max_wait_ms
        self.isolation = isolation
        limit = ctx.broker.fetch_max_bytes
        if max_bytes > limit:  # noqa: PLR1730 - half the cost of min()
            max_bytes = limit
        self._bytes_left = max_bytes
        self.min_bytes = min_bytes if min_bytes < max_bytes else max_bytes  # noqa: FURB136 - see above
        self._results: list[FetchedPartition] = []
        self._replicas: list[Partition | None] = []
        """The partition of each result."""
        self._has_error = False
        self._is_denied = None if ctx.broker.authorizer is None else self._lacks_right
        self._was_known = False
        self._leader_ids: set[int] | None = None
        self.unread: dict[PartitionKey, FetchedPartition] | None = None
        self.cold: list[FileSlice] | None = None
        """What a worker has to read first; not None also with `remote`."""
        self.remote: dict[int, RemoteRead[Found]] = _NO_READS
        """Reads of the tier by number of the result; only a fetch of a consumer has any."""
        self.size_bytes = 0
        self.grown_bytes = 0
        """What came to the logs between the turns of a read, after theirs."""

    def positions(self) -> dict[Partition, int]:
        """Return the partitions that a waiting fetch watches, with the offsets from which it reads.

        Idle partitions of a session are added when they change.
        """
        if self.session is None:
            for (key, requested), replica in zip(
                self._partitions.items(), self._replicas, strict=True
            ):
                self._cached[key] = cached = CachedPartition(key, requested)
                if replica is not None:
                    cached.found(replica)
        return {
            cached.replica: cached.fetch_offset
            for cached in self._active()
            if cached.replica is not None
        }

    @property
    def may_grow(self) -> bool:
        """Whether the response should wait briefly for further records."""
        return False

    @property
    def _may_skip(self) -> bool:
        """Whether unchanged partitions of a session need no read."""
        return not self._is_checked

    @abstractmethod
    def _session_fetched(self, session: FetchSession) -> None:
        """Record a request of a session."""

    @abstractmethod
    def _is_unchanged(self, cached: CachedPartition) -> bool:
        """Whether a read would have the same result as the last response."""

    @abstractmethod
    def _lacks_right(self, key: PartitionKey) -> bool:
        """Whether the client may not read a partition."""

    @abstractmethod
    def _read_checked(
        self, key: PartitionKey, replica: Partition, requested: PartitionFetch, max_bytes: int
    ) -> Found | None:
        """Read with further checks; None when they have answered for the partition."""

    @abstractmethod
    def _read_remote(self, key: PartitionKey, replica: Partition, error: KafkaError) -> bool:
        """Whether the error is that only the tier has the offset; the answer is given then."""

    @abstractmethod
    def _count_sent(self) -> None:
        """Count the bytes of the response."""

    def _add_diverging(
        self, key: PartitionKey, replica: Partition, diverging: tuple[int, int]
    ) -> None:
        """Answer with the epoch and offset at which the client's log diverges (KIP-595)."""
        self._has_error = True
        self._add(key, replica, None, b"", 0, diverging)

    def run(self) -> bool:
        """Read each partition in turn until the byte limit is used up.

        Return whether the response should go out now.
        """
        session = self.session
        if session is None:
            for key, requested in self._partitions.items():
                self._read(key, requested)
        else:
            skips_unchanged = self._begin_session(session)
            self._read_active(session, session.active(), skips_unchanged=skips_unchanged)
        return self._is_due()

    @property
    def is_large(self) -> bool:
        """Whether there are more partitions to read than one turn allows."""
        session = self.session
        if session is None:
            return len(self._partitions) > PARTITIONS_IN_A_TURN
        return len(session.partitions) > PARTITIONS_IN_A_TURN and (
            session.active_count > PARTITIONS_IN_A_TURN
            or self._bytes_left < 0  # as in `_begin_session`
            or session.rights_version != self._rights_version
        )

    def run_in_turns(self) -> Work[bool]:
        """Read as `run` does, some partitions in each turn."""
        session, in_a_turn = self.session, PARTITIONS_IN_A_TURN
        sizes_bytes: list[int] = []
        replicas = self._replicas
        if session is None:
            items = list(self._partitions.items())
            for begin in range(0, len(items), in_a_turn):
                for key, requested in items[begin : begin + in_a_turn]:
                    self._read(key, requested)
                sizes_bytes += [_log_bytes(replica) for replica in replicas[len(sizes_bytes) :]]
                yield NEXT_TURN
        else:
            skips_unchanged = self._begin_session(session)
            active = session.active()
            for begin in range(0, len(active), in_a_turn):
                some = active[begin : begin + in_a_turn]
                self._read_active(session, some, skips_unchanged=skips_unchanged)
                sizes_bytes += [_log_bytes(replica) for replica in replicas[len(sizes_bytes) :]]
                yield NEXT_TURN
        for replica, size_bytes in zip(replicas, sizes_bytes, strict=True):
            self.grown_bytes += max(_log_bytes(replica) - size_bytes, 0)
        return self._is_due()

    def _begin_session(self, session: FetchSession) -> bool:
        """Record the request; return whether unchanged partitions are skipped."""
        if not self._was_known:
            self._session_fetched(session)
        # a negative limit ends with the first read, even of an unchanged partition
        skips_unchanged = (
            self.is_incremental
            and self._has_same_rights(session)
            and self._bytes_left >= 0
            and self._may_skip
        )
        if not skips_unchanged:
            session.activate_all()
        return skips_unchanged

    def _read_active(
        self, session: FetchSession, active: list[CachedPartition], *, skips_unchanged: bool
    ) -> None:
        for cached in active:
            if skips_unchanged and self._is_unchanged(cached):
                session.unchanged(cached)
            else:
                cached.was_unchanged = False
                self._read_cached(cached.key, cached)

    def _is_due(self) -> bool:
        """Whether the response should go out now."""
        if (
            self.size_bytes >= self.min_bytes
            or self._has_error
            or self._max_wait_ms <= 0
            or self.remote
        ):
            return True
        count = len(self._partitions if self.session is None else self._cached)
        return self.unread is not None and len(self.unread) == count

    def run_again(self, first: FetchRead) -> None:
        """Read again after a wait; partitions that were not read before it stay so, as in Kafka."""
        self._begin_again(first)
        if first.unread is None:
            self.run()
        else:
            self._read_again(self._active(), first.unread)

    def run_again_in_turns(self, first: FetchRead) -> Work[None]:
        """Read again as `run_again` does, some partitions in each turn."""
        self._begin_again(first)
        if first.unread is None:
            yield from self.run_in_turns()
            return
        active = self._active()
        for begin in range(0, len(active), PARTITIONS_IN_A_TURN):
            self._read_again(active[begin : begin + PARTITIONS_IN_A_TURN], first.unread)
            yield NEXT_TURN

    def _begin_again(self, first: FetchRead) -> None:
        self._was_known = True
        self._cached = first._cached
        self.unread = first.unread

    def _active(self) -> list[CachedPartition]:
        return list(self._cached.values()) if self.session is None else self.session.active()

    def _read_again(
        self, active: list[CachedPartition], unread: dict[PartitionKey, FetchedPartition]
    ) -> None:
        for cached in active:
            answered = unread.get(cached.key)
            if answered is None:
                self._read_cached(cached.key, cached)
            else:
                self._results.append(answered)
                self._replicas.append(None)

    def _has_same_rights(self, session: FetchSession) -> bool:
        """Whether no right has changed since the session's last fetch."""
        version = self._rights_version
        is_same = session.rights_version == version
        session.rights_version = version
        return is_same

    @property
    def _rights_version(self) -> int:
        authorizer = self._ctx.broker.authorizer
        return 0 if authorizer is None else authorizer.version

    def _read_cached(self, key: PartitionKey, cached: CachedPartition) -> None:
        self._read(key, cached.requested)
        replica = self._replicas[-1]
        if replica is not None and replica is not cached.replica:
            cached.found(replica)

    def _read(  # noqa: C901 - each further function costs half a microsecond here
        self, key: PartitionKey, requested: PartitionFetch
    ) -> None:
        """Read one partition; unusual cases branch off where they are found."""
        topic, topic_id, index = key
        epoch, offset, last_fetched_epoch, _, max_bytes = requested
        replica = None
        try:
            if self._is_denied is not None and self._is_denied(key):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if not topic:
                held = self._ctx.broker.replicas.by_topic_id.get(topic_id)
                replica = None if held is None else held.get(index)
            if replica is None:
                replica = self._find(key)
            if max_bytes > self._bytes_left:  # noqa: PLR1730 - see above
                max_bytes = self._bytes_left
            if last_fetched_epoch >= 0 or self._is_checked:
                data = self._read_checked(key, replica, requested, max_bytes)
                if data is None:
                    return
            else:
                data = replica.read(offset, max_bytes, self.isolation, epoch, not self.size_bytes)
            records, aborted = data
            if type(records) is not FileSlice:
                if self._bytes_left < 0:
                    self._end_negative_limit()
                self._add(key, replica, aborted, b"", 0)
                return
            file, position, size = records
            if not file.is_cached(position, size):  # type: ignore[attr-defined] # a log's own file
                self.cold = [records] if self.cold is None else [*self.cold, records]
        except KafkaError as error:
            self._refuse(key, replica, error)
            return
        except OSError as error:  # no descriptor left, or the disk fails
            self._fail_disk(key, replica, error)
            return
        self.size_bytes += size
        self._bytes_left = self._bytes_left - size if self._bytes_left > size else 0
        self._add(key, replica, aborted, records, size)

    def _add(
        self,
        key: PartitionKey,
        replica: Partition,
        aborted: Sequence[AbortedTransaction] | None,
        records: SendItem,
        size: int,
        diverging: tuple[int, int] | None = None,
        preferred: int = -1,
    ) -> None:
        log = replica.log
        high_watermark = log.high_watermark
        stable = high_watermark if log.first_unstable_offset is None else log.last_stable_offset
        start = log.log_start_offset
        self._results.append(
            FetchedPartition(
                key, 0, high_watermark, stable, start, aborted, records, size, diverging, None,
                preferred,
            )
        )  # fmt: skip
        self._replicas.append(replica)

    def _fail_disk(self, key: PartitionKey, replica: Partition | None, error: OSError) -> None:
        if replica is not None:
            self._ctx.broker.replicas.disk_failed(replica, error)
        self._fail(key, replica, ErrorCode.KAFKA_STORAGE_ERROR)

    def _refuse(self, key: PartitionKey, replica: Partition | None, error: KafkaError) -> None:
        if replica is not None and self._read_remote(key, replica, error):
            return
        self._fail(key, replica, error.code)

    def _fail(self, key: PartitionKey, replica: Partition | None, code: ErrorCode) -> None:
        """Answer for one partition; an unread one does not end the wait for the others."""
        is_unread = code in _UNREAD and not self._was_known
        if code not in _UNREAD:
            self._has_error = True
            self._end_negative_limit()
        version = self._ctx.api_version
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_FROM:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = None
        if code in _LED_ELSEWHERE and version >= _LEADERS_FROM:
            leader = self._ctx.current_leader(key[1], key[2], replica)
            if leader is not None:
                self._leader_ids = (self._leader_ids or set()) | {leader[0]}
        self._replicas.append(replica)
        empty = () if is_unread or code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else None
        failed = FetchedPartition(key, code, aborted=empty, leader=leader)
        self._results.append(failed)
        if is_unread:
            self.unread = {} if self.unread is None else self.unread
            self.unread[key] = failed

    def take_remote(self) -> None:
        """Put what was read of the tier into the response; what is not there yet stays empty."""
        remote, self.remote = self.remote, _NO_READS
        for number, read in remote.items():
            result, fetched = read.result, self._results[number]
            if isinstance(result.error, KafkaError):
                self._results[number] = FetchedPartition(fetched.key, result.error.code)
            elif result.done:
                records, aborted = result.value
                size_bytes = len(records)
                self.size_bytes += size_bytes
                self._results[number] = FetchedPartition(
                    fetched.key,
                    0,
                    fetched.high_watermark,
                    fetched.last_stable_offset,
                    fetched.log_start_offset,
                    aborted,
                    records,
                    size_bytes,
                )

    def _end_negative_limit(self) -> None:
        """Continue with a limit of zero after the first read, as Kafka."""
        self._bytes_left = max(self._bytes_left, 0)

    def _find(self, key: PartitionKey) -> Partition:
        """Return the replica of a partition that is named, or that is not held by its topic id.

        As in Kafka, a session remembers the name behind a topic id.
        """
        topic, topic_id, index = key
        broker = self._ctx.broker
        if self._ctx.api_version >= _TOPIC_IDS_FROM:
            cached = self._cached.get(key)
            name = broker.topic_name(topic_id)
            if name is None and cached is not None and cached.topic:
                is_recreated = broker.has_partition(cached.topic, index)
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID if is_recreated else _UNKNOWN[0])
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = name
            if cached is not None:
                cached.topic = name
        return broker.replicas.get(topic, index)

    def response(self) -> FetchAnswer:
        """Return the response; that of a session names only changed partitions."""
        results, session = self._results, self.session
        if self._has_error and session is not None and not self._can_encode_divergence():
            return FetchAnswer(int(ErrorCode.UNSUPPORTED_VERSION), session.session_id, ())
        if self.size_bytes:
            self._count_sent()
        if self.unread is not None:
            results = self._unread_last(self.unread)
            if session is not None and not self.is_incremental:
                session.serve_in_order(results)
        session_id = INVALID_SESSION_ID
        if session is not None:
            session_id = session.session_id
            changed = session.changed(results)
            if self.is_incremental:
                session.serve_later(changed)
                results = changed
        leaders = () if self._leader_ids is None else self._leaders(self._leader_ids)
        answer: FetchAnswer = _new_tuple(FetchAnswer, (0, session_id, results, leaders))
        return answer

    def _unread_last(self, unread: dict[PartitionKey, FetchedPartition]) -> list[FetchedPartition]:
        """Return the results in Kafka's order: unread ones last, those of unknown ids first."""
        nameless: list[FetchedPartition] = []
        named: list[FetchedPartition] = []
        for fetched in unread.values():
            is_nameless = fetched.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            (nameless if is_nameless else named).append(fetched)
        read = [one for one in self._results if unread.get(one.key) is not one]
        return read + nameless + named

    def _can_encode_divergence(self) -> bool:
        """Whether the version can express divergence: a newer one may have begun the session."""
        return self._ctx.api_version >= _DIVERGING_FROM or all(
            fetched.diverging is None for fetched in self._results
        )

    def _leaders(self, leader_ids: set[int]) -> list[Node]:
        """Return the addresses of leaders that clients are referred to (KIP-951)."""
        nodes = self._ctx.broker.nodes(self._ctx.listener_name)
        return [node for node in nodes if node.node_id in leader_ids]


def _log_bytes(replica: Partition | None) -> int:
    return 0 if replica is None else replica.log.size_bytes

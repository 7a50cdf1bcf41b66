"""All partitions of this broker: found by name, created and dropped as metadata says.

Kafka: kafka.server.ReplicaManager (the part that owns partitions); BrokerTopicMetrics
{Replication,Reassignment}Bytes{In,Out}PerSec;
org.apache.kafka.common.replica.RackAwareReplicaSelector, ReplicaManager.findPreferredReadReplica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.validator import AppendOrigin
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sized

    from ottla.metadata.image.cluster import ClusterImage
    from ottla.protocol.fetch_values import PartitionKey
    from ottla.purgatory.work import Work
    from ottla.records.validation_rules import CheckedBatch
    from ottla.replication.leader_state import FollowerState, LeaderEnvironment, LeaderState
    from ottla.storage.log.append_info import AppendInfo
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.log_set import LogSet
    from ottla.storage.producers.append import TransactionAppend
    from ottla.types import Uuid


class ReplicationTraffic:
    """Bytes fetched as a follower and sent as a leader, and the share of replicas being moved."""

    __slots__ = ("bytes_in", "bytes_out", "moved_bytes_in", "moved_bytes_out")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = 0
        self.moved_bytes_in = self.moved_bytes_out = 0
        """Of replicas that a reassignment adds."""


MAX_TURNS: Final = 10
"""The most turns of the loop for which a follower's fetch waits for more records."""
PRODUCERS_TO_WAIT_FOR: Final = 16
"""More producers than this fill a follower's fetch in one turn of the loop."""
_CLIENT: Final = AppendOrigin.CLIENT  # an enum's members are found slowly
_COORDINATOR: Final = AppendOrigin.COORDINATOR
_ALWAYS: Final = (True,)
_new_tuple: Final = tuple.__new__


class Appended(NamedTuple):
    """What an append did, and what acknowledges it later, if anything."""

    info: AppendInfo
    leading: LeaderState | None
    """Of acks=all: the leader's state, the high watermark of which has to pass the last offset."""


class ReplicaSet:
    """Partitions by (topic, partition), their storage, and the listeners of appends."""

    def __init__(
        self,
        node_id: int,
        logs: LogSet,
        internal_topics: Collection[str] = frozenset(),
        call_soon: Callable[[Callable[[], None]], object] | None = None,
        yield_processor: Callable[[], None] | None = None,
    ) -> None:
        """call_soon(callback) calls back in the next turn of the loop; None: at once.

        yield_processor() lets other processes of the machine run first.
        """
        self.node_id = node_id
        self.logs = logs
        self.internal_topics = internal_topics
        self._partitions: dict[str, dict[int, Partition]] = {}
        self.by_topic_id: dict[bytes, dict[int, Partition]] = {}
        """The same partitions, by their topics' ids."""
        self._listeners: list[tuple[Sized, Callable[[Partition], object]]] = []
        self._log_end_listeners: list[Callable[[PartitionLog], object]] = []
        self.call_soon = call_soon or _call
        self._yield_processor = yield_processor
        self._appended: dict[PartitionLog, None] = {}
        """Logs of replicated partitions with appends that were not reported to followers."""
        self.environment: LeaderEnvironment | None = None
        """What leaders need to replicate; set before the first partition is hosted."""
        self.has_partition: Callable[[str, int], bool] | None = None
        """Whether the metadata has a partition, on any broker."""
        self.traffic = ReplicationTraffic()
        self.append_count = 0
        """Appends so far: lets pollers detect appends."""
        self.exchange_count = 0
        """Logs that were replaced by copies in other directories, so far."""
        self.is_short_of_space = False
        """Whether some directory has less left than its reserve: clients are refused there."""
        self.refused_for_space_count = 0
        self.overdue_flushes = logs.flushes.waits.overdue
        """Logs whose last append may not be answered yet; most often empty."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._partitions.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))

    def on_high_watermark(
        self, listener: Callable[[Partition], object], waiting: Sized = _ALWAYS
    ) -> None:
        """Call the listener after each append that moved a partition's high watermark.

        Not while `waiting` is empty, such as a purgatory's watchers: without share groups appends
        pay nothing for them.
        """
        self._listeners.append((waiting, listener))

    def on_log_end(self, listener: Callable[[PartitionLog], object]) -> None:
        """Call the listener after each append to a log that other brokers replicate."""
        self._log_end_listeners.append(listener)

    def find(self, topic: str, partition: int) -> Partition | None:
        """Return the partition when this broker holds it."""
        partitions = self._partitions.get(topic)
        return partitions.get(partition) if partitions else None

    def find_key(self, key: PartitionKey) -> Partition | None:
        """Return the partition that a fetch names by name or by topic id."""
        topic, topic_id, index = key
        if topic:
            return self.find(topic, index)
        return self.by_topic_id.get(topic_id, {}).get(index)

    def get(self, topic: str, partition: int) -> Partition:
        """Return the partition; raises the KafkaError of `why_missing` when it is not held."""
        found = self.find(topic, partition)
        if found is None:
            raise KafkaError(self.why_missing(topic, partition))
        return found

    def why_missing(self, topic: str, partition: int) -> ErrorCode:
        """Return the error for a partition that is not held: lost, on other brokers, or none."""
        name = TopicPartition(topic, partition)
        if name in self.logs.broken or name in self.logs.withheld:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_elsewhere = (
            self.has_partition is not None
            and self.find(topic, partition) is None
            and self.has_partition(topic, partition)
        )
        if is_elsewhere:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the client's metadata is outdated
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def host(
        self, topic: str, partition: int, topic_id: Uuid, *, now_ms: int, is_new: bool = True
    ) -> Partition:
        """Return the partition, opening or creating its log when it is not held.

        One whose directory has failed takes the log that was read again, if any.
        A partition that is not new gets no second log while the first may lie in a directory that
        is offline: KAFKA_STORAGE_ERROR.
        """
        held = self.find(topic, partition)
        name = TopicPartition(topic, partition)
        if held is not None and held.topic_id == topic_id:
            if self.is_restorable(held):
                held.restore(
                    self.logs.get_or_create(name, topic_id=topic_id, now_ms=now_ms, is_new=False)
                )
                self.exchange_count += 1
            return held
        if held is not None:
            held.changed()
            self._forget_id(held)
        log = self.logs.get_or_create(name, topic_id=topic_id, now_ms=now_ms, is_new=is_new)
        created = Partition(
            name,
            topic_id,
            log,
            is_internal=topic in self.internal_topics,
            environment=self.environment,
        )
        self._partitions.setdefault(topic, {})[partition] = created
        self.by_topic_id.setdefault(topic_id, {})[partition] = created
        return created

    def is_restorable(self, partition: Partition) -> bool:
        """Whether the directory of a partition failed, and its log may be read again."""
        if partition.log.failure is None:
            return False
        log = self.logs.get(partition.topic_partition)
        is_online = len(self.logs.online_directories) == len(self.logs.directories)
        return log is not partition.log and (log is not None or is_online)

    def remove(self, topic: str, partition: int) -> Partition | None:
        """Serve a partition no more: requests for it get the answer of `why_missing`.

        Its log stays until `drop`. As in Kafka a client whose topic is deleted never hears of
        another leader.
        """
        partitions = self._partitions.get(topic, {})
        removed = partitions.pop(partition, None)
        if not partitions:
            self._partitions.pop(topic, None)
        if removed is not None:
            self._forget_id(removed)
            removed.resign(-1, -1, self.why_missing(topic, partition))
            self._notify_watchers(removed)
        return removed

    def drop(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Remove a partition and its log, whose directory is renamed now and removed later."""
        self.remove(topic, partition)
        self.logs.delete(TopicPartition(topic, partition), now_ms=now_ms)

    def _forget_id(self, dropped: Partition) -> None:
        partitions = self.by_topic_id[dropped.topic_id]
        del partitions[dropped.topic_partition.partition]
        if not partitions:
            del self.by_topic_id[dropped.topic_id]

    def append(  # noqa: C901 - the hot path: a further function costs more
        self,
        partition: Partition,
        records: memoryview | CheckedBatch,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = _CLIENT,
        *,
        transaction: TransactionAppend | None = None,
    ) -> Appended:
        """Append one batch to a partition that this broker leads, and wake the waiting fetches.

        With acks=all the caller, of whatever origin, may wait for the result's `leading`. Batches
        and markers of transactions come with `transaction`.

        Raises KafkaError: not the leader, too few in-sync replicas for acks=all, or what the log's
        validation found. A disk that fails here takes its directory offline, with all partitions
        in it. A client also gets KAFKA_STORAGE_ERROR while the directory is short of space, which
        stays online. OffloadRequired as `LogWrites.append_as_leader`.
        """
        if self.is_short_of_space and origin is _CLIENT:
            self._refuse_for_space(partition)
        log = partition.log
        try:
            if not partition.is_leader or (
                required_acks == ACKS_ALL and partition.min_insync_replicas > len(partition.isr)
            ):
                partition.check_writable(required_acks)
            epoch, append = partition.leader_epoch, log.writes.append_as_leader
            if transaction is None:
                info = append(records, epoch, now_ms, origin)
            else:
                guard, version, marker = transaction
                info = append(
                    records,
                    epoch,
                    now_ms,
                    origin,
                    verification=guard,
                    transaction_version=version,
                    marker=marker,
                )
        except KafkaError as error:
            partition.append_count += 1
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.disk_failed(partition, error.__cause__)
            raise
        partition.append_count += 1
        partition.messages_in += info.record_count
        partition.bytes_in += info.size_bytes
        self.append_count += 1
        leading = partition.leading
        if leading is not None:
            self._replicate(partition, leading)
            if required_acks == ACKS_ALL and info[1] >= log.high_watermark:
                return _new_tuple(Appended, (info, leading))
            return _new_tuple(Appended, (info, None))
        log.update_high_watermark(log.log_end_offset)
        partition.changed()
        for waiting, listener in self._listeners:
            if waiting:
                listener(partition)
        if partition.on_commit is not None:
            self._notify_coordinator(partition, origin)
        return _new_tuple(Appended, (info, None))

    def _replicate(self, partition: Partition, leading: LeaderState) -> None:
        """Wake the followers."""
        log = partition.log
        partition.changed()
        leading.appended()
        self._appended[log] = None
        if len(self._appended) == 1:
            self._wake_followers_soon(leading.acknowledgements.completed_together)

    def _wake_followers_soon(self, acknowledged: int) -> None:
        """Wake them after this turn, or when the producers acknowledged last have sent again.

        The producers may wait for a processor: it is yielded between the turns.
        """
        if 1 < acknowledged <= PRODUCERS_TO_WAIT_FOR:
            self.when_quiet(self._wake_followers, self._yield_processor)
        else:
            self.call_soon(self._wake_followers)

    def _wake_followers(self) -> None:
        """Let waiting followers read all that was appended since."""
        appended, self._appended = self._appended, {}
        for log in appended:
            for listener in self._log_end_listeners:
                listener(log)

    def when_quiet(
        self, callback: Callable[[], None], between: Callable[[], None] | None = None
    ) -> None:
        """Call back after a turn of the loop in which nothing was appended, or after MAX_TURNS.

        between() is called between two turns.
        """
        seen, left = -1, MAX_TURNS

        def poll() -> None:
            nonlocal seen, left
            if not left or seen == self.append_count:
                callback()
                return
            seen, left = self.append_count, left - 1
            if between is not None:
                between()
            self.call_soon(poll)

        self.call_soon(poll)

    def high_watermark_moved(self, partition: Partition) -> None:
        """Wake waiting fetches of committed records of a replicated partition."""
        self._wake_readers(partition)
        if partition.on_commit is not None:
            self._notify_coordinator(partition, _COORDINATOR)

    def _wake_readers(self, partition: Partition) -> None:
        partition.changed()
        for waiting, listener in self._listeners:
            if waiting:
                listener(partition)

    def resign(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Stop leading; requests that wait for the partition are answered."""
        partition.resign(leader_id, leader_epoch)
        self._notify_watchers(partition)

    def fetched(self, partition: Partition) -> None:
        """Wake waiting fetches of a followed partition: it got records or a new high watermark."""
        self.append_count += 1
        self._wake_readers(partition)

    def failed(self, partition: Partition, error: KafkaError) -> None:
        """Handle a partition that cannot be replicated: a disk goes offline as in `append`."""
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self.disk_failed(partition, error.__cause__)
        self.fetched(partition)

    def check_lag(self, now_ms: int) -> Work[None]:
        """Let each leader propose the removal of followers that lag."""
        for partition in list(self):
            if partition.leading is not None and partition.log.failure is None:
                partition.leading.check_lag(now_ms)
            yield

    def _notify_coordinator(self, partition: Partition, origin: AppendOrigin) -> None:
        """Report a commit to the coordinator; of its own append once flush.messages is met."""
        if origin is AppendOrigin.CLIENT or not self.logs.flushes.waits.overdue:
            _committed(partition)
            return
        for wait in self.logs.flushes.wait_for_overdue().values():
            wait.on_done(lambda done: None if done.error else _committed(partition))

    def _refuse_for_space(self, partition: Partition) -> None:
        log_dir = self.logs.log_dir_of(partition.topic_partition)
        if partition.is_leader and log_dir is not None and log_dir.is_short_of_space:
            self.refused_for_space_count += 1
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the broker's disk is nearly full: {log_dir.free_bytes} bytes are left, less than "
                f"its reserve of {log_dir.reserve_bytes} (log.dir.reserve.bytes)",
            )

    def disk_failed(self, partition: Partition, error: BaseException | None) -> None:
        """Take the directory of a partition offline."""
        log_dir = self.logs.log_dir_of(partition.topic_partition)
        if log_dir is not None:
            self.logs.fail(log_dir, error)

    def volume_failed(self, volume: Hashable, error: OSError) -> None:
        """Take the directory of a volume offline."""
        for log_dir in self.logs.online_directories:
            if log_dir.directory.volume == volume:
                self.logs.fail(log_dir, error)

    def report_failures(self) -> None:
        """Notify the watchers of partitions of a failed disk."""
        for partition in [replica for replica in self if replica.log.failure is not None]:
            self._notify_watchers(partition)

    def _notify_watchers(self, partition: Partition) -> None:
        self._wake_readers(partition)
        for log_end_listener in self._log_end_listeners:
            log_end_listener(partition.log)


def _committed(partition: Partition) -> None:
    if partition.on_commit is not None:
        partition.on_commit(partition)


def _call(callback: Callable[[], None]) -> None:
    callback()


LEADER: Final = -1


class RackAwareReplicaSelector:
    """Chooses among the replicas in the consumer's rack the one that lags least."""

    def __init__(self, cluster: ClusterImage) -> None:
        self._cluster = cluster

    def select(
        self, partition: Partition, rack_id: str, listener: str, fetch_offset: int, now_ms: int
    ) -> int:
        """Return the broker to read from; LEADER for the leader, or if this broker does not lead.

        Only followers in sync count that have the requested offset, and that a client of this
        listener can reach.
        """
        leading = partition.leading
        if leading is None or not partition.is_leader:
            return LEADER
        if self._rack_of(partition.leader_id, listener) == rack_id:
            return LEADER
        near = [
            follower
            for follower in leading.followers.values()
            if follower.broker_id in partition.isr
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and self._rack_of(follower.broker_id, listener) == rack_id
        ]
        if not near:
            return LEADER

        def order(follower: FollowerState) -> tuple[int, int, int]:
            lag_ms = now_ms - follower.last_caught_up_ms
            return follower.log_end_offset, -lag_ms, follower.broker_id

        return max(near, key=order).broker_id

    def _rack_of(self, broker_id: int, listener: str) -> str | None:
        broker = self._cluster.brokers.get(broker_id)
        if broker is None or broker.fenced or listener not in broker.listeners:
            return None
        return broker.rack

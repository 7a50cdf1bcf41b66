"""Tiered storage of a broker: what the leader of a partition copies to the tier and deletes there.

Every task interval each led partition has a turn: its sealed segments are copied one after the
other, then what has expired is deleted. The loop decides on tables in memory; files
and the tier are touched by workers alone, as many at a time as the settings of thread pools say.

Kafka: org.apache.kafka.server.log.remote.storage.RemoteLogManager.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.errors import ConfigError, KafkaError
from ottla.metrics.sampled_stat import SampledStat, SampleWindow
from ottla.purgatory.backoff import Backoff
from ottla.purgatory.pending import Pending
from ottla.quota.replication import ReplicationQuota
from ottla.server.remote.figures import RemoteCounts, RemoteSizes
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.storage.log.partition_log import NO_OFFSET
from ottla.storage.log.retention import ClockJumpDetector
from ottla.storage.remote.copying import described, next_candidate
from ottla.storage.remote.retention import LogPosition, expired_segments
from ottla.storage.remote.segment import SegmentState, SegmentUpdate
from ottla.storage.remote.storage_manager import RetriableRemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.purgatory.backoff import Randomness
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.work import Work
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.remote.calls import RemoteCalls
    from ottla.server.remote.metadata_topic import RemoteMetadataTopic
    from ottla.server.system.environment import DetachedPool
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.remote.copying import SegmentToCopy
    from ottla.storage.remote.index_cache import RemoteIndexCache
    from ottla.storage.remote.partition_segments import PartitionSegments
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import ConnectedStorage
    from ottla.types import Uuid

T = TypeVar("T")
ABANDONED_MS: Final = 3_600_000
"""Another broker's copy that takes longer is taken for abandoned: 1 GiB at 300 KB/s."""
ORPHAN_MS: Final = 600_000
"""Segments of a topic that this broker does not know are not touched for so long: its metadata may
be late, and the topic's last leader deletes them at once if it lives."""
QUOTA_WAIT_MS: Final = 1000
"""How long a copy waits before it looks at the quota again, as in Kafka."""
log = logging.getLogger("ottla.remote")


class Tier(NamedTuple):
    """The tier, and the calls that may wait for it."""

    storage: ConnectedStorage
    index_cache: RemoteIndexCache
    pool: DetachedPool
    """The threads of all calls."""
    copiers: RemoteCalls
    expirers: RemoteCalls
    readers: RemoteCalls
    followers: RemoteCalls
    """For the states of followers that begin behind the records of the tier."""

    @property
    def calls(self) -> dict[str, RemoteCalls]:
        """The calls by their settings' names."""
        return {
            "copier": self.copiers,
            "expiration": self.expirers,
            "follower": self.followers,
            "reader": self.readers,
        }


def thread_counts(config: BrokerConfig) -> tuple[int, int, int, int]:
    """Return how many calls of each kind run at a time, in the order of `Tier.calls`."""
    return (
        config.remote_log_manager_copier_thread_pool_size,
        config.remote_log_manager_expiration_thread_pool_size,
        config.remote_log_manager_follower_thread_pool_size,
        config.remote_log_reader_threads,
    )


class _Leadership:
    """One partition that this broker leads."""

    __slots__ = (
        "copied_offset",
        "copying",
        "failures",
        "is_cancelled",
        "leader_epoch",
        "retry_ms",
        "sizes",
        "unconfirmed",
    )

    def __init__(self, leader_epoch: int, sizes: RemoteSizes) -> None:
        self.leader_epoch = leader_epoch
        self.sizes = sizes
        self.copied_offset: int | None = None
        """The last offset that the tier has of this log; None until it is looked up."""
        self.copying: Uuid | None = None
        """The segment whose copy is under way: it is not abandoned."""
        self.is_cancelled = False
        """Whether copies wait for the election of another leader: the plug-in is at fault."""
        self.failures = 0
        """Copies in a row that failed and may be tried again."""
        self.retry_ms = 0
        """No copy begins before this time of the monotonic clock."""
        self.unconfirmed: SegmentUpdate | None = None
        """The end of a copy whose record was written and not read back in time."""


class RemoteLogManager:
    """Copies and deletes for the partitions that a broker leads, and answers from the metadata."""

    def __init__(
        self,
        topic: RemoteMetadataTopic,
        replicas: ReplicaSet,
        config: BrokerConfig,
        loop: Loop,
        tier: Tier,
        *,
        new_uuid: Callable[[], Uuid],
        rng: Randomness,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Call on_failure(error) when the settings of the store turn out to be wrong."""
        self._rng = rng
        self._on_failure = on_failure
        self._topic = topic
        self._replicas = replicas
        self._config = config
        self._loop = loop
        self.tier = tier
        self.storage, self.index_cache = tier.storage, tier.index_cache
        self._copiers, self._expirers = tier.copiers, tier.expirers
        self._new_uuid = new_uuid
        self._led: dict[tuple[Uuid, int], _Leadership] = {}
        clock = loop.clock
        self.copy_quota = ReplicationQuota(
            SampleWindow(
                config.remote_log_manager_copy_quota_window_num,
                config.remote_log_manager_copy_quota_window_size_seconds * 1000,
            )
        )
        self.copy_quota.limit = float(config.remote_log_manager_copy_max_bytes_per_second)
        self._failing: set[tuple[str, tuple[Uuid, int]]] = set()
        """The calls, by name, and partitions whose last try failed: one line for all of them."""
        self.counts: defaultdict[str, RemoteCounts] = defaultdict(RemoteCounts)
        """What happened by topic; reads and followers count here, too."""
        self.copy_waits_ms = SampledStat(
            SampleWindow(config.metrics_num_samples, config.metrics_sample_window_ms)
        )
        """How long copies had to wait for their quota."""
        self._jumps = ClockJumpDetector(clock.now_ms(), clock.monotonic_ms())
        """A jump counts until the next start: segments from before it keep their real age."""
        self._is_closed = False

    def connect(self) -> Pending[None]:
        """Begin to connect; the first try completes the result, or fails it with ConfigError.

        A store that is away is tried again, with back-off. Until then nothing is copied.
        """
        first: Pending[None] = Pending()
        self._connect(first, 0)
        return first

    def _connect(self, first: Pending[None], failures: int) -> None:
        if not self._is_closed:
            self._run_job(self._copiers, self.storage.connect, "the connection").on_done(
                lambda done: self._connected(done, first, failures)
            )

    def _connected(self, done: Pending[None], first: Pending[None], failures: int) -> None:
        if isinstance(done.error, ConfigError):
            if not first.fail(done.error):
                self._on_failure(done.error)
            return
        first.complete(None)
        if done.error is None:
            if failures:
                log.info("remote storage answers", extra={"event": "remote.connected"})
            return
        if not failures:
            text = (
                "remote storage does not answer: %s; segments stay on this disk and reads of "
                "older ones fail until it does; it is tried again"
            )
            log.error(text, done.error, extra={"event": "remote.away"})
        again_ms = self._retry_ms(failures + 1)
        self._loop.timer.add(again_ms, lambda _now_ms: self._connect(first, failures + 1))

    def _retry_ms(self, failures: int) -> int:
        """Return when to try again after consecutive failures, of the monotonic clock."""
        config = self._config
        backoff = Backoff(
            config.remote_log_manager_task_retry_backoff_ms,
            config.remote_log_manager_task_retry_backoff_max_ms,
            self._rng,
            jitter=config.remote_log_manager_task_retry_jitter,
        )
        return self._loop.clock.monotonic_ms() + backoff.after(failures)

    def start(self) -> None:
        """Begin; the first turn is due at once."""
        self._run_job(self._copiers, self.index_cache.load, "the load of the index cache").on_done(
            self._cache_loaded
        )
        self._tick(0)

    def _cache_loaded(self, done: Pending[None]) -> None:
        if done.error is not None:
            text = "cached indexes of remote segments are not taken over: %s; they are read again"
            log.warning(text, done.error, extra={"event": "remote.cache_lost"})

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config
        self.copy_quota.limit = float(config.remote_log_manager_copy_max_bytes_per_second)
        for calls, count in zip(self.tier.calls.values(), thread_counts(config), strict=True):
            calls.resize(count)
        job = partial(self.index_cache.resize, config.remote_log_index_file_cache_total_size_bytes)
        self._run_job(self._copiers, job, "the change of the index cache's size")

    def close(self) -> None:
        """Begin nothing further."""
        self._is_closed = True
        self._topic.close()
        for calls in self.tier.calls.values():
            calls.close()

    def end(self) -> None:
        """Wait for the calls that run, not for those that do not end, and close the store."""
        self.tier.pool.close()
        if self.tier.pool.is_ended:
            self.storage.close()
            return
        text = "calls to remote storage have not ended; the stop goes on without them"
        log.warning(text, extra={"event": "remote.calls_left"})

    def metadata_changed(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """Delete the segments of deleted topics of which this broker led partitions."""
        for topic_id, topic in delta.topics_deleted.items():
            for index, registration in topic.partitions.items():
                key = topic_id, index
                self._led.pop(key, None)
                is_led = registration.leader == self._replicas.node_id
                if is_led and self._topic.is_ready(key) and self._topic.table(key):
                    self._begin(self._delete_all(key), ("remote deletion", key))

    # For metrics

    @property
    def is_away(self) -> bool:
        """Whether the store did not answer since the start, or the last calls to it failed."""
        return not self.storage.is_connected or bool(self._failing)

    def sizes(self) -> list[RemoteSizes]:
        """Return those of all partitions that this broker leads."""
        return [led.sizes for led in self._led.values()]

    # For reads

    def table(self, partition: tuple[Uuid, int]) -> PartitionSegments:
        """Return the segments of a partition."""
        return self._topic.table(partition)

    def segment_at(
        self, partition: tuple[Uuid, int], epoch: int, offset: int
    ) -> RemoteSegment | None:
        """Return the segment that has the record at offset, written in this epoch."""
        return self._topic.table(partition).segment_at(epoch, offset)

    # Turns

    def _tick(self, _now_ms: int) -> None:
        if self._is_closed:
            return
        clock = self._loop.clock
        self._jumps.look(clock.now_ms(), clock.monotonic_ms())
        for calls in self.tier.calls.values():
            calls.name_slow()
        next_ms = clock.monotonic_ms() + self._config.remote_log_manager_task_interval_ms
        self._loop.timer.add(next_ms, self._tick)
        self._begin(self._begin_turns(), "remote tasks")

    def _begin(self, work: Work[None], key: Hashable) -> None:
        self._loop.worker.begin(work, key).on_done(self._ended)

    def _ended(self, done: Pending[None]) -> None:
        if done.error is not None:
            is_retried = isinstance(done.error, KafkaError) and done.error.is_retriable
            log.log(
                logging.INFO if is_retried else logging.ERROR,
                "a task of remote storage failed: %s; it is repeated in the next interval",
                done.error,
                extra={"event": "remote.task_failed"},
            )

    def _begin_turns(self) -> Work[None]:
        needed, tried = [], set()
        for replica in list(self._replicas):
            key, config = (replica.topic_id, replica.topic_partition.partition), replica.log.config
            if not config.is_tiered and not config.remote_log_delete_on_disable:
                self._led.pop(key, None)
                continue
            needed.append(key)
            if not replica.is_leader:
                self._led.pop(key, None)
                self._mark_copied(replica, key)
                continue
            tried.add(key)
            if not self.storage.is_connected:
                continue
            elif config.is_tiered:
                if (led := self._led.get(key)) is not None:  # also while a copy does not end
                    led.sizes.measure_copies(replica.log)
                    self._begin(self._expire(replica, key, led), ("remote expiry", key))
                self._begin_turn(replica, key)
            elif self._topic.is_ready(key) and self._topic.table(key):
                replica.log.advance_start(replica.log.local_log_start_offset)
                self._begin(self._delete_all(key), ("remote deletion", key))
            yield
        self._topic.refresh(needed)
        self._failing = {entry for entry in self._failing if entry[1] in tried}
        if self.storage.is_connected:
            self._begin(self._delete_orphans(), "remote deletion of topics")

    def _mark_copied(self, replica: Partition, key: tuple[Uuid, int]) -> None:
        """Let a follower delete what the tier has."""
        if replica.log.config.is_copied_to_tier and self._topic.is_ready(key):
            replica.log.copied_to_tier(self._copied_offset(replica.log, key))

    def _begin_turn(self, replica: Partition, key: tuple[Uuid, int]) -> None:
        if not self._is_closed and replica.is_leader:
            self._begin(self._turn(replica, key), ("remote", key))

    def _turn(self, replica: Partition, key: tuple[Uuid, int]) -> Work[None]:
        led = self._led.get(key)
        if led is None or led.leader_epoch != replica.leader_epoch:
            epoch = replica.leader_epoch
            yield from self._topic.catch_up(key)
            if not self._topic.is_ready(key) or not replica.is_leader:
                return
            led = self._led[key] = _Leadership(epoch, RemoteSizes(*replica.topic_partition))
            self._find_start(replica.log, key)
        led.copied_offset = None
        yield from self._confirm(led)
        while not led.is_cancelled and self._leads(replica, led):
            if not replica.log.config.is_copied_to_tier:
                break
            if led.retry_ms > self._loop.clock.monotonic_ms():
                break
            if not (yield from self._copy_next(replica, key, led)):
                break
        self._begin(self._expire(replica, key, led), ("remote expiry", key))

    def _confirm(self, led: _Leadership) -> Work[None]:
        """Repeat the record of a copy's end: its segment must not pass for an abandoned one."""
        if led.unconfirmed is not None:
            yield self._topic.write(led.unconfirmed)
            led.unconfirmed = None

    def _leads(self, replica: Partition, led: _Leadership) -> bool:
        """Whether this broker still leads the partition, in the same epoch."""
        return (
            not self._is_closed
            and replica.is_leader
            and replica.leader_epoch == led.leader_epoch
            and not replica.log.is_deleted
            and self._replicas.find(*replica.topic_partition) is replica
        )

    def _find_start(self, partition_log: PartitionLog, key: tuple[Uuid, int]) -> None:
        """Move the log's start up to the first segment: the checkpoint may be an older one.

        A segment that is being deleted counts only where this disk has its records, too. First
        take epochs that the log has lost from the tier: their segments are not expired.
        """
        table, epochs = self._topic.table(key), partition_log.leader_epochs
        start_offset = partition_log.log_start_offset
        lineage = table.lineage_from(start_offset, epochs.entries)
        if lineage != epochs.entries:
            epochs.take_over(LeaderEpochs([EpochEntry(*entry) for entry in lineage]))
            epochs.truncate_from_start(start_offset)
            partition_log.on_flush_requested(partition_log)
        for epoch, _ in epochs.entries:
            for segment in table.segments(epoch):
                is_complete = segment.state is SegmentState.COPY_SEGMENT_FINISHED
                if is_complete or segment.start_offset >= partition_log.local_log_start_offset:
                    partition_log.advance_start(segment.start_offset)
                    return
        partition_log.advance_start(partition_log.local_log_start_offset)

    def _copied_offset(self, partition_log: PartitionLog, key: tuple[Uuid, int]) -> int:
        """Return the last offset of this log's lineage that is copied or expired, -1 without any.

        A copy may have been deleted because the record of its end came late: it is made again.
        """
        table = self._topic.table(key)
        ever = _last_in_lineage(partition_log, table.highest_offset)
        complete = _last_in_lineage(partition_log, table.last_copied_offset)
        return min(ever, max(complete, partition_log.log_start_offset - 1))

    # Copy

    def _copy_next(self, replica: Partition, key: tuple[Uuid, int], led: _Leadership) -> Work[bool]:
        """Copy the next segment; return whether there may be another one."""
        partition_log = replica.log
        if led.copied_offset is None:
            led.copied_offset = self._copied_offset(partition_log, key)
            partition_log.copied_to_tier(led.copied_offset)
        candidate = yield from self._next_candidate(replica, led, led.copied_offset)
        if candidate is None:
            return False
        led.copying = self._new_uuid()
        try:
            return (yield from self._copy(replica, key, led, candidate))
        finally:
            led.copying = None

    def _copy(
        self,
        replica: Partition,
        key: tuple[Uuid, int],
        led: _Leadership,
        candidate: SegmentToCopy,
    ) -> Work[bool]:
        """Copy a segment under the id of led.copying; return as `_copy_next`."""
        partition_log = replica.log
        assert led.copying is not None, "the copy has an id"
        name = f"the copy of segment {candidate.segment.base_offset} of {partition_log.name}"
        max_timestamp_ms, files = yield self._run_job(self._copiers, candidate.read, name)
        partition_log.producer_state.snapshot_written(candidate.end_offset)
        segment = described(
            partition_log,
            candidate,
            files,
            segment_id=led.copying,
            max_timestamp_ms=max_timestamp_ms,
            broker_id=self._replicas.node_id,
            now_ms=self._loop.clock.now_ms(),
        )
        yield self._topic.write(segment)
        self.counts[segment.topic].copy_count += 1
        try:
            job = partial(self.storage.copy_segment, segment, files)
            custom = yield self._run_job(self._copiers, job, name)
        except RetriableRemoteStorageError as error:
            self._copy_failed(segment, error)
            led.failures += 1
            led.retry_ms = self._retry_ms(led.failures)
            self._loop.timer.add(led.retry_ms, lambda _now_ms: self._begin_turn(replica, key))
            return False
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
            self._copy_failed(segment, error)
            yield from self._delete(segment)
            return False
        led.failures = 0
        self._succeeded("copies", key)
        limit = self._config.remote_log_metadata_custom_metadata_max_bytes
        if custom is not None and len(custom) > limit:
            led.is_cancelled = True
            self.counts[segment.topic].failed_copy_count += 1
            # no outage: it is not tried again, and must not keep later ones from the log
            text = (
                "%s is not copied any longer: custom metadata of %d bytes, more than %d; raise "
                "remote.log.metadata.custom.metadata.max.bytes and start the node again"
            )
            extra = {"event": "remote.copy_cancelled"}
            log.error(text, partition_log.name, len(custom), limit, extra=extra)
            yield from self._delete(replace(segment, custom_metadata=custom))
            return False
        if not self._leads(replica, led):
            if not self._is_closed:  # the next leader copies it again
                yield from self._delete(replace(segment, custom_metadata=custom))
            return False
        finished = self._update(segment, SegmentState.COPY_SEGMENT_FINISHED, custom)
        led.unconfirmed = finished
        yield self._topic.write(finished)
        led.unconfirmed = None
        led.copied_offset = segment.end_offset
        partition_log.copied_to_tier(segment.end_offset)
        led.sizes.measure_copies(partition_log)
        self.counts[segment.topic].copied_bytes += segment.size_bytes
        log.info(
            "segment %d of %s is in remote storage, %d bytes",
            segment.start_offset,
            partition_log.name,
            segment.size_bytes,
            extra={"event": "remote.copied"},
        )
        return True

    def _next_candidate(
        self, replica: Partition, led: _Leadership, copied_offset: int
    ) -> Work[SegmentToCopy | None]:
        """Return what to copy next as soon as remote.log.manager.copy.max.bytes.per.second lets it.

        Its whole size is booked before the copy, as in Kafka.
        """
        clock = self._loop.clock
        while self._leads(replica, led) and replica.log.config.is_copied_to_tier:
            candidate = next_candidate(replica.log, copied_offset)
            now_ms = clock.monotonic_ms()
            wait_ms = 0 if candidate is None else self.copy_quota.wait_ms(now_ms)
            if wait_ms:
                self.copy_waits_ms.record(wait_ms, now_ms)
            else:
                if candidate is not None:
                    self.copy_quota.record(candidate.segment.size, now_ms)
                return candidate
            yield self._after(QUOTA_WAIT_MS)
        return None

    def _after(self, delay_ms: int) -> Pending[None]:
        over: Pending[None] = Pending()
        due_ms = self._loop.clock.monotonic_ms() + delay_ms

        def complete(_now_ms: int) -> None:
            over.complete(None)

        self._loop.timer.add(due_ms, complete)
        return over

    def _copy_failed(self, segment: RemoteSegment, error: Exception) -> None:
        self.counts[segment.topic].failed_copy_count += 1
        text = "segment %d of %s-%d is not copied to remote storage: %s; it stays on this disk"
        self._failed("copies", segment, error, text, "remote.copy_failed")

    def _failed(
        self, call: str, segment: RemoteSegment, error: Exception, text: str, event: str
    ) -> None:
        """Log the first failure; those until the store answers again are of one outage."""
        key = segment.topic_id, segment.partition
        level = logging.DEBUG if self._failing else logging.ERROR
        self._failing.add((call, key))
        text += ", and is tried again; until that succeeds further failures are not logged"
        name = segment.start_offset, segment.topic, segment.partition
        log.log(level, text, *name, error, extra={"event": event})

    def _succeeded(self, call: str, key: tuple[Uuid, int]) -> None:
        if (call, key) in self._failing:
            self._failing.remove((call, key))
            if not self._failing:
                text = "copies to remote storage and deletions there do not fail any longer"
                log.info(text, extra={"event": "remote.returned"})

    # Deletion

    def _abandoned(self, key: tuple[Uuid, int], own: set[Uuid]) -> list[RemoteSegment]:
        """Return the entries whose copies have no end; this broker's own copies are those of own.

        Another broker that led the partition before may still copy, and deletes what it copied.
        """
        oldest_ms = self._loop.clock.now_ms() - ABANDONED_MS
        return [
            segment
            for segment in self._topic.table(key).segments()
            if segment.state is SegmentState.COPY_SEGMENT_STARTED
            and segment.segment_id not in own
            and (
                segment.broker_id == self._replicas.node_id
                or segment.event_timestamp_ms < oldest_ms
            )
        ]

    def _delete_orphans(self) -> Work[None]:
        """Delete segments of topics that are gone, where their leaders did not.

        The leader of the metadata does it, as the topic has no leader.
        """
        oldest_ms = self._loop.clock.now_ms() - ORPHAN_MS
        for key, table in self._topic.led_tables():
            if self._topic.is_of_topic(key):
                continue
            segments = table.segments()
            if all(segment.event_timestamp_ms < oldest_ms for segment in segments):
                text = "%d remote segments of %s-%d are deleted: the topic %s does not exist"
                name = segments[0].topic, key[1], key[0]
                log.info(text, len(segments), *name, extra={"event": "remote.orphans_deleted"})
                self._begin(self._delete_all(key), ("remote deletion", key))
            yield

    def _expire(self, replica: Partition, key: tuple[Uuid, int], led: _Leadership) -> Work[None]:
        """Delete abandoned and expired segments; the log's start moves before the latter.

        It is a work of its own: a copy may wait for its quota, or for a store that does not answer.
        """
        if not self._leads(replica, led):
            return
        for segment in self._abandoned(key, _own_copies(led)):
            if self._leads(replica, led) and segment.segment_id not in _own_copies(led):
                yield from self._delete(segment)
        partition_log, table, clock = replica.log, self._topic.table(key), self._loop.clock
        begin_ms = clock.monotonic_ms()
        # the last copy may be in the table before it is confirmed: it counts once
        position = LogPosition.of(partition_log, self._copied_offset(partition_log, key))
        config, now_ms = partition_log.config, clock.now_ms()
        expiry = expired_segments(table, position, config, now_ms, self._jumps.step)
        led.sizes.measure_expiry(partition_log, table, expiry)
        led.sizes.computation_ms = clock.monotonic_ms() - begin_ms
        partition_log.advance_start(expiry.start_offset)
        for segment in expiry.segments:
            if not self._leads(replica, led):
                return
            if segment.segment_id in _own_copies(led):
                continue
            if (yield from self._delete(segment)):
                led.sizes.segment_deleted(segment.size_bytes)

    def _delete_all(self, key: tuple[Uuid, int]) -> Work[None]:
        """Delete all segments of a partition: as Kafka, all are marked first."""
        segments = self._topic.table(key).segments()
        for segment in segments:
            yield from self._mark_deleted(segment)
        for segment in segments:
            yield from self._delete(replace(segment, state=SegmentState.DELETE_SEGMENT_STARTED))

    def _mark_deleted(self, segment: RemoteSegment) -> Work[None]:
        if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
            yield self._topic.write(self._update(segment, SegmentState.DELETE_SEGMENT_STARTED))

    def _delete(self, segment: RemoteSegment) -> Work[bool]:
        """Delete one segment; return whether it is gone: what fails is repeated in a later turn."""
        yield from self._mark_deleted(segment)
        counts = self.counts[segment.topic]
        counts.delete_count += 1
        try:
            name = f"the deletion of segment {segment.start_offset} of {segment.topic}"
            job = partial(self.storage.delete_segment, segment)
            yield self._run_job(self._expirers, job, f"{name}-{segment.partition}")
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
            counts.failed_delete_count += 1
            text = "segment %d of %s-%d is not deleted in remote storage: %s; it stays there"
            self._failed("deletions", segment, error, text, "remote.delete_failed")
            return False
        self._succeeded("deletions", (segment.topic_id, segment.partition))
        job = partial(self.index_cache.remove, [segment.segment_id])
        self._run_job(self._expirers, job, "the deletion of cached indexes")
        yield self._topic.write(self._update(segment, SegmentState.DELETE_SEGMENT_FINISHED))
        return True

    def _update(
        self, segment: RemoteSegment, state: SegmentState, custom: bytes | None = None
    ) -> SegmentUpdate:
        return SegmentUpdate(
            topic_id=segment.topic_id,
            topic=segment.topic,
            partition=segment.partition,
            segment_id=segment.segment_id,
            broker_id=self._replicas.node_id,
            event_timestamp_ms=self._loop.clock.now_ms(),
            state=state,
            custom_metadata=custom,
        )

    def _run_job(self, calls: RemoteCalls, job: Callable[[], T], name: str) -> Pending[T]:
        pending: Pending[T] = Pending()
        calls.run(job, pending.job_done, name)
        return pending


def _own_copies(led: _Leadership) -> set[Uuid]:
    """Return the ids of copies under way, the one whose end is not confirmed among them."""
    unconfirmed = None if led.unconfirmed is None else led.unconfirmed.segment_id
    return {one for one in (led.copying, unconfirmed) if one is not None}


def _last_in_lineage(
    partition_log: PartitionLog, offset_of_epoch: Callable[[int], int | None]
) -> int:
    """Return the offset of the newest epoch that has one, within what this log has of the epoch."""
    for epoch, _ in reversed(partition_log.leader_epochs.entries):
        offset = offset_of_epoch(epoch)
        if offset is not None:
            return min(offset, partition_log.epoch_end_offset(epoch).offset - 1)
    return NO_OFFSET

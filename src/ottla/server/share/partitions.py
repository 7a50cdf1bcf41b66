"""The share partitions of the partitions that this broker leads, and the sessions of members.

Kafka: kafka.server.share.{SharePartitionManager, SharePartitionCache};
SharePartition.startOffsetDuringInitialization, ShareGroupAutoOffsetResetStrategy,
ShareFetchUtils.offsetFor*.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.resources import ConfigResourceType
from ottla.metrics.samples import Recent
from ottla.purgatory.pending import Pending
from ottla.purgatory.purgatory import Purgatory
from ottla.replication.share import acknowledging
from ottla.replication.share.partition import Phase, SharePartition
from ottla.replication.share.session import (
    MemberKey,
    ShareSession,
    ShareSessionCache,
    TopicIdPartition,
)
from ottla.replication.share.states import ShareEnvironment, SharePartitionKey, ShareSettings
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.clock import Clock
    from ottla.coordinator.share.coordinator import ShareCoordinator
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.replication.share.acknowledging import Acknowledgement
    from ottla.replication.share.states import StateStore
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.share.delayed_fetch import DelayedShareFetch
    from ottla.types import Uuid

_DROPPED_AFTER: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_MEASURED_GROUPS: Final = 200


class SharePartitions:
    """Share partitions by key; a leader change ends them."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        replicas: ReplicaSet,
        coordinator: ShareCoordinator,
        store: StateStore,
        *,
        timer: TimingWheel,
        clock: Clock,
    ) -> None:
        self.coordinator = coordinator
        """Coordinates the states of share partitions whose leaders are any brokers."""
        self.load_times_ms = Recent()
        self.acknowledged: Counter[AcknowledgeType] = Counter()
        """Batches of acknowledgements, and single ones, by type."""
        self.fetch_ratios: dict[str, Recent] = {}
        """By group: percentage of the partitions of a fetch that had records."""
        self.acquire_times_ms: dict[str, Recent] = {}
        """By group: wait of fetches for records, in ms."""
        self._metadata = metadata
        self._replicas = replicas
        self._partitions: dict[SharePartitionKey, SharePartition] = {}
        self._keys_of: dict[TopicIdPartition, dict[SharePartitionKey, None]] = {}
        """By partition: a change of one leader must not look at all share partitions."""
        self._environment = ShareEnvironment(
            timer=timer,
            clock=clock,
            store=store,
            settings=self.settings,
            start_offset=lambda replica, settings: reset_offset(replica, settings, clock.now_ms()),
            log_end_offset=lambda replica: replica.log.log_end_offset,
            on_available=self._wake,
            on_loaded=self.load_times_ms.add,
        )
        self.sessions = ShareSessionCache(metadata.config.group_share_max_share_sessions)
        self.fetches: Purgatory[DelayedShareFetch] = Purgatory("ShareFetch", timer)
        self._waking: dict[SharePartitionKey, bool] = {}
        """Share partitions whose waiting fetches are checked now, and whether once more."""
        replicas.on_high_watermark(
            lambda replica: self.fetches.check_and_complete(_name_of(replica)),
            self.fetches.watchers,
        )

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(self._partitions.values())

    def topic_name(self, topic_id: Uuid) -> str:
        """Return a topic's name, empty for one that is gone."""
        return self._metadata.topic_name(topic_id) or ""

    def settings(self, group_id: str) -> ShareSettings:
        """Return a share group's settings in force: its own within limits, or the broker's."""
        config = self._metadata.config
        own = self._metadata.image.configs.of(ConfigResourceType.GROUP, group_id)

        def bounded(name: str, low: int, value: int, high: int) -> int:
            text = own.get(f"share.{name}")
            return value if text is None else max(low, min(int(text), high))

        return ShareSettings(
            record_lock_duration_ms=bounded(
                "record.lock.duration.ms",
                config.group_share_min_record_lock_duration_ms,
                config.group_share_record_lock_duration_ms,
                config.group_share_max_record_lock_duration_ms,
            ),
            delivery_count_limit=bounded(
                "delivery.count.limit",
                config.group_share_min_delivery_count_limit,
                config.group_share_delivery_count_limit,
                config.group_share_max_delivery_count_limit,
            ),
            partition_max_record_locks=bounded(
                "partition.max.record.locks",
                config.group_share_min_partition_max_record_locks,
                config.group_share_partition_max_record_locks,
                config.group_share_max_partition_max_record_locks,
            ),
            is_renew_enabled=own.get("share.renew.acknowledge.enable", "true").lower() == "true",
            is_committed_only=own.get("share.isolation.level") == "read_committed",
            auto_offset_reset=own.get("share.auto.offset.reset", "latest"),
        )

    # ---------------------------------------------------------------- share partitions

    def find(self, key: SharePartitionKey) -> SharePartition | None:
        """Return a share partition in use; None once its leader epoch is over."""
        found = self._partitions.get(key)
        if found is not None and not self._is_led(found):
            self.drop(found)
            return None
        return found

    def _is_led(self, one: SharePartition) -> bool:
        replica = one.replica
        return replica.is_leader and replica.leader_epoch == one.leader_epoch

    def open(self, key: SharePartitionKey) -> SharePartition:
        """Return a share partition, which begins to load where it was not in use.

        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        found = self.find(key)
        if found is not None:
            return found
        replica = self._replicas.by_topic_id.get(key.topic_id, {}).get(key.partition)
        if replica is None:
            name = self._metadata.topic_name(key.topic_id)
            is_known = name is not None and self._metadata.has_partition(name, key.partition)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else code)
        replica.check_leader()
        found = SharePartition(key, replica, replica.leader_epoch, self._environment)
        found.on_lock_expiry = acknowledging.expire_lock
        found.on_written = self._written
        self._partitions[key] = found
        self._keys_of.setdefault(_partition_of(key), {})[key] = None
        return found

    def fetched(self, group_id: str, ratio: float, waited_ms: int) -> None:
        """Record the percentage of its partitions of which a fetch got records, and its wait in ms.

        At most _MEASURED_GROUPS groups are measured: clients choose their names.
        """
        if group_id in self.fetch_ratios or len(self.fetch_ratios) < _MEASURED_GROUPS:
            self.fetch_ratios.setdefault(group_id, Recent()).add(ratio)
            self.acquire_times_ms.setdefault(group_id, Recent()).add(waited_ms)

    def failed(self, one: SharePartition, error: Exception | None) -> None:
        """Apply an error: after some errors the next fetch loads the share partition again."""
        if isinstance(error, KafkaError) and error.code in _DROPPED_AFTER:
            self.drop(one)

    def _written(self, one: SharePartition, error: Exception | None) -> None:
        """Apply the outcome of a write; what a group without sessions has written can end."""
        self.failed(one, error)
        if not one.writes_under_way and not self.sessions.has_group(one.key.group_id):
            self.drop(one)

    def drop(self, one: SharePartition) -> None:
        """End a share partition and answer the fetches that wait for it.

        A late answer to one that was ended before does not end the one that took its place: its
        members' locks would be gone.
        """
        key = one.key
        if self._partitions.get(key) is one:
            del self._partitions[key]
            partition = _partition_of(key)
            keys = self._keys_of[partition]
            del keys[key]
            if not keys:
                del self._keys_of[partition]
            one.fence()
            self._wake(key)

    def leader_changed(self, replica: Partition) -> None:
        """End the share partitions of a partition that has another leader, or is gone."""
        for key in list(self._keys_of.get(_name_of(replica), ())):
            if not self._is_led(self._partitions[key]):
                self.drop(self._partitions[key])

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """End all share partitions and sessions after a downgrade of share.version to 0."""
        if SHARE_VERSION not in delta.features_changed or image.features.level(SHARE_VERSION):
            return
        self.sessions.clear()
        for partition in list(self._partitions.values()):
            self.drop(partition)

    # ---------------------------------------------------------------- members

    def acknowledge(
        self, key: SharePartitionKey, member_id: str, batches: Sequence[Acknowledgement]
    ) -> Pending[None]:
        """Apply a member's acknowledgements; fails with KafkaError."""
        partition = self.find(key)
        if partition is None:
            return Pending.failed(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self.acknowledged.update(AcknowledgeType(kind) for batch in batches for kind in batch.types)
        done = acknowledging.acknowledge(partition, member_id, batches)
        done.on_done(lambda result: self.failed(partition, result.error))
        self._wake(key)
        return done

    def end_session(self, session: ShareSession) -> None:
        """Release the records that a member has acquired, and remove its session.

        A session whose member has begun another one has ended before: its late end is not that of
        the other, whose records it would give to other members.
        After the last session of a group here its share partitions end, once what they write is
        stored: an administrator may now reset the group's offsets, which they would not learn of.
        """
        if not self.sessions.is_current(session):
            return
        key = session.key
        self.sessions.remove(key)
        for partition in session.partitions:
            self._release(key, partition)
        if not self.sessions.has_group(key.group_id):
            for opened in [one for one in self if one.key.group_id == key.group_id]:
                if not opened.writes_under_way:
                    self.drop(opened)

    def _release(self, member: MemberKey, one: TopicIdPartition) -> None:
        key = SharePartitionKey(member.group_id, one.topic_id, one.partition)
        partition = self.find(key)
        if partition is not None and partition.phase is Phase.ACTIVE:
            acknowledging.release_member(partition, member.member_id)
            self._wake(key)

    def connection_closed(self, connection: object) -> None:
        """End the sessions of a connection."""
        for session in self.sessions.of_connection(connection):
            self.sessions.eviction_count += 1
            self.end_session(session)

    def stalls(self) -> Iterator[str]:
        """Yield what keeps share partitions and the fetches that wait for them from an end."""
        for one in self:
            for stall in one.stalls():
                yield f"{one.key}: {stall}"
        yield from self.fetches.stalls()

    # ---------------------------------------------------------------- waiting fetches

    def _wake(self, key: SharePartitionKey) -> None:
        """Check the waiting fetches; a change that one of them makes has them checked once more."""
        if key in self._waking:
            self._waking[key] = True
            return
        try:
            self._waking[key] = True
            while self._waking[key]:
                self._waking[key] = False
                self.fetches.check_and_complete(key)
        finally:
            del self._waking[key]


def _partition_of(key: SharePartitionKey) -> TopicIdPartition:
    return TopicIdPartition(key.topic_id, key.partition)


def _name_of(replica: Partition) -> TopicIdPartition:
    return TopicIdPartition(replica.topic_id, replica.topic_partition.partition)


_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"p(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:[.,]\d{0,9})?)s)?)?", re.IGNORECASE
)


def reset_offset(replica: Partition, settings: ShareSettings, now_ms: int) -> int:
    """Return the first offset to deliver; OFFSET_NOT_AVAILABLE without a record of that time."""
    replica.check_leader()
    log = replica.log
    strategy = settings.auto_offset_reset.lower()
    if strategy == "earliest":
        return log.log_start_offset
    if not strategy.startswith(_BY_DURATION):
        return log.high_watermark
    timestamp = now_ms - _duration_ms(strategy.removeprefix(_BY_DURATION))
    found = log.reads.offset_for_timestamp(max(0, timestamp))
    if found is None or found.offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"Offset for timestamp {timestamp} not found for topic partition: "
            f"{replica.topic_partition}",
        )
    return found.offset


def _duration_ms(text: str) -> int:
    """Return the milliseconds of a checked ISO 8601 duration without signs; 0 for another."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return 0
    days, hours, minutes = (int(match[group] or 0) for group in (1, 2, 3))
    seconds = float((match[4] or "0").replace(",", "."))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(seconds * 1000)

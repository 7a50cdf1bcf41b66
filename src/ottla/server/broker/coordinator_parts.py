"""The coordinators of a broker: their logs, settings, and how the other parts reach them.

Kafka: BrokerServer, GroupCoordinatorConfig, TransactionCoordinator.apply;
org.apache.kafka.coordinator.common.runtime.PartitionWriter, CoordinatorPartitionWriter; the parts
of BrokerMetadataPublisher and KafkaApis.getCoordinator that name topics.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from ottla.coordinator.group.context import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    GroupDependencies,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.coordinator.share.shard import ShareCoordinatorConfig
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.decisions import ProducerKey
from ottla.coordinator.transaction.shard import TransactionCoordinatorConfig
from ottla.coordinator.transaction.state import EPOCH_BUMP_VERSION
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.metadata.features import OTTLA_VERSION, TRANSACTION_VERSION
from ottla.metadata.resources import ConfigResourceType
from ottla.purgatory.pending import Pending
from ottla.records.batch import NO_SEQUENCE
from ottla.records.validator import AppendOrigin
from ottla.server.broker.broker_channel import BrokerChannel
from ottla.server.broker.topic_auto_creation import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicAutoCreation,
)
from ottla.server.broker.transaction_verification import TransactionVerification
from ottla.server.share.partitions import SharePartitions
from ottla.server.share.persister import StatePersister
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.producers.append import TRANSACTION_VERSION_UNKNOWN, TransactionAppend
from ottla.types import FileSlice, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.runtime.log import TransactionSupport
    from ottla.network.node_channel import NodeChannel
    from ottla.purgatory.loop import Loop
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.broker.transaction_partitions import ProducerIdManager
    from ottla.server.controller.channel import ControllerChannel
    from ottla.storage.producers.append import Verification
    from ottla.types import Buffer

_MINUTE_MS = 60_000
MAX_INT = 2**31 - 1
T = TypeVar("T")


class CoordinatorParts(NamedTuple):
    """The coordinators and what they share."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share: SharePartitions
    registry: Coordinators
    verification: TransactionVerification
    channel: BrokerChannel


def make_coordinators(
    metadata: BrokerMetadata,
    replicas: ReplicaSet,
    nodes: NodeChannel,
    producer_ids: ProducerIdManager,
    controller: ControllerChannel,
    *,
    loop: Loop,
    new_uuid: Callable[[], Uuid],
) -> CoordinatorParts:
    """Return the coordinators of a broker; they lead nothing yet."""
    config, timer, clock = metadata.config, loop.timer, loop.clock
    channel = BrokerChannel(metadata, nodes)
    verification = TransactionVerification(
        channel,
        lambda name: registry.partition_of_transaction(name),  # noqa: PLW0108 - made below
        loop,
        lambda: metadata.config,
    )
    share = ShareCoordinator(
        share_coordinator_config(config),
        log=TopicLog(SHARE_STATE_TOPIC, replicas, clock, verification),
        loop=loop,
        has_partition=partial(_has_partition, metadata),
        delete_before=partial(_delete_before, replicas),
        partition_count=partial(metadata.partition_count, SHARE_STATE_TOPIC),
        on_fault=log_fault,
    )
    create = TopicAutoCreation(metadata, controller).create
    persister = StatePersister(
        channel, timer, clock, share.partition_for, partial(create, [SHARE_STATE_TOPIC])
    )
    persister.serve_locally(share)
    groups = GroupCoordinator(
        group_coordinator_config(config),
        log=TopicLog(OFFSETS_TOPIC, replicas, clock, verification),
        loop=loop,
        dependencies=GroupDependencies(
            metadata,
            GroupSettings(metadata, consumer_group_config),
            lambda: str(Uuid.drawn(new_uuid)),
            GroupSettings(metadata, streams_group_config),
            GroupSettings(metadata, share_group_config),
        ),
        persister=persister,
        new_uuid=lambda: _java_text(new_uuid()),
        on_fault=log_fault,
        offsets_partitions=partial(metadata.partition_count, OFFSETS_TOPIC),
    )
    persister.leads = groups.leads
    transactions = TransactionCoordinator(
        transaction_coordinator_config(config),
        log=TopicLog(TRANSACTION_STATE_TOPIC, replicas, clock, verification),
        loop=loop,
        channel=channel,
        new_producer_id=producer_ids.next_id,
        transaction_version=lambda: metadata.image.features.level(TRANSACTION_VERSION),
        may_take_over=partial(_may_take_over, metadata),
        partition_count=partial(metadata.partition_count, TRANSACTION_STATE_TOPIC),
        on_fault=log_fault,
    )
    registry = Coordinators(
        {
            OFFSETS_TOPIC: groups,
            TRANSACTION_STATE_TOPIC: transactions,
            SHARE_STATE_TOPIC: share,
        }
    )
    partitions = SharePartitions(metadata, replicas, share, persister, timer=timer, clock=clock)
    return CoordinatorParts(groups, transactions, partitions, registry, verification, channel)


def _has_partition(metadata: BrokerMetadata, topic_id: Uuid, partition: int) -> bool:
    name = metadata.topic_name(topic_id)
    return name is not None and metadata.has_partition(name, partition)


def _delete_before(replicas: ReplicaSet, partition: int, offset: int) -> None:
    """Delete the records of a led partition of the share state topic below an offset."""
    replica = replicas.find(SHARE_STATE_TOPIC, partition)
    if replica is not None and replica.is_leader and offset <= replica.log.high_watermark:
        replica.log.truncation.delete_records_before(offset)


def _may_take_over(metadata: BrokerMetadata) -> bool:
    """Whether transactions can be taken over (KIP-939): Kafka 4.3 forgets the second epoch."""
    image = metadata.image
    has_epochs = image.features.level(TRANSACTION_VERSION) >= EPOCH_BUMP_VERSION
    return has_epochs and all(
        OTTLA_VERSION in broker.features for broker in image.cluster.brokers.values()
    )


def group_coordinator_config(config: BrokerConfig) -> GroupCoordinatorConfig:
    """Return the settings of the group coordinator."""
    return GroupCoordinatorConfig(
        offsets_topic_num_partitions=config.offsets_topic_num_partitions,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offset_commit_timeout_ms=config.offsets_commit_timeout_ms,
        load_buffer_bytes=config.offsets_load_buffer_size,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_consumer_migration_policy=config.group_consumer_migration_policy,
    )


class GroupSettings(Generic[T]):
    """The settings of each group of a kind; of all without their own they are made once.

    A heartbeat reads them several times.
    """

    def __init__(
        self, metadata: BrokerMetadata, make: Callable[[BrokerConfig, Mapping[str, str]], T]
    ) -> None:
        """Take what makes them of the broker's settings and the group's own."""
        self._metadata = metadata
        self._make = make
        self._config = metadata.config
        self._shared = make(self._config, {})

    def __call__(self, group_id: str) -> T:
        """Return the settings in force of a group."""
        config = self._metadata.config
        if own := self._metadata.image.configs.of(ConfigResourceType.GROUP, group_id):
            return self._make(config, own)
        if config is not self._config:
            self._config, self._shared = config, self._make(config, {})
        return self._shared


_INTERVALS: Final = {
    kind: [
        (
            name,
            f"{kind}.{name.replace('_', '.')}",
            *(f"group_{kind}_{limit}{name}" for limit in ("min_", "", "max_")),
        )
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
    ]
    for kind in ("consumer", "streams", "share")
}
"""By kind of group: an interval, its setting of groups, and the broker's least, usual, greatest."""


def _within(text: str | None, low: int, value: int, high: int) -> int:
    return value if text is None else max(low, min(int(text), high))


def _intervals(config: BrokerConfig, own: Mapping[str, str], kind: str) -> dict[str, Any]:
    """Return a group's intervals: its own within limits, or else the broker's."""
    return {
        name: _within(own.get(key), *(getattr(config, setting) for setting in settings))
        for name, key, *settings in _INTERVALS[kind]
    }


def consumer_group_config(config: BrokerConfig, own: Mapping[str, str]) -> ConsumerGroupConfig:
    """Return the settings of a consumer group."""
    return ConsumerGroupConfig(
        assignors=tuple(config.group_consumer_assignors),
        max_size=config.group_consumer_max_size,
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        **_intervals(config, own, "consumer"),
    )


def streams_group_config(config: BrokerConfig, own: Mapping[str, str]) -> StreamsGroupConfig:
    """Return the settings of a streams group."""
    delay, standby = "streams.initial.rebalance.delay.ms", "streams.num.standby.replicas"
    return StreamsGroupConfig(
        max_size=config.group_streams_max_size,
        initial_rebalance_delay_ms=_within(
            own.get(delay), 0, config.group_streams_initial_rebalance_delay_ms, MAX_INT
        ),
        standby_replicas=_within(
            own.get(standby),
            0,
            config.group_streams_num_standby_replicas,
            config.group_streams_max_standby_replicas,
        ),
        **_intervals(config, own, "streams"),
    )


def share_group_config(config: BrokerConfig, own: Mapping[str, str]) -> ShareGroupConfig:
    """Return the settings of a share group."""
    return ShareGroupConfig(
        max_size=config.group_share_max_size,
        initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
        **_intervals(config, own, "share"),
    )


def share_coordinator_config(config: BrokerConfig) -> ShareCoordinatorConfig:
    """Return the settings of the share coordinator."""
    return ShareCoordinatorConfig(
        num_partitions=config.share_coordinator_state_topic_num_partitions,
        updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
        write_timeout_ms=config.share_coordinator_write_timeout_ms,
        cold_snapshot_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
        load_buffer_bytes=config.share_coordinator_load_buffer_size,
        prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
    )


def transaction_coordinator_config(config: BrokerConfig) -> TransactionCoordinatorConfig:
    """Return the settings of the transaction coordinator."""
    return TransactionCoordinatorConfig(
        num_partitions=config.transaction_state_log_num_partitions,
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expire_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        write_timeout_ms=config.request_timeout_ms,
        load_buffer_bytes=config.transaction_state_log_load_buffer_size,
        two_phase_commit=config.transaction_two_phase_commit_enable,
    )


def _java_text(value: Uuid) -> str:
    """Write an id as java.util.UUID does: 8-4-4-4-12 hexadecimal digits."""
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


log = logging.getLogger("ottla.node")
_ACKS_ALL = -1


class TopicLog:
    """Implements coordinator.runtime.CoordinatorLog over the partitions of one topic."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaSet,
        clock: Clock,
        verification: TransactionVerification,
    ) -> None:
        self._topic = topic
        self._verification = verification
        self._replicas = replicas
        self._clock = clock

    def _partition(self, partition: int) -> Partition:
        found = self._replicas.find(self._topic, partition)
        if found is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return found

    def append(
        self,
        partition: int,
        batch: bytearray,
        leader_epoch: int,
        *,
        verification: object = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> int:
        """Append as the leader of this epoch; return the offset behind the batch."""
        replica = self._partition(partition)
        replica.check_leader(leader_epoch)
        version = transaction_version
        appended = self._replicas.append(
            replica,
            memoryview(batch),
            required_acks=_ACKS_ALL,
            now_ms=self._clock.now_ms(),
            origin=AppendOrigin.COORDINATOR,
            transaction=TransactionAppend(cast("Verification | None", verification), version),
        )
        return appended.info.last_offset + 1

    def verify_transaction(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        support: TransactionSupport,
    ) -> Pending[object]:
        """Return the verification to append a transaction's batch with."""
        producer = ProducerKey(producer_id, producer_epoch)
        try:
            verified = self._verification.begin(
                self._partition(partition), transactional_id, producer, NO_SEQUENCE, support
            )
        except KafkaError as error:
            return Pending.failed(error)
        if verified is None:
            return Pending.of(None)
        self._verification.send()
        return cast("Pending[object]", verified)

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Return batches from offset on, the last one cut after max_bytes."""
        log = self._partition(partition).log
        records = log.reads.read(
            offset, max_bytes, isolation=FetchIsolation.LOG_END, min_one_message=True
        ).records
        return records.read() if isinstance(records, FileSlice) else records

    def max_batch_bytes(self, partition: int) -> int:
        """Return the topic's max.message.bytes, or the size of its segments if that is less."""
        config = self._partition(partition).log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def start_offset(self, partition: int) -> int:
        """Return the log start offset."""
        return self._partition(partition).log.log_start_offset

    def end_offset(self, partition: int) -> int:
        """Return the log end offset."""
        return self._partition(partition).log.log_end_offset

    def high_watermark(self, partition: int) -> int:
        """Return the high watermark."""
        return self._partition(partition).log.high_watermark

    def first_unstable_offset(self, partition: int) -> int:
        """Return where the first open transaction begins; the log end offset without one."""
        log = self._partition(partition).log
        unstable = log.first_unstable_offset
        return log.log_end_offset if unstable is None else unstable


def log_fault(error: Exception) -> None:
    """Report what a coordinator did not expect."""
    if isinstance(error, CorruptMessage):
        text = "%s: its groups are not served: %s; stop the node and run ottla log-repair"
        log.error(text, OFFSETS_TOPIC, error.message, extra={"event": "partition.broken"})
        return
    text = "coordinator fault: a group's request failed; report this traceback as a bug of Ottla"
    log.error(text, exc_info=error, extra={"event": "coordinator.fault"})


GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2
KEY_TYPES: Final = {
    GROUP_KEY: OFFSETS_TOPIC,
    TRANSACTION_KEY: TRANSACTION_STATE_TOPIC,
    SHARE_KEY: SHARE_STATE_TOPIC,
}
"""The topics by FindCoordinator's key types."""


class Coordinator(Protocol):
    """What the registry needs of a coordinator; partitions are those of its internal topic."""

    def partition_for(self, key: str) -> int:
        """Return the partition that owns a group, a transactional id or a share partition."""

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition of which this node became the leader."""

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload a partition that another node leads, or that was deleted (without an epoch)."""

    def on_high_watermark(self, partition: int, offset: int) -> None:
        """Complete operations up to a committed offset."""

    def on_topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Forget what belongs to deleted topics, given by name and id."""

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Apply that topics are new, deleted, or have other partitions or racks."""

    def close(self) -> None:
        """Unload all partitions; pending responses fail with NOT_COORDINATOR."""


class FoundCoordinator(NamedTuple):
    """The coordinator of a key type and its topic."""

    topic: str
    coordinator: Coordinator


class Coordinators:
    """Passes events of partitions of internal topics on to their coordinators."""

    def __init__(self, by_topic: Mapping[str, Coordinator]) -> None:
        self._by_topic = dict(by_topic)

    def of_key_type(self, key_type: int) -> FoundCoordinator | None:
        """Return the coordinator for FindCoordinator's key type; None for one not served."""
        topic = KEY_TYPES.get(key_type)
        coordinator = None if topic is None else self._by_topic.get(topic)
        if topic is None or coordinator is None:
            return None
        return FoundCoordinator(topic, coordinator)

    def partition_of_group(self, group_id: str) -> TopicPartition:
        """Return the partition that holds a group's offsets."""
        topic = KEY_TYPES[GROUP_KEY]
        return TopicPartition(topic, self._by_topic[topic].partition_for(group_id))

    def partition_of_transaction(self, transactional_id: str) -> TopicPartition:
        """Return the partition that holds the state of a transactional id."""
        topic = KEY_TYPES[TRANSACTION_KEY]
        return TopicPartition(topic, self._by_topic[topic].partition_for(transactional_id))

    def commit_listener(self, topic: str) -> Callable[[Partition], None] | None:
        """Return the listener of a partition's high watermark; None for users' topics."""
        coordinator = self._by_topic.get(topic)
        if coordinator is None:
            return None
        committed = coordinator.on_high_watermark
        return lambda partition: committed(
            partition.topic_partition.partition, partition.log.high_watermark
        )

    def elected(self, partition: Partition) -> None:
        """Load the shard of a partition that this node leads."""
        topic, index = partition.topic_partition
        coordinator = self._by_topic.get(topic)
        if coordinator is not None:
            coordinator.on_elected(index, partition.leader_epoch)

    def resigned(self, topic: str, index: int, leader_epoch: int | None = None) -> None:
        """Unload the shard of a partition led elsewhere since leader_epoch, or removed."""
        coordinator = self._by_topic.get(topic)
        if coordinator is not None:
            coordinator.on_resigned(index, leader_epoch)

    def topic_deleted(self, name: str, topic_id: Uuid) -> None:
        """Notify the other coordinators of a deleted topic; its own shards end with their logs."""
        for topic, coordinator in self._by_topic.items():
            if topic != name:
                coordinator.on_topics_deleted([(name, topic_id)])

    def topics_changed(self, names: Iterable[str]) -> None:
        """Notify the coordinators of topics that are new, deleted, or have other partitions."""
        changed = tuple(names)
        for coordinator in self._by_topic.values():
            coordinator.on_topics_changed(changed)

    def close(self) -> None:
        """Unload all shards."""
        for coordinator in self._by_topic.values():
            coordinator.close()

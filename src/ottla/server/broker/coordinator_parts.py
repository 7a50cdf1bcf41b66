"""The coordinators of a broker, their settings, and what connects them to its other parts.

Kafka: BrokerServer, GroupCoordinatorConfig, TransactionCoordinator.apply.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

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
from ottla.server.broker.coordinators import Coordinators
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
from ottla.types import FileSlice, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        timer,
        clock,
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
        OTTLA_VERSION in one.features for one in image.cluster.brokers.values()
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


def consumer_group_config(config: BrokerConfig, own: Mapping[str, str]) -> ConsumerGroupConfig:
    """Return the settings of a consumer group: its own within limits, or else the broker's."""

    def bounded(name: str, low: int, value: int, high: int) -> int:
        """Return the group's setting within the broker's limits."""
        text = own.get(f"consumer.{name}")
        return value if text is None else max(low, min(int(text), high))

    return ConsumerGroupConfig(
        assignors=tuple(config.group_consumer_assignors),
        max_size=config.group_consumer_max_size,
        session_timeout_ms=bounded(
            "session.timeout.ms",
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
        heartbeat_interval_ms=bounded(
            "heartbeat.interval.ms",
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
        assignment_interval_ms=bounded(
            "assignment.interval.ms",
            config.group_consumer_min_assignment_interval_ms,
            config.group_consumer_assignment_interval_ms,
            config.group_consumer_max_assignment_interval_ms,
        ),
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
    )


def streams_group_config(config: BrokerConfig, own: Mapping[str, str]) -> StreamsGroupConfig:
    """Return the settings of a streams group: its own within limits, or else the broker's."""

    def bounded(name: str, low: int, value: int, high: int) -> int:
        text = own.get(f"streams.{name}")
        return value if text is None else max(low, min(int(text), high))

    return StreamsGroupConfig(
        max_size=config.group_streams_max_size,
        session_timeout_ms=bounded(
            "session.timeout.ms",
            config.group_streams_min_session_timeout_ms,
            config.group_streams_session_timeout_ms,
            config.group_streams_max_session_timeout_ms,
        ),
        heartbeat_interval_ms=bounded(
            "heartbeat.interval.ms",
            config.group_streams_min_heartbeat_interval_ms,
            config.group_streams_heartbeat_interval_ms,
            config.group_streams_max_heartbeat_interval_ms,
        ),
        assignment_interval_ms=bounded(
            "assignment.interval.ms",
            config.group_streams_min_assignment_interval_ms,
            config.group_streams_assignment_interval_ms,
            config.group_streams_max_assignment_interval_ms,
        ),
        initial_rebalance_delay_ms=bounded(
            "initial.rebalance.delay.ms",
            0,
            config.group_streams_initial_rebalance_delay_ms,
            MAX_INT,
        ),
        standby_replicas=bounded(
            "num.standby.replicas",
            0,
            config.group_streams_num_standby_replicas,
            config.group_streams_max_standby_replicas,
        ),
    )


def share_group_config(config: BrokerConfig, own: Mapping[str, str]) -> ShareGroupConfig:
    """Return the settings of a share group: its own within limits, or else the broker's."""

    def bounded(name: str, low: int, value: int, high: int) -> int:
        """Return the group's setting within the broker's limits."""
        text = own.get(f"share.{name}")
        return value if text is None else max(low, min(int(text), high))

    return ShareGroupConfig(
        max_size=config.group_share_max_size,
        session_timeout_ms=bounded(
            "session.timeout.ms",
            config.group_share_min_session_timeout_ms,
            config.group_share_session_timeout_ms,
            config.group_share_max_session_timeout_ms,
        ),
        heartbeat_interval_ms=bounded(
            "heartbeat.interval.ms",
            config.group_share_min_heartbeat_interval_ms,
            config.group_share_heartbeat_interval_ms,
            config.group_share_max_heartbeat_interval_ms,
        ),
        assignment_interval_ms=bounded(
            "assignment.interval.ms",
            config.group_share_min_assignment_interval_ms,
            config.group_share_assignment_interval_ms,
            config.group_share_max_assignment_interval_ms,
        ),
        initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
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

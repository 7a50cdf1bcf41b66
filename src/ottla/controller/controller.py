"""The controller's shard: operations read the newest state, only replay changes it.

Kafka: org.apache.kafka.controller.QuorumController without its threads and its log.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ottla.controller.acls import AclControl
from ottla.controller.cluster import ClusterControl, ProducerIdControl
from ottla.controller.configs import ConfigControl
from ottla.controller.delegation_tokens import DelegationTokenControl, ScramControl
from ottla.controller.features import FeatureControl
from ottla.controller.heartbeats import BrokerHeartbeatState, HeartbeatOptions
from ottla.controller.partitions.alter_partition import AlterPartition, assign_replicas
from ottla.controller.partitions.leadership import LeaderElections, Leadership
from ottla.controller.partitions.reassignments import Reassignments
from ottla.controller.policies import NO_POLICIES
from ottla.controller.quotas import QuotaControl
from ottla.controller.result import ControllerResult, in_one_turn
from ottla.controller.topic_changes import TopicCreation, delete_topics
from ottla.controller.topics import Topics
from ottla.errors import ErrorCode, KafkaError, UnsupportedVersion
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatResponse
from ottla.protocol.apis.broker_registration import BrokerRegistrationResponse
from ottla.protocol.apis.unregister_broker import UnregisterBrokerResponse
from ottla.protocol.records import metadata as kinds
from ottla.timeline import SnapshotRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from ottla.config.broker import BrokerConfig
    from ottla.controller.config_operations import BrokerRefusal
    from ottla.controller.features import RaiseKRaftVersion
    from ottla.controller.policies import Policies
    from ottla.controller.result import RecordPermits, Slices
    from ottla.metadata.broker import BrokerRegistration, SupportedLevels
    from ottla.protocol.apis.allocate_producer_ids import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )
    from ottla.protocol.apis.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
    from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
    from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
    from ottla.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
    from ottla.protocol.schema import Struct
    from ottla.types import Uuid


_DIRECTORIES_FROM = 1
"""The version of partition records from which they have directories."""
_CORDONS_FROM = 30
"""The level of metadata.version from which brokers have cordoned log directories (KIP-1066)."""


class Controller:
    """One attribute a concern; their operations are called directly."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        cluster_id: str,
        rng: Random,
        supported_features: Mapping[str, SupportedLevels],
        kraft_version: Callable[[], int],
        raise_kraft_version: RaiseKRaftVersion,
        policies: Policies = NO_POLICIES,
        broker_refusal: BrokerRefusal | None = None,
    ) -> None:
        self.registry = SnapshotRegistry()
        self._config = config
        self.features = FeatureControl(
            self.registry,
            node_id=config.node_id,
            supported=supported_features,
            kraft_version=kraft_version,
            raise_kraft_version=raise_kraft_version,
        )
        self.cluster = ClusterControl(
            self.registry,
            cluster_id=cluster_id,
            features=self.features,
            session_timeout_ms=config.broker_session_timeout_ms,
        )
        self.topics = Topics(self.registry)
        self.configs = ConfigControl(
            self.registry,
            config=config,
            features=self.features,
            policies=policies,
            check_exists=self._check_resource,
            broker_refusal=broker_refusal,
        )
        self.creation = TopicCreation(
            self.topics,
            cluster=self.cluster,
            configs=self.configs,
            features=self.features,
            config=config,
            rng=rng,
            policies=policies,
        )
        self.leadership = Leadership(
            self.topics, cluster=self.cluster, configs=self.configs, features=self.features
        )
        self.elections = LeaderElections(self.topics, self.leadership)
        self.reassignments = Reassignments(self.topics, self.leadership, cluster=self.cluster)
        self.alter_partition = AlterPartition(self.topics, self.leadership, cluster=self.cluster)
        self.producer_ids = ProducerIdControl(self.registry)
        self.quotas = QuotaControl(self.registry)
        self.scram = ScramControl(self.registry, self.features)
        self.acls = AclControl(self.registry, rng)
        self.tokens = DelegationTokenControl(self.registry, self.features, config, rng)
        self.in_transaction = False
        self._transaction_epoch = -1
        self._handlers = self._table()

    # Replay

    def _table(self) -> dict[int, Callable[[Any, int], None]]:
        without_offset: dict[type[Struct], Callable[[Any], None]] = {
            kinds.UnregisterBrokerRecord: self.cluster.replay_unregister_broker,
            kinds.TopicRecord: self.topics.replay_topic,
            kinds.PartitionRecord: self.topics.replay_partition,
            kinds.ConfigRecord: self.configs.replay_config,
            kinds.PartitionChangeRecord: self.topics.replay_partition_change,
            kinds.FenceBrokerRecord: self.cluster.replay_fence,
            kinds.UnfenceBrokerRecord: self.cluster.replay_unfence,
            kinds.RemoveTopicRecord: self._replay_remove_topic,
            kinds.FeatureLevelRecord: self.features.replay_feature_level,
            kinds.ClientQuotaRecord: self.quotas.replay_client_quota,
            kinds.AccessControlEntryRecord: self.acls.replay_entry,
            kinds.RemoveAccessControlEntryRecord: self.acls.replay_remove,
            kinds.UserScramCredentialRecord: self.scram.replay_credential,
            kinds.RemoveUserScramCredentialRecord: self.scram.replay_remove,
            kinds.DelegationTokenRecord: self.tokens.replay_token,
            kinds.RemoveDelegationTokenRecord: self.tokens.replay_remove,
            kinds.ProducerIdsRecord: self.producer_ids.replay_producer_ids,
            kinds.BrokerRegistrationChangeRecord: self.cluster.replay_change,
            kinds.RegisterControllerRecord: self.cluster.replay_register_controller,
            kinds.ClearElrRecord: self.topics.replay_clear_elr,
        }
        only_in_the_image = (
            kinds.NoOpRecord,
            kinds.ZkMigrationStateRecord,
        )
        handlers: dict[int, Callable[[Any, int], None]] = {
            kind.message_key: _without_offset(handler) for kind, handler in without_offset.items()
        }
        handlers.update({kind.message_key: _ignore for kind in only_in_the_image})
        handlers[kinds.RegisterBrokerRecord.message_key] = self.cluster.replay_register_broker
        handlers[kinds.BeginTransactionRecord.message_key] = self._begin_transaction
        handlers[kinds.EndTransactionRecord.message_key] = self._end_transaction
        handlers[kinds.AbortTransactionRecord.message_key] = self._abort_transaction
        return handlers

    def replay(self, record: MessageAndVersion, offset: int) -> None:
        """Apply a record to the state; UnsupportedVersion for an unknown kind."""
        handler = self._handlers.get(record.message.message_key)
        if handler is None:
            raise UnsupportedVersion(f"Unknown record type {type(record.message).__name__}")
        handler(record.message, offset)

    def _replay_remove_topic(self, record: kinds.RemoveTopicRecord) -> None:
        self.configs.topic_removed(self.topics.replay_remove_topic(record))

    def _begin_transaction(self, _record: kinds.BeginTransactionRecord, offset: int) -> None:
        self.in_transaction = True
        self._transaction_epoch = offset
        self.registry.snapshot(offset)

    def _end_transaction(self, _record: kinds.EndTransactionRecord, _offset: int) -> None:
        self.in_transaction = False

    def _abort_transaction(self, _record: kinds.AbortTransactionRecord, _offset: int) -> None:
        self.registry.revert_to(self._transaction_epoch)
        self.in_transaction = False

    # Operations on several concerns

    def delete_topics(
        self, request: DeleteTopicsRequest, record_permits: RecordPermits | None
    ) -> ControllerResult[DeleteTopicsResponse]:
        """Delete topics; `record_permits` is called with the partitions of each."""
        enabled = self._config.delete_topic_enable
        return delete_topics(request, self.topics, enabled=enabled, record_permits=record_permits)

    def register_broker(
        self, request: BrokerRegistrationRequest, *, next_offset: Callable[[], int], now_ms: int
    ) -> Slices[ControllerResult[BrokerRegistrationResponse]]:
        """Register a broker; its previous incarnation leaves its leaderships first."""
        self.cluster.check_registration(request, now_ms)
        broker_id = request.broker_id
        existing: BrokerRegistration | None = self.cluster.brokers.get(broker_id)
        records: list[MessageAndVersion] = []
        returned: list[Uuid] = []
        if existing is not None and existing.incarnation_id == request.incarnation_id:
            epoch = existing.broker_epoch
            known = existing.log_directories
            returned = [found for found in request.log_dirs if found not in known]
            if returned:
                records = yield from self.leadership.directories_unclean(broker_id, returned)
        else:  # an unregistered broker, too, may be an eligible leader
            previous = request.previous_broker_epoch
            is_clean = existing is not None and existing.broker_epoch == previous
            records = yield from self.leadership.shut_down(broker_id, clean=is_clean)
            self.cluster.heartbeats.registered(broker_id, now_ms)
            self.leadership.lost_brokers.discard(broker_id)
            epoch = next_offset()
        records.append(self.cluster.registration_record(request, epoch))
        if returned:
            yield records
            records = yield from self.leadership.directories_returned()
        response = BrokerRegistrationResponse(broker_epoch=epoch)
        return ControllerResult(records, response, is_atomic=False)

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, *, next_offset: Callable[[], int], now_ms: int
    ) -> (
        ControllerResult[BrokerHeartbeatResponse]
        | Slices[ControllerResult[BrokerHeartbeatResponse]]
    ):
        """Process a heartbeat; KafkaError STALE_BROKER_EPOCH for another epoch.

        One that changes nothing is answered at once, also while a sliced decision is in progress.
        """
        cluster, broker_id = self.cluster, request.broker_id
        broker = cluster.check_epoch(broker_id, request.broker_epoch)
        cluster.heartbeats.touch(broker_id, request.current_metadata_offset, now_ms)
        slices = self._change_by_heartbeat(request, next_offset)
        state = self._next_state(broker, request)
        if _is_transition(cluster.state_of(broker), state) or self._changes_directories(
            broker, request
        ):
            return slices
        return in_one_turn(slices)

    def _change_by_heartbeat(
        self, request: BrokerHeartbeatRequest, next_offset: Callable[[], int]
    ) -> Slices[ControllerResult[BrokerHeartbeatResponse]]:
        cluster, broker_id = self.cluster, request.broker_id
        broker = cluster.check_epoch(broker_id, request.broker_epoch)
        state = self._next_state(broker, request)
        records = yield from self._transition(broker, cluster.state_of(broker), state)
        if self._changes_directories(broker, request):
            records += yield from self._directory_changes(broker, request)
        if state is BrokerHeartbeatState.CONTROLLED_SHUTDOWN and not cluster.is_leaving(broker_id):
            last_offset = next_offset() + len(records) - 1
            cluster.heartbeats.begin_controlled_shutdown(broker_id, last_offset)
        if state is BrokerHeartbeatState.SHUTDOWN_NOW:
            cluster.heartbeats.end_session(broker_id)
        is_caught_up = request.current_metadata_offset >= cluster.registration_offset(broker_id)
        response = BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=state.is_fenced,
            should_shut_down=state is BrokerHeartbeatState.SHUTDOWN_NOW,
        )
        return ControllerResult(records, response, is_atomic=False)

    def _next_state(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest
    ) -> BrokerHeartbeatState:
        cluster, broker_id = self.cluster, broker.broker_id
        return cluster.heartbeats.next_state(
            broker_id,
            cluster.state_of(broker),
            HeartbeatOptions(
                request.current_metadata_offset, request.want_fence, request.want_shut_down
            ),
            registration_offset=cluster.registration_offset(broker_id),
            leads_partitions=self.topics.index.leads(broker_id),
            active=cluster.active_ids(),
        )

    def _transition(
        self, broker: BrokerRegistration, current: BrokerHeartbeatState, state: BrokerHeartbeatState
    ) -> Slices[list[MessageAndVersion]]:
        broker_id, epoch = broker.broker_id, broker.broker_epoch
        if not _is_transition(current, state):
            return []
        if state.is_fenced:
            return (yield from self.leadership.fenced(broker_id, epoch))
        if state is BrokerHeartbeatState.UNFENCED:
            return (yield from self.leadership.unfenced(broker_id, epoch))
        return (yield from self.leadership.in_controlled_shutdown(broker_id, epoch))

    def _changes_directories(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest
    ) -> bool:
        """Whether the broker reports offline or other cordoned log directories."""
        return self._changes_cordons(broker, request) or bool(
            request.offline_log_dirs
            and self.features.partition_version >= _DIRECTORIES_FROM
            and any(lost in broker.log_directories for lost in request.offline_log_dirs)
        )

    def _changes_cordons(self, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> bool:
        cordoned = request.cordoned_log_dirs
        return (
            cordoned is not None
            and self.features.metadata_version >= _CORDONS_FROM
            and tuple(cordoned) != broker.cordoned_log_directories
        )

    def _directory_changes(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest
    ) -> Slices[list[MessageAndVersion]]:
        records: list[MessageAndVersion] = []
        broker_id, epoch = broker.broker_id, broker.broker_epoch
        if request.offline_log_dirs and self.features.partition_version >= _DIRECTORIES_FROM:
            lost = tuple(request.offline_log_dirs)
            records = yield from self.leadership.directories_lost(broker_id, epoch, lost)
        if self._changes_cordons(broker, request):
            record = kinds.BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=epoch,
                cordoned_log_dirs=list(request.cordoned_log_dirs or ()),
            )
            records.append(MessageAndVersion(record, 3))
        return records

    def fence_stale_broker(self, broker_id: int, now_ms: int) -> Slices[ControllerResult[None]]:
        """Fence a broker unless it has a session again."""
        cluster = self.cluster
        if broker_id not in cluster.heartbeats.stale(cluster.unfenced_ids(), now_ms):
            return ControllerResult([], None)
        epoch = cluster.brokers[broker_id].broker_epoch
        records = yield from self.leadership.fenced(broker_id, epoch)
        return ControllerResult(records, None, is_atomic=False)

    def fence_lost_broker(
        self, broker_id: int, broker_epoch: int
    ) -> Slices[ControllerResult[None]]:
        """Fence a broker whose process has ended, before its session expires.

        It joins `Leadership.lost_brokers` until its session would expire. Its next incarnation may
        register at once.
        """
        broker: BrokerRegistration | None = self.cluster.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.broker_epoch != broker_epoch:
            return ControllerResult([], None)
        self.cluster.heartbeats.end_session(broker_id)
        self.leadership.lost_brokers.add(broker_id)
        records = yield from self.leadership.fenced(broker_id, broker_epoch)
        return ControllerResult(records, None, is_atomic=False)

    def unregister_broker(
        self, request: UnregisterBrokerRequest
    ) -> Slices[ControllerResult[UnregisterBrokerResponse]]:
        """Unregister a broker; KafkaError BROKER_ID_NOT_REGISTERED."""
        broker: BrokerRegistration | None = self.cluster.brokers.get(request.broker_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"Broker ID {request.broker_id} is not currently registered",
            )
        slices = self.leadership.unregistered(broker.broker_id, broker.broker_epoch)
        records = yield from slices
        response = UnregisterBrokerResponse(error_code=0, error_message="")
        return ControllerResult(records, response, is_atomic=False)

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> ControllerResult[AllocateProducerIdsResponse]:
        """Allocate a block of producer ids to a broker."""
        self.cluster.check_epoch(request.broker_id, request.broker_epoch)
        return self.producer_ids.allocate(request.broker_id, request.broker_epoch)

    def update_features(
        self, request: UpdateFeaturesRequest
    ) -> ControllerResult[UpdateFeaturesResponse]:
        """Change feature levels."""
        return self.features.update_features(
            request,
            node_ranges=self.cluster.feature_ranges,
            elr_settings=self.configs.for_elr,
        )

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Slices[ControllerResult[AssignReplicasToDirsResponse]]:
        """Record the log directories of replicas."""
        if self.features.partition_version < _DIRECTORIES_FROM:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet."
            )
        return assign_replicas(request, self.topics, self.leadership, cluster=self.cluster)

    def _check_resource(self, resource: ConfiguredResource) -> None:
        """Raise KafkaError for a topic or broker that does not exist."""
        if resource.type == ConfigResourceType.TOPIC and self.topics.by_name(resource.name) is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist."
            )
        if resource.type == ConfigResourceType.BROKER and resource.name:
            if not re.fullmatch(r"[+-]?[0-9]{1,10}", resource.name):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Node id must be an integer, but it is: {resource.name}",
                )
            broker_id = int(resource.name)
            if broker_id not in self.cluster.brokers and broker_id != self._config.node_id:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected broker id, expected {self._config.node_id}, but received "
                    f"{broker_id}",
                )


def _is_transition(current: BrokerHeartbeatState, state: BrokerHeartbeatState) -> bool:
    both_fenced = state.is_fenced and current is BrokerHeartbeatState.FENCED
    return state is not current and not both_fenced


def _without_offset(handler: Callable[[Any], None]) -> Callable[[Any, int], None]:
    return lambda record, _offset: handler(record)


def _ignore(_record: Struct, _offset: int) -> None:
    """Ignore a record that only the image keeps."""

"""The registered brokers and controllers, and the blocks of producer ids that brokers take.

Kafka: org.apache.kafka.controller.ClusterControlManager;
org.apache.kafka.controller.ProducerIdControlManager.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla.controller.heartbeats import BrokerHeartbeatState, Heartbeats
from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.broker import (
    BrokerRegistration,
    ControllerRegistration,
    ListenerAddress,
    SupportedLevels,
    broker_registration_of,
    controller_registration_of,
)
from ottla.metadata.features import (
    METADATA_VERSION,
    are_controllers_registered,
    register_broker_record_version,
)
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.partition import MIGRATING_DIRECTORY, RESERVED_DIRECTORIES, UNASSIGNED_DIRECTORY
from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.protocol.apis.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.protocol.records.metadata import ProducerIdsRecord, RegisterControllerRecord
from ottla.timeline import TimelineDict, TimelineObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.controller.features import FeatureControl
    from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
    from ottla.protocol.records.metadata import (
        BrokerRegistrationChangeRecord,
        FenceBrokerRecord,
        RegisterBrokerRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
    )
    from ottla.timeline import SnapshotRegistry
    from ottla.types import Uuid


_BLOCK_SIZE: Final = 1000
_MAX_LONG: Final = (1 << 63) - 1


class ProducerIdControl:
    """The next producer id that is not allocated."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._next: TimelineObject[int] = TimelineObject(registry, 0)

    def replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        """Record an allocated block; a lower id would allocate ids twice."""
        if record.next_producer_id < self._next.value:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Next Producer ID from replayed record ({record.next_producer_id}) is not "
                f"greater than current next Producer ID in block ({self._next.value})",
            )
        self._next.value = record.next_producer_id

    def allocate(
        self, broker_id: int, broker_epoch: int
    ) -> ControllerResult[AllocateProducerIdsResponse]:
        """Allocate the next block to a broker whose epoch was checked."""
        first = self._next.value
        if first > _MAX_LONG - _BLOCK_SIZE:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "Exhausted all producerIds as the next block's end producerId has exceeded the "
                "int64 type limit",
            )
        record = ProducerIdsRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + _BLOCK_SIZE
        )
        response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=_BLOCK_SIZE)
        return ControllerResult([MessageAndVersion(record, 0)], response)


_DIRECTORIES_FROM = 3
"""The version of RegisterBrokerRecord from which it has log directories."""


class ClusterControl:
    """Registrations are replayed state, heartbeats are soft state."""

    def __init__(
        self,
        registry: SnapshotRegistry,
        *,
        cluster_id: str,
        features: FeatureControl,
        session_timeout_ms: int,
    ) -> None:
        self.brokers: TimelineDict[int, BrokerRegistration] = TimelineDict(registry)
        self.controllers: TimelineDict[int, ControllerRegistration] = TimelineDict(registry)
        self._registration_offsets: TimelineDict[int, int] = TimelineDict(registry)
        self._cluster_id = cluster_id
        self._features = features
        self.heartbeats = Heartbeats(session_timeout_ms)
        self._leaving: set[int] = set()

    @contextmanager
    def leaving(self, broker_id: int) -> Iterator[None]:
        """Exclude a broker from leading and joining ISRs while a sliced decision removes it."""
        self._leaving.add(broker_id)
        try:
            yield
        finally:
            self._leaving.discard(broker_id)

    # Queries

    def is_leaving(self, broker_id: int) -> bool:
        """Whether a decision that is in progress removes the broker."""
        return broker_id in self._leaving

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker can lead."""
        broker: BrokerRegistration | None = self.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_id not in self._leaving

    def can_lead(self, broker_id: int, directory: Uuid) -> bool:
        """Whether the broker is active and can serve a replica in directory."""
        broker: BrokerRegistration | None = self.brokers.get(broker_id)
        if broker is None or not broker.is_active or broker_id in self._leaving:
            return False
        return broker.has_online_directory(directory)

    def active_ids(self) -> list[int]:
        """Return the brokers that are neither fenced nor in controlled shutdown."""
        return [broker.broker_id for broker in self.brokers.values() if broker.is_active]

    def unfenced_ids(self) -> list[int]:
        """Return the brokers that are not fenced."""
        return [broker.broker_id for broker in self.brokers.values() if not broker.fenced]

    def default_directory(self, broker_id: int) -> Uuid:
        """Return the directory of a new replica: the broker's only one, or unassigned."""
        broker: BrokerRegistration | None = self.brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED_DIRECTORY
        if not broker.log_directories:
            return MIGRATING_DIRECTORY
        is_only = len(broker.log_directories) == 1
        return broker.log_directories[0] if is_only else UNASSIGNED_DIRECTORY

    def has_online_directory(self, broker_id: int, directory: Uuid) -> bool:
        """Whether the broker can serve a replica in directory."""
        broker: BrokerRegistration | None = self.brokers.get(broker_id)
        return broker is None or broker.has_online_directory(directory)

    def check_epoch(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """Return the registration; KafkaError STALE_BROKER_EPOCH for another epoch or none."""
        broker: BrokerRegistration | None = self.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"No broker registration found for broker id {broker_id}",
            )
        if broker.broker_epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}",
            )
        return broker

    def registration_offset(self, broker_id: int) -> int:
        """Return the offset of the broker's registration, up to which it must have replayed."""
        return self._registration_offsets.get(broker_id, -1)  # type: ignore[no-any-return]  # `get` is untyped

    def state_of(self, broker: BrokerRegistration) -> BrokerHeartbeatState:
        """Return the replayed state of a broker."""
        if broker.fenced:
            return BrokerHeartbeatState.FENCED
        if broker.in_controlled_shutdown:
            return BrokerHeartbeatState.CONTROLLED_SHUTDOWN
        return BrokerHeartbeatState.UNFENCED

    def feature_ranges(self, name: str) -> list[tuple[str, SupportedLevels]]:
        """Return the supported range of a feature for every registered node."""
        none = SupportedLevels(0, 0)
        others = [
            (f"Broker {broker.broker_id}", broker.features.get(name, none))
            for broker in self.brokers.values()
        ]
        others += [
            (f"Controller {node.controller_id}", node.features.get(name, none))
            for node in self.controllers.values()
        ]
        return others

    # Registration

    def check_registration(self, request: BrokerRegistrationRequest, now_ms: int) -> None:
        """Raise KafkaError, with Kafka's text, when the broker may not register."""
        if request.cluster_id != self._cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )
        existing: BrokerRegistration | None = self.brokers.get(request.broker_id)
        if (
            existing is not None
            and existing.incarnation_id != request.incarnation_id
            and self.heartbeats.has_valid_session(request.broker_id, now_ms)
        ):
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                "Another broker is registered with that broker id. If the broker was recently "
                "restarted this should self-resolve once the heartbeat manager expires the "
                "broker's session.",
            )
        if register_broker_record_version(self._features.levels) >= _DIRECTORIES_FROM:
            self._check_directories(request)
        self._check_features(request)

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        directories = request.log_dirs
        if not directories:
            raise _invalid("No directories specified in request")
        if any(directory in RESERVED_DIRECTORIES for directory in directories):
            raise _invalid("Reserved directory ID in request")
        if len(set(directories)) != len(directories):
            raise _invalid("Duplicate directory ID in request")
        for broker in self.brokers.values():
            for directory in directories:
                if directory in broker.log_directories and broker.broker_id != request.broker_id:
                    raise _invalid(
                        f"Broker {broker.broker_id} is already registered with directory "
                        f"{directory}"
                    )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        levels = self._features.levels
        offered: set[str] = set()
        for feature in request.features:
            offered.add(feature.name)
            supported = SupportedLevels(
                feature.min_supported_version, feature.max_supported_version
            )
            _check_level(feature.name, levels.get(feature.name, 0), supported)
        if METADATA_VERSION not in offered:
            raise _invalid("Request features do not contain 'metadata.version'")
        for name, level in levels.items():
            if name not in offered:
                _check_level(name, level, SupportedLevels(0, 0))

    def registration_record(
        self, request: BrokerRegistrationRequest, broker_epoch: int
    ) -> MessageAndVersion:
        """Return the registration record of a broker; a new one is fenced."""
        existing: BrokerRegistration | None = self.brokers.get(request.broker_id)
        same = existing is not None and existing.incarnation_id == request.incarnation_id
        registration = BrokerRegistration(
            request.broker_id,
            existing.broker_epoch if same and existing else broker_epoch,
            request.incarnation_id,
            {
                listener.name: ListenerAddress(
                    listener.host, listener.port, listener.security_protocol
                )
                for listener in request.listeners
            },
            {
                feature.name: SupportedLevels(
                    feature.min_supported_version, feature.max_supported_version
                )
                for feature in request.features
            },
            request.rack,
            existing.fenced if same and existing else True,
            existing.in_controlled_shutdown if same and existing else False,
            log_directories=tuple(request.log_dirs),
        )
        version = register_broker_record_version(self._features.levels)
        record = registration.to_record()
        if version < _DIRECTORIES_FROM:
            record.log_dirs = []
        return MessageAndVersion(record, version)

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerResult[ControllerRegistrationResponse]:
        """Record the addresses and features of a controller (KIP-919)."""
        if not are_controllers_registered(self._features.metadata_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller registrations.",
            )
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=False,
            end_points=[
                RegisterControllerRecord.ControllerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ],
            features=[
                RegisterControllerRecord.ControllerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
        )
        response = ControllerRegistrationResponse(error_message="")
        return ControllerResult([MessageAndVersion(record, 0)], response)

    # Replay

    def replay_register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        """Add or replace a broker."""
        self.brokers[record.broker_id] = broker_registration_of(record)
        self._registration_offsets[record.broker_id] = offset

    def replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        """Remove a broker."""
        del self.brokers[record.broker_id]
        self._registration_offsets.pop(record.broker_id, None)
        self.heartbeats.remove(record.broker_id)

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Change a broker."""
        self.brokers[record.broker_id] = self.brokers[record.broker_id].merge(record)

    def replay_fence(self, record: FenceBrokerRecord) -> None:
        """Fence a broker, as recorded by releases before BrokerRegistrationChangeRecord."""
        self.brokers[record.id] = self.brokers[record.id]._replace(fenced=True)

    def replay_unfence(self, record: UnfenceBrokerRecord) -> None:
        """Unfence a broker, as recorded by releases before BrokerRegistrationChangeRecord."""
        self.brokers[record.id] = self.brokers[record.id]._replace(fenced=False)

    def replay_register_controller(self, record: RegisterControllerRecord) -> None:
        """Add or replace a controller."""
        self.controllers[record.controller_id] = controller_registration_of(record)

    def usable_brokers(self) -> Iterator[BrokerRegistration]:
        """Yield the brokers that can hold new replicas: with a directory that is not cordoned."""
        for broker in self.brokers.values():
            if broker.in_controlled_shutdown:
                continue
            cordoned = broker.cordoned_log_directories or ()
            if not broker.log_directories or any(
                directory not in cordoned for directory in broker.log_directories
            ):
                yield broker


def _check_level(name: str, level: int, supported: SupportedLevels) -> None:
    if level not in supported:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Unable to register because the broker does not support finalized version "
            f"{level} of {name}. The broker wants a version between {supported.low} and "
            f"{supported.high}, inclusive.",
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, message)

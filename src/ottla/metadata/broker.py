"""The registrations of brokers and controllers.

Kafka: org.apache.kafka.metadata.{BrokerRegistration, ControllerRegistration}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.metadata.partition import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
)
from ottla.protocol.records.metadata import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.types import Node, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


class ListenerAddress(NamedTuple):
    """Where a node listens."""

    host: str
    port: int
    security_protocol: int


class SupportedLevels(NamedTuple):
    """The levels of a feature that a node supports."""

    low: int
    high: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.low <= level <= self.high


class BrokerRegistration(NamedTuple):
    """Immutable; a change makes a new one."""

    broker_id: int
    broker_epoch: int
    incarnation_id: Uuid
    listeners: Mapping[str, ListenerAddress]
    features: Mapping[str, SupportedLevels]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool = False
    log_directories: tuple[Uuid, ...] = ()
    cordoned_log_directories: tuple[Uuid, ...] | None = None

    def node(self, listener_name: str) -> Node | None:
        """Return the broker's address on a listener, None when it has no such listener."""
        address = self.listeners.get(listener_name)
        if address is None:
            return None
        return Node(self.broker_id, address.host, address.port, self.rack)

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead: neither fenced nor in controlled shutdown."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def is_leaving(self) -> bool:
        """Whether its controlled shutdown is in progress."""
        return self.in_controlled_shutdown and not self.fenced

    def has_online_directory(self, directory: Uuid) -> bool:
        """Whether a replica in this directory can be served."""
        if directory in _ALWAYS_ONLINE:
            return True
        if directory == LOST_DIRECTORY:
            return False
        return directory in self.log_directories or not self.log_directories

    def merge(self, change: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        """Return the registration after a change: 1 sets, -1 clears, 0 leaves unchanged."""
        cordoned = change.cordoned_log_dirs
        return self._replace(
            fenced=_switched(change.fenced, old=self.fenced),
            in_controlled_shutdown=_switched(
                change.in_controlled_shutdown, old=self.in_controlled_shutdown
            ),
            log_directories=tuple(change.log_dirs) or self.log_directories,
            cordoned_log_directories=(
                self.cordoned_log_directories if cordoned is None else tuple(cordoned)
            ),
        )

    def to_record(self) -> RegisterBrokerRecord:
        """Return the record that makes this registration."""
        cordoned = self.cordoned_log_directories
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.broker_epoch,
            end_points=_end_points(RegisterBrokerRecord.BrokerEndpoint, self.listeners),
            features=_features(RegisterBrokerRecord.BrokerFeature, self.features),
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.log_directories),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )


_ALWAYS_ONLINE = frozenset({UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY})


class ControllerRegistration(NamedTuple):
    """Immutable; a registration replaces the previous one."""

    controller_id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: Mapping[str, ListenerAddress]
    features: Mapping[str, SupportedLevels]

    def node(self, listener_name: str) -> Node | None:
        """Return the controller's address on a listener, None when it has no such listener."""
        address = self.listeners.get(listener_name)
        if address is None:
            return None
        return Node(self.controller_id, address.host, address.port)

    def to_record(self) -> RegisterControllerRecord:
        """Return the record that makes this registration."""
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=_end_points(RegisterControllerRecord.ControllerEndpoint, self.listeners),
            features=_features(RegisterControllerRecord.ControllerFeature, self.features),
        )


def _end_points(kind: Callable[..., T], listeners: Mapping[str, ListenerAddress]) -> list[T]:
    return [
        kind(
            name=name,
            host=address.host,
            port=address.port,
            security_protocol=address.security_protocol,
        )
        for name, address in listeners.items()
    ]


def _features(kind: Callable[..., T], features: Mapping[str, SupportedLevels]) -> list[T]:
    return [
        kind(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
        for name, levels in features.items()
    ]


def broker_registration_of(record: RegisterBrokerRecord) -> BrokerRegistration:
    """Read a registration from its record."""
    cordoned = record.cordoned_log_dirs
    return BrokerRegistration(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        _addresses(record.end_points),
        _ranges(record.features),
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        record.is_migrating_zk_broker,
        tuple(record.log_dirs),
        None if cordoned is None else tuple(cordoned),
    )


def controller_registration_of(record: RegisterControllerRecord) -> ControllerRegistration:
    """Read a registration from its record."""
    return ControllerRegistration(
        record.controller_id,
        record.incarnation_id,
        record.zk_migration_ready,
        _addresses(record.end_points),
        _ranges(record.features),
    )


def _addresses(
    end_points: Sequence[
        RegisterBrokerRecord.BrokerEndpoint | RegisterControllerRecord.ControllerEndpoint
    ],
) -> dict[str, ListenerAddress]:
    return {
        end_point.name: ListenerAddress(end_point.host, end_point.port, end_point.security_protocol)
        for end_point in end_points
    }


def _ranges(
    features: Sequence[
        RegisterBrokerRecord.BrokerFeature | RegisterControllerRecord.ControllerFeature
    ],
) -> dict[str, SupportedLevels]:
    return {
        feature.name: SupportedLevels(feature.min_supported_version, feature.max_supported_version)
        for feature in features
    }


def _switched(change: int, *, old: bool) -> bool:
    return old if change == 0 else change > 0

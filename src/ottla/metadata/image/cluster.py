"""Brokers, controllers and finalised feature levels.

Kafka: org.apache.kafka.image.{ClusterImage, ClusterDelta};
org.apache.kafka.image.{FeaturesImage, FeaturesDelta}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage
from ottla.metadata.broker import (
    BrokerRegistration,
    ControllerRegistration,
    broker_registration_of,
    controller_registration_of,
)
from ottla.metadata.features import METADATA_VERSION, MINIMUM_METADATA_VERSION
from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.records.metadata import FeatureLevelRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.delta import MetadataDelta
    from ottla.protocol.records.metadata import (
        BrokerRegistrationChangeRecord,
        FenceBrokerRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
    )


class FeaturesImage:
    """Levels by name; a feature without an entry is at level 0."""

    __slots__ = ("levels",)

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version."""
        return self.levels.get(METADATA_VERSION, MINIMUM_METADATA_VERSION)

    def level(self, name: str) -> int:
        """Return a feature's level."""
        return self.levels.get(name, 0)

    def replay_feature_level(self, record: FeatureLevelRecord, delta: MetadataDelta) -> None:
        """Set a level; 0 removes it."""
        delta.features_changed.setdefault(record.name, self.level(record.name))
        if record.feature_level == 0:
            self.levels.pop(record.name, None)
        else:
            self.levels[record.name] = record.feature_level

    @property
    def names(self) -> list[str]:
        """The features above level 0, metadata.version first."""
        return sorted(self.levels, key=lambda name: (name != METADATA_VERSION, name))

    def records(self) -> Iterator[MessageAndVersion]:
        """Yield the records that make this state, metadata.version first."""
        for name in self.names:
            record = FeatureLevelRecord(name=name, feature_level=self.levels[name])
            yield MessageAndVersion(record, 0)


class ClusterImage:
    """Nodes by id."""

    __slots__ = ("brokers", "change_count", "controllers")

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}
        self.change_count = 0
        """How often a broker has changed."""

    def unfenced_brokers(self) -> Iterator[BrokerRegistration]:
        """Yield the brokers that clients may connect to."""
        return (broker for broker in self.brokers.values() if not broker.fenced)

    def replay_register_broker(self, record: RegisterBrokerRecord, delta: MetadataDelta) -> None:
        """Add or replace a broker."""
        self._note(record.broker_id, delta)
        self.brokers[record.broker_id] = broker_registration_of(record)

    def replay_unregister_broker(
        self, record: UnregisterBrokerRecord, delta: MetadataDelta
    ) -> None:
        """Remove a broker."""
        self._broker(record.broker_id, record.broker_epoch)
        self._note(record.broker_id, delta)
        del self.brokers[record.broker_id]

    def replay_fence(self, record: FenceBrokerRecord, delta: MetadataDelta) -> None:
        """Fence a broker, as releases before BrokerRegistrationChange wrote it."""
        broker = self._broker(record.id, record.epoch)
        self._note(record.id, delta)
        self.brokers[record.id] = broker._replace(fenced=True)

    def replay_unfence(self, record: UnfenceBrokerRecord, delta: MetadataDelta) -> None:
        """Undo a fence, as releases before BrokerRegistrationChange wrote it."""
        broker = self._broker(record.id, record.epoch)
        self._note(record.id, delta)
        self.brokers[record.id] = broker._replace(fenced=False)

    def replay_change(self, record: BrokerRegistrationChangeRecord, delta: MetadataDelta) -> None:
        """Change a broker."""
        broker = self._broker(record.broker_id, record.broker_epoch)
        self._note(record.broker_id, delta)
        self.brokers[record.broker_id] = broker.merge(record)

    def replay_register_controller(
        self, record: RegisterControllerRecord, delta: MetadataDelta
    ) -> None:
        """Add or replace a controller."""
        old = self.controllers.get(record.controller_id)
        delta.controllers_changed.setdefault(record.controller_id, old)
        self.controllers[record.controller_id] = controller_registration_of(record)

    def records(self, broker_version: int) -> Iterator[MessageAndVersion]:
        """Yield the records that make this state."""
        for broker in self.brokers.values():
            yield MessageAndVersion(broker.to_record(), broker_version)
        for controller in self.controllers.values():
            yield MessageAndVersion(controller.to_record(), 0)

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != epoch:
            raise CorruptMessage(
                f"Unable to replay a change of broker {broker_id} at epoch {epoch}: "
                "no such broker registration found"
            )
        return broker

    def _note(self, broker_id: int, delta: MetadataDelta) -> None:
        self.change_count += 1
        delta.brokers_changed.setdefault(broker_id, self.brokers.get(broker_id))

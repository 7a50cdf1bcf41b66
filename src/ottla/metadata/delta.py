"""The changes of a batch of metadata records, for listeners with state derived from the image.

The image is changed in place, so the delta holds the previous values. The delta of a snapshot lists
everything in it as created.

Kafka: org.apache.kafka.image.{MetadataDelta, TopicsDelta, ClusterDelta, …}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from ottla.metadata.broker import BrokerRegistration, ControllerRegistration
    from ottla.metadata.partition import PartitionRegistration, TopicImage
    from ottla.metadata.resources import ConfiguredResource, QuotaEntity
    from ottla.types import Uuid


class MetadataDelta:
    """Filled by the image while records are applied; each dict is in order of first change."""

    __slots__ = (
        "acls_changed",
        "brokers_changed",
        "configs_changed",
        "controllers_changed",
        "delegation_tokens_changed",
        "features_changed",
        "is_snapshot",
        "offset_and_epoch",
        "partitions_changed",
        "producer_ids_changed",
        "quotas_changed",
        "scram_changed",
        "topics_created",
        "topics_deleted",
    )

    def __init__(self, *, is_snapshot: bool = False) -> None:
        self.is_snapshot = is_snapshot
        self.offset_and_epoch = OffsetAndEpoch(-1, -1)
        self.topics_created: dict[Uuid, TopicImage] = {}
        self.topics_deleted: dict[Uuid, TopicImage] = {}
        self.partitions_changed: dict[Uuid, dict[int, PartitionRegistration | None]] = {}
        """Topic id → partition → its previous registration, None where it is new."""
        self.brokers_changed: dict[int, BrokerRegistration | None] = {}
        self.controllers_changed: dict[int, ControllerRegistration | None] = {}
        self.features_changed: dict[str, int] = {}
        self.configs_changed: dict[ConfiguredResource, dict[str, str | None]] = {}
        """Resource → name → the previous value."""
        self.quotas_changed: dict[QuotaEntity, None] = {}
        self.producer_ids_changed = False
        self.acls_changed: dict[Uuid, None] = {}
        self.scram_changed: dict[tuple[str, int], None] = {}
        self.delegation_tokens_changed: dict[str, None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no listener is affected (for example by a NoOp)."""
        return not (
            self.topics_created
            or self.topics_deleted
            or self.partitions_changed
            or self.brokers_changed
            or self.controllers_changed
            or self.features_changed
            or self.configs_changed
            or self.quotas_changed
            or self.producer_ids_changed
            or self.acls_changed
            or self.scram_changed
            or self.delegation_tokens_changed
        )

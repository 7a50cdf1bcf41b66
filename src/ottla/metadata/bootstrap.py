"""The first records of a new cluster.

Kafka: org.apache.kafka.metadata.bootstrap.{BootstrapMetadata, BootstrapDirectory},
ActivationRecordsGenerator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.metadata.features import METADATA_VERSION, default_levels, is_elr_supported
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.resources import CLUSTER_DEFAULT
from ottla.protocol.records.metadata import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


def feature_records(levels: Mapping[str, int] | None = None) -> list[MessageAndVersion]:
    """Return the level records of a fresh cluster, metadata.version first."""
    levels = default_levels() if levels is None else levels
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [
        MessageAndVersion(FeatureLevelRecord(name=name, feature_level=levels[name]), 0)
        for name in names
        if levels[name] or name == METADATA_VERSION
    ]


def levels_of(records: Sequence[MessageAndVersion]) -> dict[str, int]:
    """Return the feature levels that bootstrap records set; CorruptMessage without any."""
    levels = {
        message.name: message.feature_level
        for message, _ in records
        if isinstance(message, FeatureLevelRecord)
    }
    if METADATA_VERSION not in levels:
        raise CorruptMessage("No FeatureLevelRecord for metadata.version was found.")
    return levels


def activation_records(
    bootstrap: Sequence[MessageAndVersion], *, min_insync_replicas: int
) -> list[MessageAndVersion]:
    """Return what the first controller writes into an empty log: one transaction.

    With eligible leader replicas the broker's min.insync.replicas becomes a setting of the
    cluster, because it can only be changed there from then on (KIP-966).
    """
    records = [MessageAndVersion(BeginTransactionRecord(name="Bootstrap records"), 0), *bootstrap]
    if is_elr_supported(levels_of(bootstrap)):
        record = ConfigRecord(
            resource_type=CLUSTER_DEFAULT.type,
            resource_name=CLUSTER_DEFAULT.name,
            name=MIN_INSYNC_REPLICAS,
            value=str(min_insync_replicas),
        )
        records.append(MessageAndVersion(record, 0))
    records.append(MessageAndVersion(EndTransactionRecord(), 0))
    return records

"""Finalised feature levels.

Kafka: org.apache.kafka.image.{FeaturesImage, FeaturesDelta}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.features import METADATA_VERSION, MINIMUM_METADATA_VERSION
from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.records.metadata import FeatureLevelRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.delta import MetadataDelta


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

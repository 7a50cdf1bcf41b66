"""Finalized features in the controller.

Kafka: org.apache.kafka.controller.FeatureControlManager.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    is_elr_supported,
    partition_record_version,
)
from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.records.metadata import FeatureLevelRecord, NoOpRecord
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.metadata.broker import SupportedLevels
    from ottla.timeline import SnapshotRegistry


_EPOCH_KEPT_ON_SHRINK_FROM = 12
"""metadata.version 3.6-IV0."""


class UpgradeType(IntEnum):
    """Whether an update may downgrade a feature."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class RaiseKRaftVersion(Protocol):
    """How the controller changes the quorum's own level."""

    def __call__(self, level: int, /, *, validate_only: bool) -> None:
        """Raise the level, or only check it; KafkaError when that cannot be."""


class FeatureControl:
    """Levels by name; a missing one is 0."""

    def __init__(
        self,
        registry: SnapshotRegistry,
        *,
        node_id: int,
        supported: Mapping[str, SupportedLevels],
        kraft_version: Callable[[], int],
        raise_kraft_version: RaiseKRaftVersion,
    ) -> None:
        """kraft_version is kept by the quorum, which raise_kraft_version changes."""
        self._levels: TimelineDict[str, int] = TimelineDict(registry)
        self._node_id = node_id
        self.supported = supported
        self._kraft_version = kraft_version
        self._raise_kraft_version = raise_kraft_version

    @property
    def levels(self) -> Mapping[str, int]:
        """The finalized levels."""
        return self._levels

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version."""
        return self._levels.get(METADATA_VERSION, MINIMUM_METADATA_VERSION)  # type: ignore[no-any-return]  # `get` is untyped

    @property
    def is_elr_enabled(self) -> bool:
        """Whether eligible leader replicas are tracked."""
        return is_elr_supported(self._levels)

    @property
    def partition_version(self) -> int:
        """The version of partition records."""
        return partition_record_version(self._levels)

    @property
    def bumps_epoch_on_shrink(self) -> bool:
        """Whether a smaller ISR is a new leader epoch, as before 3.6 (KAFKA-15021)."""
        return self.metadata_version < _EPOCH_KEPT_ON_SHRINK_FROM

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        """Set a level; 0 removes it."""
        if record.feature_level:
            self._levels[record.name] = record.feature_level
        else:
            self._levels.pop(record.name, None)

    def update_features(
        self,
        request: UpdateFeaturesRequest,
        *,
        node_ranges: Callable[[str], list[tuple[str, SupportedLevels]]],
        elr_settings: Callable[[], list[MessageAndVersion]],
    ) -> ControllerResult[UpdateFeaturesResponse]:
        """Change levels, all or none.

        elr_settings() returns additional records when ELR is enabled, node_ranges(feature) the
        supported range of every registered node, by the node's description.
        """
        records: list[MessageAndVersion] = []
        error: KafkaError | None = None
        kraft_version: int | None = None
        # the last of several updates of one feature wins, as in Kafka
        for update in {
            requested.feature: requested for requested in request.feature_updates
        }.values():
            try:
                level = update.max_version_level
                # allow_downgrade of version 0 is ignored, as in Kafka
                kind = update.upgrade_type
                self._check(update.feature, level, kind, node_ranges(update.feature))
            except KafkaError as problem:
                error = KafkaError(
                    problem.code,
                    "The update failed for all features since the following feature had an "
                    f"error: {problem.message}",
                )
                break
            if update.feature == KRAFT_VERSION:
                if kind == UpgradeType.UPGRADE:
                    kraft_version = level
                    # an offset to wait for: the level is in no record of the controller
                    records.append(MessageAndVersion(NoOpRecord(), 0))
                continue
            record = FeatureLevelRecord(name=update.feature, feature_level=level)
            records.append(MessageAndVersion(record, 0))
            is_elr = update.feature == ELIGIBLE_LEADER_REPLICAS_VERSION
            if is_elr and level > 0 and not self.is_elr_enabled:
                records += elr_settings()
        if kraft_version is not None and error is None and not request.validate_only:
            self._raise_kraft_version(kraft_version, validate_only=False)
        response = UpdateFeaturesResponse(
            error_code=error.code if error else 0,
            error_message=error.message if error else None,
            results=[
                UpdateFeaturesResponse.UpdatableFeatureResult(
                    feature=update.feature, error_code=0, error_message=ErrorCode.NONE.text
                )
                for update in request.feature_updates
                if error is None
            ],
        )
        return ControllerResult([] if error or request.validate_only else records, response)

    def _check(
        self, name: str, level: int, kind: int, nodes: list[tuple[str, SupportedLevels]]
    ) -> None:
        if kind not in (1, 2, 3):
            raise _invalid(name, level, "The controller does not support the given upgrade type.")
        if level < 0:
            raise _invalid(name, level, "A feature version cannot be less than 0.")
        reason = self._not_supported(name, level)
        if reason is not None:
            raise _invalid(name, level, reason)
        for description, levels in nodes:
            if level and level not in levels:
                raise _invalid(
                    name, level, f"{description} only supports versions {levels.low}-{levels.high}"
                )
        current = self._kraft_version() if name == KRAFT_VERSION else self._levels.get(name, 0)
        if level < current:
            self._check_downgrade(name, level, current, kind)
        elif level > current and kind != UpgradeType.UPGRADE:
            raise _invalid(name, level, "Can't downgrade to a newer version.")
        if name == KRAFT_VERSION and kind == UpgradeType.UPGRADE:
            self._raise_kraft_version(level, validate_only=True)

    def _check_downgrade(self, name: str, level: int, current: int, kind: int) -> None:
        if kind == UpgradeType.UPGRADE:
            raise _invalid(
                name,
                level,
                "Can't downgrade the version of this feature without setting the upgrade type to "
                "either safe or unsafe downgrade.",
            )
        if name == KRAFT_VERSION:
            raise _invalid(name, level, "Can't downgrade the version of this feature.")
        if name == METADATA_VERSION:
            reason = "Unsafe metadata downgrade is not supported in this version."
            if kind == UpgradeType.SAFE_DOWNGRADE:
                reason = (
                    "Refusing to perform the requested downgrade because it might delete metadata "
                    "information."
                )
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
            )

    def _not_supported(self, name: str, level: int) -> str | None:
        levels = self.supported.get(name)
        if levels is None:
            text = f"Local controller {self._node_id} does not support this feature."
            return text if level else f"Feature {name} not found."
        if (level or name == METADATA_VERSION) and level not in levels:
            return (
                f"Local controller {self._node_id} only supports versions "
                f"{levels.low}-{levels.high}"
            )
        return None


def _invalid(name: str, level: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {level} for feature {name}. {reason}",
    )

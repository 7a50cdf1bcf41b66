"""The features of a cluster: supported levels, defaults of a release and dependencies.

Kafka: org.apache.kafka.server.common.{Feature, MetadataVersion, KRaftVersion}, QuorumFeatures.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.metadata.broker import SupportedLevels

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
TRANSACTION_VERSION: Final = "transaction.version"

MINIMUM_METADATA_VERSION: Final = 7
LATEST_METADATA_VERSION: Final = 30

METADATA_VERSION_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {
        7: "3.3-IV3",
        8: "3.4-IV0",
        9: "3.5-IV0",
        10: "3.5-IV1",
        11: "3.5-IV2",
        12: "3.6-IV0",
        13: "3.6-IV1",
        14: "3.6-IV2",
        15: "3.7-IV0",
        16: "3.7-IV1",
        17: "3.7-IV2",
        18: "3.7-IV3",
        19: "3.7-IV4",
        20: "3.8-IV0",
        21: "3.9-IV0",
        22: "4.0-IV0",
        23: "4.0-IV1",
        24: "4.0-IV2",
        25: "4.0-IV3",
        26: "4.1-IV0",
        27: "4.1-IV1",
        28: "4.2-IV0",
        29: "4.2-IV1",
        30: "4.3-IV0",
    }
)

SUPPORTED_FEATURES: Final[Mapping[str, SupportedLevels]] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: SupportedLevels(0, 1),
        GROUP_VERSION: SupportedLevels(0, 1),
        KRAFT_VERSION: SupportedLevels(0, 1),
        METADATA_VERSION: SupportedLevels(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
        SHARE_VERSION: SupportedLevels(0, 1),
        STREAMS_VERSION: SupportedLevels(0, 1),
        TRANSACTION_VERSION: SupportedLevels(0, 2),
    }
)

OTTLA_VERSION: Final = "ottla.version"
REGISTERED_FEATURES: Final[Mapping[str, SupportedLevels]] = MappingProxyType(
    {**SUPPORTED_FEATURES, OTTLA_VERSION: SupportedLevels(0, 1)}
)
"""What a broker registers. ottla.version is never finalised: it identifies Ottla's brokers."""

METADATA_VERSIONS_NEEDED: Final[Mapping[tuple[str, int], int]] = MappingProxyType(
    {(ELIGIBLE_LEADER_REPLICAS_VERSION, 1): 23}
)
"""By feature and level: the lowest metadata.version that supports it."""

# The metadata.version from which a level is the default of a fresh cluster.
_BOOTSTRAP_LEVELS: Final[Mapping[str, tuple[tuple[int, int], ...]]] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: ((1, 26),),
        GROUP_VERSION: ((1, 22),),
        SHARE_VERSION: ((1, 28),),
        STREAMS_VERSION: ((1, 29),),
        TRANSACTION_VERSION: ((2, 24),),
    }
)


def default_levels(metadata_version: int = LATEST_METADATA_VERSION) -> dict[str, int]:
    """Return the levels above 0 that a cluster formatted at metadata_version starts with.

    kraft.version is not among them: it is kept in control records of the quorum.
    """
    levels = {METADATA_VERSION: metadata_version}
    for name, steps in sorted(_BOOTSTRAP_LEVELS.items()):
        level = max((level for level, since in steps if since <= metadata_version), default=0)
        if level:
            levels[name] = level
    return levels


def metadata_version_name(level: int) -> str:
    """Return the release's name of a metadata.version; KeyError for an unknown level."""
    return METADATA_VERSION_NAMES[level]


def parse_metadata_version(text: str) -> int:
    """Read `4.3-IV0`, or `4.3` and `4.3.0` for the last of a release; ValueError otherwise."""
    for level, name in METADATA_VERSION_NAMES.items():
        if name == text:
            return level
    release = ".".join(text.split(".")[:2])
    found = [
        level for level, name in METADATA_VERSION_NAMES.items() if name.startswith(f"{release}-")
    ]
    if not found:
        raise ValueError(f"Version {text} is not a valid version")
    return found[-1]


def are_controllers_registered(metadata_version: int) -> bool:
    """Whether controllers register with the active one, from 3.7-IV0 on (KIP-919)."""
    return metadata_version >= 15


def is_elr_supported(levels: Mapping[str, int]) -> bool:
    """Whether eligible leader replicas are tracked (KIP-966)."""
    return levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1


def partition_record_version(levels: Mapping[str, int]) -> int:
    """Return the version of PartitionRecord and PartitionChangeRecord to write."""
    if is_elr_supported(levels):
        return 2
    return 1 if levels.get(METADATA_VERSION, MINIMUM_METADATA_VERSION) >= 17 else 0


def register_broker_record_version(levels: Mapping[str, int]) -> int:
    """Return the version of RegisterBrokerRecord to write."""
    level = levels.get(METADATA_VERSION, MINIMUM_METADATA_VERSION)
    if level >= 30:
        return 4
    if level >= 17:
        return 3
    return 2 if level >= 8 else 1

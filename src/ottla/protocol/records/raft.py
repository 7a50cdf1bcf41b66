"""raft"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int16, int32, int64, uint16
from ottla.types import Uuid


class Voter(Struct):
    """Shared by the structs below."""

    voter_id: int32
    voter_directory_id: Uuid = field("1+")


class LeaderChangeMessage(Struct, versions="0-1", flexible="0+"):
    """DOC LeaderChangeMessage."""

    version: int16
    leader_id: int32
    voters: list[Voter]
    granting_voters: list[Voter]


class SnapshotHeaderRecord(Struct, versions="0", flexible="0+"):
    """DOC SnapshotHeaderRecord."""

    version: int16
    last_contained_log_timestamp: int64


class SnapshotFooterRecord(Struct, versions="0", flexible="0+"):
    """DOC SnapshotFooterRecord."""

    version: int16


class KRaftVersionRecord(Struct, versions="0", flexible="0+"):
    """DOC KRaftVersionRecord."""

    version: int16
    k_raft_version: int16


class VotersRecord(Struct, versions="0", flexible="0+"):
    """DOC VotersRecord."""

    version: int16
    voters: list[Voter]

    class Voter(Struct):
        voter_id: int32
        voter_directory_id: Uuid
        endpoints: list[Endpoint]
        k_raft_version_feature: KRaftVersionFeature

        class Endpoint(Struct):
            name: str
            host: str
            port: uint16

        class KRaftVersionFeature(Struct):
            min_supported_version: int16
            max_supported_version: int16


class QuorumStateData(Struct, versions="0-1", flexible="0+"):
    """DOC QuorumStateData."""

    cluster_id: str = field("0")
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    voted_id: int32 = -1
    voted_directory_id: Uuid = field("1+")
    applied_offset: int64 = field("0")
    current_voters: list[Voter] | None = field("0")

    class Voter(Struct):
        voter_id: int32 = field("0")

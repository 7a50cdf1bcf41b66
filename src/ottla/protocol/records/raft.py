"""Control records of raft logs and snapshots, and the stored vote.

Kafka: LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord,
VotersRecord, QuorumStateData.
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Struct, field, int16, int32, int64, uint16
from ottla.types import ZERO_UUID, Uuid


class LeaderChangeMessage(Struct, versions="0-1", flexible="0+"):
    """Control record: first of a leader epoch. v1 voter directory ids."""

    version: int16
    leader_id: int32
    voters: list[Voter]
    granting_voters: list[Voter]


class Voter(Struct):
    voter_id: int32
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID)


class SnapshotHeaderRecord(Struct, versions="0", flexible="0+"):
    """Control record: first of a snapshot."""

    version: int16
    last_contained_log_timestamp: int64


class SnapshotFooterRecord(Struct, versions="0", flexible="0+"):
    """Control record: last of a snapshot; without it the snapshot is incomplete."""

    version: int16


class KRaftVersionRecord(Struct, versions="0", flexible="0+"):
    """Control record: kraft.version from here on."""

    version: int16
    kraft_version: int16


class VotersRecord(Struct, versions="0", flexible="0+"):
    """Control record: the voters from here on."""

    version: int16
    voters: list[Voter]

    class Voter(Struct):
        voter_id: int32
        voter_directory_id: Uuid
        endpoints: list[Endpoint]
        kraft_version_feature: KRaftVersionFeature

        class Endpoint(Struct):
            name: str
            host: str
            port: uint16

        class KRaftVersionFeature(Struct):
            min_supported_version: int16
            max_supported_version: int16


class QuorumStateData(Struct, versions="0-1", flexible="0+"):
    """A replica's vote and its known leader; stored as JSON in quorum-state."""

    cluster_id: str = field("0", default="")
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    voted_id: int32 = -1
    voted_directory_id: Uuid = field("1+", default=ZERO_UUID)
    applied_offset: int64 = field("0", default=0)
    current_voters: list[Voter] | None = field("0", default=EMPTY)

    class Voter(Struct):
        voter_id: int32

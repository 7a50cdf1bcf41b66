"""How a controller comes back: it replays its metadata log, then takes its place in the quorum.

Kafka: org.apache.kafka.raft.KafkaRaftClient.initialize, KRaftControlRecordStateMachine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.records.raft import KRaftVersionRecord, VotersRecord
from ottla.raft.control_records import decode_control_message
from ottla.raft.node import RaftNode
from ottla.raft.voter_set import Voter, VoterEndpoint, VoterSet, voter_set_of

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.controller.replayed_log import ReplayedLog
    from ottla.raft.quorum_state import QuorumStateStore
    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.records.batch import RecordBatch
    from ottla.types import Uuid


class Found(NamedTuple):
    """What snapshot and log say of the quorum itself."""

    kraft_version: int = 0
    voters: VoterSet | None = None
    voters_in_log: bool = False
    """Whether they come from a record that was replicated, not from the first snapshot."""


def take_part(
    log: ReplicatedLog,
    replayed: ReplayedLog,
    store: QuorumStateStore,
    *,
    node_id: int,
    directory_id: Uuid,
    static_voters: VoterSet,
    path: str,
) -> RaftNode:
    """Replay snapshot and log into `replayed`; return the member with the voters found there.

    path is the log directory's name in the text of errors.
    """
    quorum = _quorum_found(log, replayed)
    voters = quorum.voters
    if quorum.kraft_version == 0 or voters is None:
        voters = static_voters
    return RaftNode(
        node_id=node_id,
        directory_id=directory_id,
        election=store.read_at_start(
            log_end_offset=log.end_offset, epoch_at_end=log.epoch_at_end(), path=path
        ),
        voters=voters,
        kraft_version=quorum.kraft_version,
        voters_in_log=quorum.voters_in_log,
    )


def _quorum_found(log: ReplicatedLog, replayed: ReplayedLog) -> Found:
    quorum, position = Found(), 0
    found = log.newest_readable_snapshot()
    if found is not None:
        snapshot_id, content = found
        position = snapshot_id.offset
        in_log = content.voters is not None and position > 0
        quorum = Found(content.kraft_version, content.voters, in_log)
        if position > 0:
            replayed.load_snapshot(
                content.values, snapshot_id, content.last_contained_log_timestamp
            )
    for batch in log.read(max(position, log.start_offset)):
        if batch.is_control:
            quorum = _told_by(batch, quorum)
        else:
            replayed.load_batch(batch)
    return quorum


def _told_by(batch: RecordBatch, quorum: Found) -> Found:
    for record in batch.records():
        message = decode_control_message(record)
        if isinstance(message, KRaftVersionRecord):
            quorum = quorum._replace(kraft_version=message.kraft_version)
        elif isinstance(message, VotersRecord):
            quorum = quorum._replace(voters=voter_set_of(message), voters_in_log=True)
    return quorum


def static_voters(config: BrokerConfig) -> VoterSet:
    """Return the voters of controller.quorum.voters (kraft.version 0)."""
    names = config.controller_listener_names
    return VoterSet(
        Voter(
            voter.node_id,
            endpoints=(VoterEndpoint(names[0] if names else "", voter.host, voter.port),),
        )
        for voter in config.voters
    )

"""The start of a member of the quorum: its log, its election state, and the voters of its log.

Kafka: org.apache.kafka.raft.KafkaRaftClient.initialize, KRaftControlRecordStateMachine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.control_records import decode_control_message
from ottla.raft.member import MemberSettings
from ottla.raft.node import RaftNode
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.timeouts import QuorumTimeouts
from ottla.raft.voter_history import VoterHistory
from ottla.raft.voter_set import Voter, VoterAddress, VoterSet

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random
    from typing import TypeAlias

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.broker import ListenerAddress
    from ottla.raft.quorum_state import QuorumStateStore
    from ottla.raft.requests import ReplicaKey
    from ottla.raft.snapshot import SnapshotReader
    from ottla.storage.directory import Directory
    from ottla.types import OffsetAndEpoch

    Snapshot: TypeAlias = tuple[OffsetAndEpoch, SnapshotReader]


def open_log(directory: Directory, config: BrokerConfig, clock: Clock) -> ReplicatedLog:
    """Recover the metadata log; errors as `ReplicatedLog.open`."""
    return ReplicatedLog.open(
        directory,
        now_ms=clock.now_ms(),
        path=config.metadata_directory,
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
    )


def member_settings(
    key: ReplicaKey, config: BrokerConfig, listeners: Mapping[str, ListenerAddress] | None
) -> MemberSettings:
    """Return a member's own settings; listeners are None where the node is no controller."""
    return MemberSettings(
        key,
        own_endpoints(listeners),
        len(config.bootstrap_controllers),
        quorum_timeouts(config),
        config.controller_quorum_auto_join_enable,
    )


def take_part(
    log: ReplicatedLog,
    store: QuorumStateStore,
    *,
    snapshot: Snapshot | None,
    settings: MemberSettings,
    static_voters: VoterSet,
    clock: Clock,
    rng: Random,
    path: str,
) -> RaftNode:
    """Return the member with the voters of the log, which continues from a snapshot.

    path is the log directory's name in the text of errors. KafkaError INCONSISTENT_VOTER_SET for
    a quorum that this node cannot serve.
    """
    voters = _voters_of(log, snapshot, static_voters)
    check_voters(voters.latest, settings.key)
    election = store.read_at_start(
        log_end_offset=log.end_offset, epoch_at_end=log.epoch_at_end(), path=path
    )
    if log.end_offset == 0:  # a kill may fall between the first append and the first vote
        store.write(election, kraft_version=1)
    return RaftNode(
        settings,
        log=log,
        voters=voters,
        election=election,
        rng=rng,
        now_ms=clock.monotonic_ms(),
        wall_ms=clock.now_ms,
    )


def check_voters(voters: VoterSet, key: ReplicaKey) -> None:
    """Raise INCONSISTENT_VOTER_SET where only the lost disk of this node could lead the quorum."""
    alone = {voter.voter_id for voter in voters} == {key.node_id}
    if alone and not voters.is_voter(*key):
        raise KafkaError(
            ErrorCode.INCONSISTENT_VOTER_SET,
            f"node {key.node_id} with directory {key.directory_id} is not a voter of "
            f"{voters}: the disk it voted with is not here",
        )


def _voters_of(
    log: ReplicatedLog, snapshot: Snapshot | None, static_voters: VoterSet
) -> VoterHistory:
    """Return the voters and the kraft.version by offset, uncommitted changes included."""
    voters, position = VoterHistory(static_voters), 0
    if snapshot is not None:
        position, content = snapshot[0].offset, snapshot[1]
        if content.voters is not None:
            voters.restart(position, content.voters, content.kraft_version)
    for batch in log.read(max(position, log.start_offset)):
        if batch.is_control:
            for record in batch.records():
                voters.apply(record.offset, decode_control_message(record))
    return voters


def own_endpoints(
    listeners: Mapping[str, ListenerAddress] | None,
) -> tuple[VoterAddress, ...]:
    """Return the addresses at which other nodes reach this controller."""
    return tuple(
        VoterAddress(name, address.host, address.port)
        for name, address in (listeners or {}).items()
    )


def quorum_timeouts(config: BrokerConfig) -> QuorumTimeouts:
    """Return the settings controller.quorum.*.ms."""
    return QuorumTimeouts(
        election_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_ms=config.controller_quorum_fetch_timeout_ms,
        request_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
    )


def static_voters(config: BrokerConfig) -> VoterSet:
    """Return the voters of controller.quorum.voters (kraft.version 0)."""
    names = config.controller_listener_names
    return VoterSet(
        Voter(
            voter.node_id,
            endpoints=(VoterAddress(names[0] if names else "", voter.host, voter.port),),
        )
        for voter in config.voters
    )

"""Validation of voter changes, with Kafka's error codes and texts.

Kafka: org.apache.kafka.raft.internals.{AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler}
(KIP-853), KafkaRaftClient.handleAddVoterRequest and its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.requests import AddVoter, RemoveVoter, ReplicaKey, UpdateVoter
from ottla.raft.voter_set import VoterSet

if TYPE_CHECKING:
    from ottla.raft.requests import VersionsResponse
    from ottla.raft.voter_set import Voter, VoterAddress

BUSY = "Request timed out waiting for leader to handle previous voter change request"
NO_HIGH_WATERMARK = (
    "Request timed out waiting for leader to establish HWM and fence previous voter changes"
)


def check_request(request: AddVoter | RemoveVoter | UpdateVoter, listener: str) -> None:
    """Raise INVALID_REQUEST for a change that names no voter, or no address on the listener.

    listener is the controllers' own, the first of controller.listener.names.
    """
    match request:
        case RemoveVoter(key):
            _check_key(key, "Remove voter request didn't include a valid voter")
        case AddVoter(voter):
            _check_key(replica_key(voter), "Add voter request didn't include a valid voter")
            if not _has_listener(voter, listener):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Add voter request didn't include the endpoint "
                    f"({_endpoints_text(voter.endpoints)}) for the default listener "
                    f"ListenerName({listener})",
                )
        case UpdateVoter(voter):
            _check_key(replica_key(voter), None)
            lowest, highest = voter.lowest_kraft_version, voter.highest_kraft_version
            if not _has_listener(voter, listener) or not 0 <= lowest <= highest:
                raise KafkaError(ErrorCode.INVALID_REQUEST)


def _check_key(key: ReplicaKey, text: str | None) -> None:
    if key.node_id < 0 or not key.directory_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _has_listener(voter: Voter, listener: str) -> bool:
    return any(end.listener_name == listener for end in voter.endpoints)


def check_kraft_version(request: AddVoter | RemoveVoter, kraft_version: int) -> None:
    """Raise UNSUPPORTED_VERSION in a quorum of static voters."""
    if kraft_version < 1:
        doing = "adding" if isinstance(request, AddVoter) else "removing"
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Cluster doesn't support {doing} voter because the kraft.version feature is "
            f"{kraft_version}",
        )


def check_committed(offset: int, high_watermark: int) -> None:
    """Raise REQUEST_TIMED_OUT while the last change of the voters is not committed."""
    if offset >= high_watermark:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            "Request timed out waiting for voters to commit the latest voter change at "
            f"Optional[{offset}] with HWM {high_watermark}",
        )


def check_voter(request: AddVoter | RemoveVoter, voters: VoterSet) -> None:
    """Raise for a voter that is already one, or is none and cannot be removed."""
    if isinstance(request, AddVoter):
        if voters.get(request.voter.voter_id) is not None:
            raise KafkaError(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {key_text(replica_key(request.voter))} is already part of the "
                f"set of voters {_voters_text(voters)}.",
            )
        return
    known = voters.get(request.key.node_id)
    if known is None or known.directory_id != request.key.directory_id or len(voters) == 1:
        raise KafkaError(
            ErrorCode.VOTER_NOT_FOUND,
            f"Cannot remove voter {key_text(request.key)} from the set of voters "
            f"{_voters_text(voters)}",
        )


def check_levels(voter: Voter, described: VersionsResponse, kraft_version: int) -> None:
    """Raise INVALID_REQUEST for a new voter that does not support the quorum's level."""
    if not described.lowest <= kraft_version <= described.highest:
        is_named = described.highest > 0
        levels = f"(min: {described.lowest}, max: {described.highest}"  # as Kafka writes it
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Aborted add voter operation for {key_text(replica_key(voter))} since the "
            f"kraft.version range {levels if is_named else '(min: 0, max: 0)'} doesn't support "
            f"the finalized version {kraft_version}",
        )


def check_upgrade(level: int, current: int, voters: VoterSet) -> None:
    """Raise INVALID_UPDATE_VERSION for a kraft.version that not every voter supports."""
    reason = None
    if level < current:
        reason = (
            f"from version {_version_name(current)} to {_version_name(level)} because the new "
            "version is a downgrade"
        )
    elif level > current and not all(
        one.lowest_kraft_version <= level <= one.highest_kraft_version for one in voters
    ):
        reason = f"to {_version_name(level)} because not all of the voters support it"
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid upgrade of kraft.version {reason}"
        )


def _version_name(level: int) -> str:
    return f"KRAFT_VERSION_{level}"


def updated(voters: VoterSet, voter: Voter, kraft_version: int) -> VoterSet:
    """Return the voters with one replaced; raise for one that is unknown or not compatible.

    Static voters have no directory id.
    """
    if not voter.lowest_kraft_version <= kraft_version <= voter.highest_kraft_version:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    known = voters.get(voter.voter_id)
    if known is None or (kraft_version > 0 and known.directory_id != voter.directory_id):
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND)
    return VoterSet(voter if one is known else one for one in voters)


def replica_key(voter: Voter) -> ReplicaKey:
    """Return a voter's id with its directory's."""
    return ReplicaKey(voter.voter_id, voter.directory_id)


def key_text(key: ReplicaKey) -> str:
    """Return a replica as Kafka's ReplicaKey writes itself."""
    directory = str(key.directory_id) if key.directory_id else "<undefined>"
    return f"ReplicaKey(id={key.node_id}, directoryId={directory})"


def _voters_text(voters: VoterSet) -> str:
    return "[" + ", ".join(key_text(replica_key(one)) for one in voters) + "]"


def _endpoints_text(endpoints: tuple[VoterAddress, ...]) -> str:
    shown = ", ".join(
        f"ListenerName({one.listener_name})={one.host}/<unresolved>:{one.port}" for one in endpoints
    )
    return f"Endpoints(endpoints={{{shown}}})"

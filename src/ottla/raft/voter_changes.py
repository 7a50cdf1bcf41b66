"""Validation of voter changes.

Kafka: org.apache.kafka.raft.internals.{AddVoterHandler, RemoveVoterHandler} (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
    from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
    from ottla.raft.voter_set import VoterSet
    from ottla.types import Uuid


def check_addition(
    request: AddRaftVoterRequest,
    voters: VoterSet,
    *,
    cluster_id: str,
    kraft_version: int,
    listener: str,
) -> None:
    """Raise KafkaError unless the voter may be added; listener is the controllers' own."""
    _check_cluster(request.cluster_id, cluster_id)
    if request.voter_id < 0 or not request.voter_directory_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter"
        )
    names = {one.name for one in request.listeners}
    if listener not in names:
        endpoints = ", ".join(
            f"ListenerName({one.name})={one.host}/<unresolved>:{one.port}"
            for one in request.listeners
        )
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{endpoints}}})) "
            f"for the default listener ListenerName({listener})",
        )
    if kraft_version < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Cluster doesn't support adding voter because the kraft.version feature is "
            f"{kraft_version}",
        )
    if voters.get(request.voter_id) is not None:
        key = _key(request.voter_id, request.voter_directory_id)
        raise KafkaError(
            ErrorCode.DUPLICATE_VOTER,
            f"The voter id for {key} is already part of the set of voters {_keys(voters)}.",
        )


def check_removal(
    request: RemoveRaftVoterRequest, voters: VoterSet, *, cluster_id: str, kraft_version: int
) -> None:
    """Raise KafkaError unless the voter may be removed: the last one never may."""
    _check_cluster(request.cluster_id, cluster_id)
    if request.voter_id < 0 or not request.voter_directory_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter"
        )
    if kraft_version < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Cluster doesn't support removing voter because the kraft.version feature is "
            f"{kraft_version}",
        )
    voter = voters.get(request.voter_id)
    known = voter is not None and voter.directory_id == request.voter_directory_id
    if not known or len(voters) == 1:
        key = _key(request.voter_id, request.voter_directory_id)
        raise KafkaError(
            ErrorCode.VOTER_NOT_FOUND,
            f"Cannot remove voter {key} from the set of voters {_keys(voters)}",
        )


def _check_cluster(given: str | None, cluster_id: str) -> None:
    if given is not None and given != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{given}" doesn\'t match the cluster id "{cluster_id}"',
        )


def _key(voter_id: int, directory_id: Uuid) -> str:
    directory = str(directory_id) if directory_id else "<undefined>"
    return f"ReplicaKey(id={voter_id}, directoryId={directory})"


def _keys(voters: VoterSet) -> str:
    return "[" + ", ".join(_key(one.voter_id, one.directory_id) for one in voters) + "]"

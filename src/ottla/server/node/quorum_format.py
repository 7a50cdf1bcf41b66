"""Formats the directories of nodes that start as one cluster, its controllers as voters.

Kafka: org.apache.kafka.common.test.KafkaClusterTestKit.formatNode.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.broker import parse_broker_config
from ottla.raft.voter_set import Voter, VoterAddress
from ottla.server.node.format import FormatRequest, FormatTarget, format_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.storage.directory import Directory
    from ottla.types import Uuid

CONTROLLER_LISTENER = "CONTROLLER"
_FORMAT_DATE = "Thu Oct 09 08:53:20 UTC 2025"


class QuorumFormat(NamedTuple):
    """What the directories of all nodes of a cluster have in common."""

    cluster_id: str
    voters: tuple[Voter, ...]
    """Empty for a controller that joins a quorum."""
    now_ms: int


def new_quorum(
    endpoints: Mapping[int, tuple[str, int]], new_uuid: Callable[[], Uuid], *, now_ms: int
) -> QuorumFormat:
    """Return the format of a new cluster; endpoints are the controllers' addresses by node id."""
    cluster_id = str(new_uuid())
    voters = tuple(
        Voter(node_id, new_uuid(), (VoterAddress(CONTROLLER_LISTENER, host, port),))
        for node_id, (host, port) in endpoints.items()
    )
    return QuorumFormat(cluster_id, voters, now_ms)


def format_node(
    config: Mapping[str, str],
    quorum: QuorumFormat,
    directories: Mapping[str, Directory],
    new_uuid: Callable[[], Uuid],
    feature_levels: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Format a node's directories, by path; features without a level get their newest."""
    parsed = parse_broker_config(config)
    format_directories(
        parsed,
        FormatRequest(
            cluster_id=quorum.cluster_id,
            initial_controllers=quorum.voters if parsed.is_controller else (),
            no_initial_controllers=parsed.is_controller and not quorum.voters,
            feature_levels=feature_levels,
        ),
        FormatTarget(
            directories=directories,
            new_uuid=new_uuid,
            now_ms=quorum.now_ms,
            date=_FORMAT_DATE,
            echo=lambda _line: None,
        ),
    )

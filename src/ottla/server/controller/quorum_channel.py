"""Requests of this member of the quorum to the other members.

Kafka: org.apache.kafka.raft.KafkaNetworkChannel.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla._version import __version__
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import KRAFT_VERSION
from ottla.network.node_channel import NodeChannel, Outgoing
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.purgatory.pending import Pending
from ottla.raft.requests import (
    FIRST_BOOTSTRAP_ID,
    NO_LEADER,
    DescribeVersions,
    LeaderAndEpoch,
    VersionsResponse,
)
from ottla.raft.voter_set import address_on
from ottla.raft.wire import requests, responses
from ottla.raft.wire.requests import DEFAULT_LIMITS, FetchLimits

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from ottla.clock import Clock
    from ottla.network.node_channel import Address, PeerSecurity
    from ottla.protocol.apis.api_versions import ApiVersionsResponse
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.raft.requests import Request, Response
    from ottla.raft.voter_set import Voter, VoterAddress

log = logging.getLogger("ottla.raft")


class QuorumAccess(NamedTuple):
    """The identity of this member, and the addresses of the quorum."""

    node_id: int
    cluster_id: str
    listener: str
    """The first of controller.listener.names: the other controllers are reached on it."""
    bootstrap: Sequence[Address]
    """controller.quorum.bootstrap.servers; they have the node ids -2, -3, ..."""
    request_timeout_ms: int
    limits: FetchLimits = DEFAULT_LIMITS


class QuorumChannel:
    """Sends requests to nodes; `send` is what `RaftDriver` takes."""

    def __init__(
        self,
        settings: QuorumAccess,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: TimingWheel,
        security: PeerSecurity | None = None,
    ) -> None:
        self._settings = settings
        client_id = f"raft-client-{settings.node_id}"
        self._nodes = NodeChannel(
            "quorum", client_id, loop=loop, clock=clock, timer=timer, security=security
        )
        self.foreign_controllers: set[Address] = set()
        """Addresses at which nodes of another cluster answered."""

    def send(
        self, node_id: int, endpoints: tuple[VoterAddress, ...], request: Request
    ) -> Pending[Response]:
        """Send a request; fails with KafkaError when there is no response in time."""
        settings = self._settings
        address = self._address(node_id, endpoints)
        try:
            if address is None:
                text = f"node {node_id} has no address on listener {settings.listener}"
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
            outgoing, read = self._prepared(request)
        except KafkaError as error:
            return Pending.failed(error)

        def checked(got: Any) -> Response:
            response = read(got)
            if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._found_foreign(address)
            return response

        return self._nodes.send_prepared(
            node_id, address, outgoing, timeout_ms=settings.request_timeout_ms
        ).then(checked)

    def _found_foreign(self, address: Address) -> None:
        """Log a node of another cluster, once for each address."""
        if address not in self.foreign_controllers:
            self.foreign_controllers.add(address)
            text = (
                "quorum: the controller at %s:%d is of another cluster than %s; check "
                "controller.quorum.bootstrap.servers and the log directory"
            )
            values = (*address, self._settings.cluster_id)
            log.error(text, *values, extra={"event": "quorum.other_cluster"})

    def _prepared(self, request: Request) -> tuple[Outgoing, Callable[[Any], Response]]:
        """Return how a request is sent and how its response is read."""
        _, cluster_id, listener, *_ = self._settings
        if isinstance(request, DescribeVersions):
            message = ApiVersionsRequest(
                client_software_name="ottla", client_software_version=__version__
            )
            return Outgoing(ApiVersionsRequest, lambda _version: message), _versions_of
        return Outgoing(
            requests.message_class(request),
            lambda version: requests.to_message(
                request, version, cluster_id=cluster_id, limits=self._settings.limits
            ),
        ), lambda got: responses.from_message(got, listener)

    def _address(self, node_id: int, endpoints: tuple[VoterAddress, ...]) -> Address | None:
        """Return the address of a node, None when it is unknown."""
        number = FIRST_BOOTSTRAP_ID - node_id
        if 0 <= number < len(self._settings.bootstrap):
            return self._settings.bootstrap[number]
        return address_on(endpoints, self._settings.listener)

    def why_no_leader(self, voters: Iterable[Voter]) -> str:
        """Return why no leader is known, and what to do."""
        if self.foreign_controllers:
            places = ", ".join(f"{host}:{port}" for host, port in sorted(self.foreign_controllers))
            return (
                f"the controllers at {places} are of another cluster: correct "
                "controller.quorum.bootstrap.servers or the log directory"
            )
        named = [str(one.voter_id) for one in voters]
        named = named or [f"{host}:{port}" for host, port in self._settings.bootstrap]
        return (
            f"no controller leads the quorum: a majority of the voters [{', '.join(named)}] must "
            "run; where that cannot be, see 'Repair the quorum' in docs/operations.md"
        )

    def close(self) -> None:
        """Close all connections; waiting and later requests fail."""
        self._nodes.close()


def _versions_of(response: ApiVersionsResponse) -> VersionsResponse:
    """Return the levels of kraft.version that a node supports: 0 where it names none."""
    error = ErrorCode(response.error_code)
    leader = LeaderAndEpoch(NO_LEADER, -1)
    for one in response.supported_features:
        if one.name == KRAFT_VERSION:
            return VersionsResponse(error, leader, one.min_version, one.max_version)
    return VersionsResponse(error, leader, 0, 0)

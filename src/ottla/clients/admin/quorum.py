"""Admin calls for the controller quorum, and for unregistering brokers.

Kafka: org.apache.kafka.clients.admin.{QuorumInfo, RaftVoterEndpoint, UnregisterBrokerResult}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import AdminCalls, raise_error
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
from ottla.types import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.types import Uuid


class VoterEndpoint(NamedTuple):
    """A listener of a controller."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class ReplicaState(NamedTuple):
    """A voter or observer; times in ms since the epoch, None while unknown."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class QuorumInfo(NamedTuple):
    """The described quorum; endpoints by voter id."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    endpoints: Mapping[int, tuple[VoterEndpoint, ...]]


class QuorumAdmin(AdminCalls):
    """The part of the admin for the quorum."""

    async def describe_metadata_quorum(self, *, timeout: float | None = None) -> QuorumInfo:
        """Return the quorum's leader, and the log end offset of each replica."""
        topic = DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(
            topics=[
                topic(
                    topic_name=METADATA_TOPIC, partitions=[topic.PartitionData(partition_index=0)]
                )
            ]
        )
        answer = await self._call(request, timeout=timeout)
        if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response contains no quorum")
        partition = answer.topics[0].partitions[0]
        raise_error(partition)
        return QuorumInfo(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            tuple(map(_replica, partition.current_voters)),
            tuple(map(_replica, partition.observers)),
            {
                node.node_id: tuple(VoterEndpoint(e.name, e.host, e.port) for e in node.listeners)
                for node in answer.nodes
            },
        )

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        endpoints: Iterable[VoterEndpoint],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Add a running controller to the voters; raises KafkaError."""
        listener = AddRaftVoterRequest.Listener
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=self._settings.request_timeout_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[listener(name=e.listener, host=e.host, port=e.port) for e in endpoints],
        )
        await self._change_voters(request, timeout)

    async def remove_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove a controller from the voters; raises KafkaError."""
        request = RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id
        )
        await self._change_voters(request, timeout)

    async def _change_voters(
        self, request: AddRaftVoterRequest | RemoveRaftVoterRequest, timeout: float | None
    ) -> None:
        """Send a change once: as in Kafka only another controller's turn is retried."""
        answer = await self._call(request, timeout=timeout, error_of=self._other_leader)
        raise_error(answer)

    def _other_leader(self, answer: Any) -> int:
        """Return the code of a response from a controller that is not the active one."""
        code: int = answer.error_code
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return code if self._uses_controllers else 0
        return code if code == ErrorCode.NOT_CONTROLLER else 0

    async def unregister_broker(self, broker_id: int, *, timeout: float | None = None) -> None:
        """Remove the registration of a broker that will not return; raises KafkaError."""
        await self._call(UnregisterBrokerRequest(broker_id=broker_id), timeout=timeout)


def _replica(state: Any) -> ReplicaState:
    return ReplicaState(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp if state.last_fetch_timestamp >= 0 else None,
        state.last_caught_up_timestamp if state.last_caught_up_timestamp >= 0 else None,
    )

"""How a broker reaches the active controller: one method an API, local for now.

Kafka: NodeToControllerChannelManager, ForwardingManager.

Every method returns a Pending that completes when the decision is committed, or fails with
KafkaError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.controller.result import RecordPermits
    from ottla.metadata.broker import FeatureRange
    from ottla.metadata.image.image import MetadataImage
    from ottla.protocol.apis.allocate_producer_ids import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )
    from ottla.protocol.apis.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
    )
    from ottla.protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from ottla.protocol.apis.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from ottla.protocol.apis.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from ottla.protocol.apis.broker_registration import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )
    from ottla.protocol.apis.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
    )
    from ottla.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from ottla.protocol.apis.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
    )
    from ottla.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from ottla.protocol.apis.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from ottla.protocol.apis.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from ottla.protocol.apis.unregister_broker import (
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
    )
    from ottla.protocol.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
    from ottla.purgatory.pending import Pending
    from ottla.raft.voter_set import VoterSet
    from ottla.types import Node


class ControllerChannel(Protocol):
    """What handlers and the broker itself know of a controller."""

    cluster_id: str
    supported_features: Mapping[str, FeatureRange]

    @property
    def active(self) -> bool:
        """Whether a controller takes operations."""

    @property
    def image(self) -> MetadataImage:
        """The committed metadata; the same object for ever, changed in place."""

    @property
    def voters(self) -> VoterSet:
        """The voters of the quorum."""

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version."""

    def voter_nodes(self, listener: str) -> list[Node]:
        """Return the controllers with the address of a listener, those without it left out."""

    def describe_quorum(self, request: DescribeQuorumRequest) -> Pending[DescribeQuorumResponse]:
        """Describe leader, voters and how far they are."""

    # Topics

    def create_topics(
        self, request: CreateTopicsRequest, record_permits: RecordPermits | None = None
    ) -> Pending[CreateTopicsResponse]:
        """Create topics; `record_permits` is called with the partitions of each."""

    def delete_topics(
        self, request: DeleteTopicsRequest, record_permits: RecordPermits | None = None
    ) -> Pending[DeleteTopicsResponse]:
        """Delete topics; fails with TOPIC_DELETION_DISABLED where that is switched off."""

    def create_partitions(
        self, request: CreatePartitionsRequest, record_permits: RecordPermits | None = None
    ) -> Pending[CreatePartitionsResponse]:
        """Add partitions to topics; `record_permits` is called with those of each."""

    def elect_leaders(self, request: ElectLeadersRequest) -> Pending[ElectLeadersResponse]:
        """Elect preferred or unclean leaders."""

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Pending[AlterPartitionReassignmentsResponse]:
        """Begin or cancel moves of partitions."""

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> Pending[ListPartitionReassignmentsResponse]:
        """List moves of partitions."""

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Pending[AssignReplicasToDirsResponse]:
        """Take note of the directories of replicas."""

    # Settings

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Pending[IncrementalAlterConfigsResponse]:
        """Change single settings."""

    def alter_configs(self, request: AlterConfigsRequest) -> Pending[AlterConfigsResponse]:
        """Replace all settings of resources."""

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest
    ) -> Pending[AlterClientQuotasResponse]:
        """Change quotas."""

    def update_features(self, request: UpdateFeaturesRequest) -> Pending[UpdateFeaturesResponse]:
        """Change feature levels."""

    # Brokers

    def register_broker(
        self, request: BrokerRegistrationRequest
    ) -> Pending[BrokerRegistrationResponse]:
        """Register a broker; it is fenced until a heartbeat shows that it has caught up."""

    def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> Pending[BrokerHeartbeatResponse]:
        """Hear of a broker; unfences it when it asks for that and has caught up."""

    def unregister_broker(
        self, request: UnregisterBrokerRequest
    ) -> Pending[UnregisterBrokerResponse]:
        """Take a broker out of the cluster."""

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> Pending[AllocateProducerIdsResponse]:
        """Give a broker its next 1000 producer ids."""

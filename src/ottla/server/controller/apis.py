"""What a controller decides when asked: one method an API.

Kafka: kafka.server.ControllerApis.

Every method returns a Pending that completes when the decision is committed, or fails with
KafkaError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.controller.controller import Controller
    from ottla.controller.result import RecordPermits
    from ottla.controller.runtime import ControllerRuntime
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


class ControllerApis:
    """A controller that may be active; all but the quorum's own questions go to the active one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runtime: ControllerRuntime | None = None

    @property
    def _running(self) -> ControllerRuntime:
        if self._runtime is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self._runtime

    @property
    def _controller(self) -> Controller:
        return self._running.controller

    # Topics

    def create_topics(
        self, request: CreateTopicsRequest, record_permits: RecordPermits | None = None
    ) -> Pending[CreateTopicsResponse]:
        """Create topics; `record_permits` is called with the partitions of each."""
        creation = self._controller.creation
        return self._running.write(lambda _: creation.create_topics(request, record_permits))

    def delete_topics(
        self, request: DeleteTopicsRequest, record_permits: RecordPermits | None = None
    ) -> Pending[DeleteTopicsResponse]:
        """Delete topics; fails with TOPIC_DELETION_DISABLED where that is switched off."""
        return self._running.write(
            lambda _: self._controller.delete_topics(request, record_permits)
        )

    def create_partitions(
        self, request: CreatePartitionsRequest, record_permits: RecordPermits | None = None
    ) -> Pending[CreatePartitionsResponse]:
        """Add partitions to topics; `record_permits` is called with those of each."""
        creation = self._controller.creation
        return self._running.write(lambda _: creation.create_partitions(request, record_permits))

    def elect_leaders(self, request: ElectLeadersRequest) -> Pending[ElectLeadersResponse]:
        """Elect preferred or unclean leaders."""
        return self._running.write(lambda _: self._controller.elections.elect_leaders(request))

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Pending[AlterPartitionReassignmentsResponse]:
        """Begin or cancel moves of partitions."""
        elections = self._controller.elections
        return self._running.write(lambda _: elections.alter_reassignments(request))

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> Pending[ListPartitionReassignmentsResponse]:
        """List moves of partitions."""
        elections = self._controller.elections
        return self._running.write(
            lambda _: ControllerResult([], elections.list_reassignments(request))
        )

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Pending[AssignReplicasToDirsResponse]:
        """Take note of the directories of replicas."""
        return self._running.write(lambda _: self._controller.assign_replicas_to_dirs(request))

    # Settings

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Pending[IncrementalAlterConfigsResponse]:
        """Change single settings."""
        return self._running.write(lambda _: self._controller.configs.alter_incrementally(request))

    def alter_configs(self, request: AlterConfigsRequest) -> Pending[AlterConfigsResponse]:
        """Replace all settings of resources."""
        return self._running.write(lambda _: self._controller.configs.alter(request))

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest
    ) -> Pending[AlterClientQuotasResponse]:
        """Change quotas."""
        return self._running.write(lambda _: self._controller.quotas.alter(request))

    def update_features(self, request: UpdateFeaturesRequest) -> Pending[UpdateFeaturesResponse]:
        """Change feature levels."""
        return self._running.write(lambda _: self._controller.update_features(request))

    # Brokers

    def register_broker(
        self, request: BrokerRegistrationRequest
    ) -> Pending[BrokerRegistrationResponse]:
        """Register a broker; it is fenced until a heartbeat shows that it has caught up."""
        now_ms = self._clock.monotonic_ms()
        return self._running.write(
            lambda offset: self._controller.register_broker(
                request, next_offset=offset, now_ms=now_ms
            )
        )

    def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> Pending[BrokerHeartbeatResponse]:
        """Hear of a broker; unfences it when it asks for that and has caught up."""
        now_ms = self._clock.monotonic_ms()
        return self._running.write(
            lambda offset: self._controller.broker_heartbeat(
                request, next_offset=offset, now_ms=now_ms
            )
        )

    def unregister_broker(
        self, request: UnregisterBrokerRequest
    ) -> Pending[UnregisterBrokerResponse]:
        """Take a broker out of the cluster."""
        return self._running.write(lambda _: self._controller.unregister_broker(request))

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> Pending[AllocateProducerIdsResponse]:
        """Give a broker its next 1000 producer ids."""
        return self._running.write(lambda _: self._controller.allocate_producer_ids(request))

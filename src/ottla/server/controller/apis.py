"""The APIs that a controller decides, as the `ControllerChannel` of its own node.

Requests are answered by the active controller only: NOT_CONTROLLER elsewhere.

Kafka: kafka.server.ControllerApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.controller.result import ControllerResult, Decision
from ottla.protocol.api_keys import request_class
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.alter_configs import AlterConfigsRequest
from ottla.protocol.apis.alter_partition import AlterPartitionRequest
from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.apis.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.controller_registration import ControllerRegistrationRequest
from ottla.protocol.apis.create_acls import CreateAclsRequest
from ottla.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_acls import DeleteAclsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from ottla.server.controller.quorum_view import answer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clock import Clock
    from ottla.controller.controller import Controller
    from ottla.controller.result import RecordPermits
    from ottla.controller.runtime import ControllerRuntime
    from ottla.protocol.schema import Request
    from ottla.purgatory.pending import Pending
    from ottla.quota.rates import MutationQuota
    from ottla.security.principal import Principal
    from ottla.server.controller.channel import Requester
    from ottla.server.controller.quorum_view import QuorumView

    Result: TypeAlias = Decision[Any]
    Operation: TypeAlias = Callable[[Any], Result]
    Mutation: TypeAlias = Callable[[Any, RecordPermits | None], Result]
    TokenOperation: TypeAlias = Callable[[Any, Principal, int], Result]
    BrokerOperation: TypeAlias = Callable[..., Result]


class ControllerApis:
    """Implements `ControllerChannel` on the controller's own node."""

    def __init__(
        self,
        runtime: ControllerRuntime,
        quorum: QuorumView,
        *,
        cluster_id: str,
        clock: Clock,
        mutation_quota: MutationQuota,
    ) -> None:
        controller = runtime.controller
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._clock = clock
        self._mutation_quota = mutation_quota
        self._operations = _operations(controller, quorum, clock)
        self._mutations: Mapping[type[Request], Mutation] = {
            CreateTopicsRequest: controller.creation.create_topics,
            DeleteTopicsRequest: controller.delete_topics,
            CreatePartitionsRequest: controller.creation.create_partitions,
        }
        self._token_operations: Mapping[type[Request], TokenOperation] = {
            CreateDelegationTokenRequest: controller.tokens.create,
            RenewDelegationTokenRequest: controller.tokens.renew,
            ExpireDelegationTokenRequest: controller.tokens.expire,
        }
        self._broker_operations: Mapping[type[Request], BrokerOperation] = {
            BrokerRegistrationRequest: controller.register_broker,
            BrokerHeartbeatRequest: controller.broker_heartbeat,
        }

    def send(self, request: Request, requester: Requester | None = None) -> Pending[Any]:
        """Decide a request; complete when the decision is committed. Fails with KafkaError."""
        kind = request_class(request.message_key)  # one with unknown tags has a class of its own
        if isinstance(request, AddRaftVoterRequest | RemoveRaftVoterRequest):
            driver = self._runtime.driver
            return answer_of(driver, request, self._cluster_id, kind.versions.highest, "")
        operation = self._operations.get(kind)
        if operation is not None:
            return self._runtime.write(lambda: operation(request))
        broker_operation = self._broker_operations.get(kind)
        if broker_operation is not None:
            now_ms = self._clock.monotonic_ms()
            return self._runtime.write(
                lambda: broker_operation(request, next_offset=self._next_offset, now_ms=now_ms)
            )
        token_operation = self._token_operations.get(kind)
        if token_operation is not None and requester is not None:
            principal, wall_ms = requester.principal, self._clock.now_ms()
            return self._runtime.write(lambda: token_operation(request, principal, wall_ms))
        mutation = self._mutations[kind]
        if requester is not None:
            return self._mutate(mutation, request, requester)
        return self._runtime.write(lambda: mutation(request, None))

    def _next_offset(self) -> int:
        return self._runtime.next_offset

    def _mutate(self, mutation: Mutation, request: Request, requester: Requester) -> Pending[Any]:
        """Apply the client's quota on created and deleted partitions (KIP-599)."""
        principal, client_id, is_strict, *_ = requester
        now_ms = self._clock.monotonic_ms
        permits = self._mutation_quota.permits_for(
            principal.name, client_id, now_ms(), is_strict=is_strict
        )

        def with_throttle_time(response: Any) -> Any:
            response.throttle_time_ms = permits.throttle_time_ms(now_ms())
            return response

        answer = self._runtime.write(lambda: mutation(request, permits.record))
        return answer.then(with_throttle_time)


def _operations(
    controller: Controller, quorum: QuorumView, clock: Clock
) -> Mapping[type[Request], Operation]:
    """Return the operations that need only the request."""
    reassignments, configs = controller.reassignments, controller.configs
    return {
        AlterPartitionRequest: controller.alter_partition.alter,
        ElectLeadersRequest: controller.elections.elect_leaders,
        AlterPartitionReassignmentsRequest: reassignments.alter,
        ListPartitionReassignmentsRequest: lambda request: ControllerResult(
            [], reassignments.list(request)
        ),
        AssignReplicasToDirsRequest: controller.assign_replicas_to_dirs,
        IncrementalAlterConfigsRequest: configs.alter_incrementally,
        AlterConfigsRequest: configs.alter,
        AlterClientQuotasRequest: controller.quotas.alter,
        AlterUserScramCredentialsRequest: controller.scram.alter,
        CreateAclsRequest: controller.acls.create,
        DeleteAclsRequest: controller.acls.delete,
        UpdateFeaturesRequest: controller.update_features,
        ControllerRegistrationRequest: controller.cluster.register_controller,
        UnregisterBrokerRequest: controller.unregister_broker,
        AllocateProducerIdsRequest: controller.allocate_producer_ids,
        DescribeQuorumRequest: lambda request: ControllerResult(
            [], quorum.describe(request, clock)
        ),
    }

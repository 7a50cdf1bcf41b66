"""Rights of APIs about the cluster: administration, traffic between nodes, and those for all.

Kafka: kafka.server.{KafkaApis, ControllerApis}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasResponse
from ottla.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.apis.alter_replica_log_dirs import AlterReplicaLogDirsResponse
from ottla.protocol.apis.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from ottla.protocol.apis.create_acls import CreateAclsResponse
from ottla.protocol.apis.delete_acls import DeleteAclsResponse
from ottla.protocol.apis.describe_client_quotas import DescribeClientQuotasResponse
from ottla.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)
from ottla.protocol.apis.elect_leaders import ElectLeadersResponse
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersResponse
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.requests.guards import Denied, guards

if TYPE_CHECKING:
    from ottla.server.requests.context import Context

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_ERROR: dict[str, Any] = {"error_code": int(_DENIED), "error_message": _DENIED.text}


def may(ctx: Context, operation: Operation) -> bool:
    """Whether the client may do this with the cluster."""
    return ctx.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def require(ctx: Context, operation: Operation) -> None:
    """Deny the whole request without a right on the cluster."""
    if not may(ctx, operation):
        raise KafkaError(_DENIED)


@guards(
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
)
def for_all(_ctx: Context, _request: Any) -> None:
    """No right: every client that may connect may send these."""


@guards(
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
def delegation_tokens(_ctx: Context, _request: Any) -> None:
    """None here: the handlers check first whether the login may use tokens at all, then rights."""


@guards(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(ctx: Context, _request: Any) -> None:
    """ALTER on the cluster at a controller; a broker answers everyone."""
    if ctx.listener == "controller":
        require(ctx, Operation.ALTER)


@guards(
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_ACLS,
)
def describe(ctx: Context, _request: Any) -> None:
    """DESCRIBE on the cluster."""
    require(ctx, Operation.DESCRIBE)


@guards(ApiKey.LIST_CONFIG_RESOURCES)
def describe_configs(ctx: Context, _request: Any) -> None:
    """DESCRIBE_CONFIGS on the cluster."""
    require(ctx, Operation.DESCRIBE_CONFIGS)


@guards(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(ctx: Context, _request: Any) -> Denied | None:
    """DESCRIBE_CONFIGS on the cluster; the refusal has no text and no list, as in Kafka."""
    if may(ctx, Operation.DESCRIBE_CONFIGS):
        return None
    return Denied(
        DescribeClientQuotasResponse(error_code=int(_DENIED), error_message=None, entries=None)
    )


@guards(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(ctx: Context, request: Any) -> Denied | None:
    """DESCRIBE on the cluster; the refusal names no user, as in Kafka.

    A request for all users (users=null) without the right gets no response from Kafka; here it is
    refused.
    """
    if may(ctx, Operation.DESCRIBE):
        return None
    answer = DescribeUserScramCredentialsResponse
    refused = answer.DescribeUserScramCredentialsResult
    nameless: dict[str, Any] = {"error_code": int(_DENIED), "error_message": None}
    results = [refused(user="", **nameless, credential_infos=[]) for _ in request.users or ()]
    return Denied(answer(**nameless, results=results))


@guards(ApiKey.ELECT_LEADERS)
def elect_leaders(ctx: Context, request: Any) -> Denied | None:
    """ALTER on the cluster; else each partition is refused, too."""
    if may(ctx, Operation.ALTER):
        return None
    topic = ElectLeadersResponse.ReplicaElectionResult
    results = [
        topic(
            topic=named.topic,
            partition_result=[
                topic.PartitionResult(partition_id=index, **_ERROR) for index in named.partitions
            ],
        )
        for named in request.topic_partitions or ()
    ]
    code = int(_DENIED) if ctx.api_version else 0  # version 0 has none for the whole request
    return Denied(ElectLeadersResponse(error_code=code, replica_election_results=results))


@guards(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(ctx: Context, request: Any) -> Denied | None:
    """ALTER on the cluster; else each partition is refused, too."""
    if may(ctx, Operation.ALTER):
        return None
    topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    partition = topic.ReassignablePartitionResponse
    responses = [
        topic(
            name=named.name,
            partitions=[
                partition(partition_index=one.partition_index, **_ERROR) for one in named.partitions
            ],
        )
        for named in request.topics
    ]
    return Denied(AlterPartitionReassignmentsResponse(**_ERROR, responses=responses))


@guards(
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)
def alter(ctx: Context, _request: Any) -> None:
    """ALTER on the cluster."""
    require(ctx, Operation.ALTER)


@guards(
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
)
def between_nodes(ctx: Context, _request: Any) -> None:
    """CLUSTER_ACTION: what nodes send to each other."""
    require(ctx, Operation.CLUSTER_ACTION)


@guards(ApiKey.WRITE_TXN_MARKERS)
def write_txn_markers(ctx: Context, request: Any) -> Denied | None:
    """ALTER on the cluster or CLUSTER_ACTION; else each partition is refused."""
    may_alter = ctx.is_allowed(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if may_alter or may(ctx, Operation.CLUSTER_ACTION):
        return None
    marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = marker.WritableTxnMarkerTopicResult
    partition = topic.WritableTxnMarkerPartitionResult
    return Denied(
        WriteTxnMarkersResponse(
            markers=[
                marker(
                    producer_id=one.producer_id,
                    topics=[
                        topic(
                            name=named.name,
                            partitions=[
                                partition(partition_index=index, error_code=int(_DENIED))
                                for index in named.partition_indexes
                            ],
                        )
                        for named in one.topics
                    ],
                )
                for one in request.markers
            ]
        )
    )


@guards(ApiKey.ALTER_REPLICA_LOG_DIRS)
def alter_replica_log_dirs(ctx: Context, request: Any) -> Denied | None:
    """ALTER on the cluster; else each partition is refused."""
    if may(ctx, Operation.ALTER):
        return None
    topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
    partition = topic.AlterReplicaLogDirPartitionResult
    return Denied(
        AlterReplicaLogDirsResponse(
            results=[
                topic(
                    topic_name=named.name,
                    partitions=[
                        partition(partition_index=index, error_code=int(_DENIED))
                        for index in named.partitions
                    ],
                )
                for directory in request.dirs
                for named in directory.topics
            ]
        )
    )


@guards(ApiKey.ALTER_CLIENT_QUOTAS)
def alter_client_quotas(ctx: Context, request: Any) -> Denied | None:
    """ALTER_CONFIGS on the cluster; else each entry is refused."""
    if may(ctx, Operation.ALTER_CONFIGS):
        return None
    entry = AlterClientQuotasResponse.EntryData
    return Denied(
        AlterClientQuotasResponse(
            entries=[
                entry(
                    **_ERROR,
                    entity=[
                        entry.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                        for part in one.entity
                    ],
                )
                for one in request.entries
            ]
        )
    )


@guards(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
def alter_user_scram_credentials(ctx: Context, request: Any) -> Denied | None:
    """ALTER on the cluster; else each user is refused."""
    if may(ctx, Operation.ALTER):
        return None
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    return Denied(
        AlterUserScramCredentialsResponse(results=[result(user=name, **_ERROR) for name in names])
    )


@guards(ApiKey.CREATE_ACLS)
def create_acls(ctx: Context, request: Any) -> Denied | None:
    """ALTER on the cluster; else each entry is refused."""
    if may(ctx, Operation.ALTER):
        return None
    result = CreateAclsResponse.AclCreationResult
    return Denied(CreateAclsResponse(results=[result(**_ERROR) for _ in request.creations]))


@guards(ApiKey.DELETE_ACLS)
def delete_acls(ctx: Context, request: Any) -> Denied | None:
    """ALTER on the cluster; else each filter is refused."""
    if may(ctx, Operation.ALTER):
        return None
    result = DeleteAclsResponse.DeleteAclsFilterResult
    denied = [result(**_ERROR, matching_acls=[]) for _ in request.filters]
    return Denied(DeleteAclsResponse(filter_results=denied))

"""What the node is and speaks: versions, cluster, quorum, directories, producer ids, telemetry.

Kafka: KafkaApis.handleApiVersionsRequest and its neighbours.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.apis.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
from ottla.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from ottla.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.push_telemetry import PushTelemetryRequest
from ottla.protocol.apis.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
from ottla.types import METADATA_TOPIC, Uuid
from tests.conformance.differential.case import case

if TYPE_CHECKING:
    from ottla.protocol.schema import Request
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
INSTANCE = Uuid(b"telemetry client")
STABLE_PRODUCER_IDS = 5


def _producer(**options: Any) -> Fields:
    """Return fields for a broker that has its first block of producer ids."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        usual = {"transactional_id": None, "transaction_timeout_ms": 1000}
        at.once("producer ids", lambda: at.until(lambda: _has_ids(at), "producer ids are there"))
        return usual | options

    def _has_ids(at: Side) -> bool:
        answer = at.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1)
        return int(answer.error_code) == 0

    return fields


def same(**fields: Any) -> Fields:
    """Return fields that need nothing from the node."""
    return lambda at, version: fields


def _on_both(
    api: type[Request], name: str, fields: Fields, *errors: int, **options: Any
) -> list[Case]:
    """Return the case for both listeners; `controller` are the codes there when they differ."""
    others = options.pop("controller", errors)
    return [
        case(api, name, fields, errors=errors, **options),
        case(api, name, fields, errors=others, listener="controller", **options),
    ]


def _named(name: str, version: str) -> Fields:
    return same(client_software_name=name, client_software_version=version)


VERSIONS = [
    *_on_both(ApiVersionsRequest, "valid", _named("cases", "1.0")),
    *_on_both(
        ApiVersionsRequest, "no name", _named("", "1.0"), E_.INVALID_REQUEST, versions=(3, 99)
    ),
    *_on_both(
        ApiVersionsRequest, "bad name", _named("a b", "1"), E_.INVALID_REQUEST, versions=(3, 99)
    ),
    *_on_both(
        ApiVersionsRequest, "bad version", _named("a", "-1"), E_.INVALID_REQUEST, versions=(3, 99)
    ),
]
CLUSTER = [
    *_on_both(
        DescribeClusterRequest,
        "valid",
        same(),
        controller=[E_.INVALID_REQUEST, E_.MISMATCHED_ENDPOINT_TYPE],
    ),
    *_on_both(
        DescribeClusterRequest,
        "with operations",
        same(include_cluster_authorized_operations=True),
        controller=[E_.INVALID_REQUEST, E_.MISMATCHED_ENDPOINT_TYPE],
    ),
    *_on_both(
        DescribeClusterRequest,
        "of controllers",
        same(endpoint_type=2),
        E_.MISMATCHED_ENDPOINT_TYPE,
        controller=[],
        versions=(1, 99),
    ),
    *_on_both(
        DescribeClusterRequest,
        "of what is unknown",
        same(endpoint_type=9),
        E_.UNSUPPORTED_ENDPOINT_TYPE,
        versions=(1, 99),
    ),
    *_on_both(
        DescribeClusterRequest,
        "with fenced brokers",
        same(include_fenced_brokers=True),
        controller=[E_.MISMATCHED_ENDPOINT_TYPE],
        versions=(2, 99),
    ),
]


def _quorum(topic: str = "__cluster_metadata", partition: int = 0) -> Fields:
    requested = {"topic_name": topic, "partitions": [{"partition_index": partition}]}
    return same(topics=[requested])


QUORUM = [
    *_on_both(DescribeQuorumRequest, "valid", _quorum()),
    *_on_both(
        DescribeQuorumRequest, "unknown topic", _quorum("absent"), E_.UNKNOWN_TOPIC_OR_PARTITION
    ),
    *_on_both(
        DescribeQuorumRequest,
        "unknown partition",
        _quorum(partition=3),
        E_.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    *_on_both(DescribeQuorumRequest, "no topic", same(topics=[])),
]


def _dirs(*topics: tuple[str, list[int]]) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.filled("on-disk")
        return {"topics": [{"topic": name, "partitions": indexes} for name, indexes in topics]}

    return fields


def _moves(topic: str, partition: int, path: str | None = None) -> Fields:
    """Return the request for a directory; None stands for the node's only one."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        at.filled("on-disk")
        found = path or at.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results[0].log_dir
        topics = [{"name": topic, "partitions": [partition]}]
        return {"dirs": [{"path": found, "topics": topics}]}

    return fields


DIRECTORIES = [
    case(AlterReplicaLogDirsRequest, "valid, where it is", _moves("on-disk", 0)),
    case(
        AlterReplicaLogDirsRequest,
        "unknown directory",
        _moves("on-disk", 0, "/nowhere"),
        errors={E_.LOG_DIR_NOT_FOUND},
    ),
    case(
        AlterReplicaLogDirsRequest,
        "unknown topic",
        _moves("absent", 0),
        errors={E_.UNKNOWN_TOPIC_OR_PARTITION},
    ),
    case(DescribeLogDirsRequest, "valid, one topic", _dirs(("on-disk", [0]))),
    case(DescribeLogDirsRequest, "unknown partition", _dirs(("on-disk", [5]))),
    case(DescribeLogDirsRequest, "unknown topic", _dirs(("absent", [0]))),
    case(DescribeLogDirsRequest, "no topics", same(topics=[])),
]
PRODUCERS = [
    case(
        InitProducerIdRequest,
        "valid",
        _producer(),
        versions=(0, STABLE_PRODUCER_IDS),
    ),
    case(
        InitProducerIdRequest,
        "with an epoch",
        _producer(producer_id=5, producer_epoch=3),
        versions=(3, STABLE_PRODUCER_IDS),
    ),
    case(
        InitProducerIdRequest,
        "an epoch without a producer",
        _producer(producer_epoch=3),
        errors=[E_.INVALID_REQUEST],
        versions=(3, STABLE_PRODUCER_IDS),
    ),
    case(
        InitProducerIdRequest,
        "a producer without an epoch",
        _producer(producer_id=3),
        errors=[E_.INVALID_REQUEST],
        versions=(3, STABLE_PRODUCER_IDS),
    ),
    case(
        InitProducerIdRequest,
        "empty transactional id",
        same(transactional_id="", transaction_timeout_ms=1000),
        errors=[E_.INVALID_REQUEST],
        versions=(0, STABLE_PRODUCER_IDS),
    ),
    case(
        InitProducerIdRequest,
        "no timeout",
        _producer(transaction_timeout_ms=0),
        versions=(0, STABLE_PRODUCER_IDS),
    ),
]


def _subscription(at: Side) -> Any:
    return at.once(
        "subscription",
        lambda: at.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, client_instance_id=INSTANCE),
    )


def _pushed(**options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        known = _subscription(at).subscription_id
        return {"client_instance_id": INSTANCE, "subscription_id": known} | options

    return fields


TELEMETRY = [
    case(GetTelemetrySubscriptionsRequest, "valid, new client", same()),
    case(
        GetTelemetrySubscriptionsRequest,
        "known client",
        lambda at, v: {"client_instance_id": _subscription(at) and INSTANCE},
        errors=[E_.THROTTLING_QUOTA_EXCEEDED],
    ),
    case(PushTelemetryRequest, "valid, last words", _pushed(terminating=True)),
    case(PushTelemetryRequest, "after the last words", _pushed(), errors=[E_.INVALID_REQUEST]),
    case(PushTelemetryRequest, "no instance", same(), errors=[E_.INVALID_REQUEST]),
    case(
        PushTelemetryRequest,
        "another subscription",
        same(client_instance_id=Uuid(b"another instance"), subscription_id=99),
        errors=[E_.UNKNOWN_SUBSCRIPTION_ID],
    ),
]
SECURITY = [
    *_on_both(
        SaslHandshakeRequest,
        "valid, nothing to do",
        same(mechanism="PLAIN"),
        E_.ILLEGAL_SASL_STATE,
    ),
    *_on_both(
        SaslAuthenticateRequest,
        "valid, nothing to do",
        same(auth_bytes=b"x"),
        E_.ILLEGAL_SASL_STATE,
    ),
    case(DescribeUserScramCredentialsRequest, "valid, all", same(users=None)),
    case(
        DescribeUserScramCredentialsRequest,
        "unknown",
        same(users=[{"name": "unknown"}]),
        errors=[E_.RESOURCE_NOT_FOUND],
    ),
    case(
        DescribeUserScramCredentialsRequest,
        "valid, all",
        same(users=None),
        listener="controller",
        silent=True,
    ),
]


def _added(**options: Any) -> Fields:
    end = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}
    usual = {"cluster_id": None, "voter_id": 9, "voter_directory_id": INSTANCE, "listeners": [end]}
    return same(**(usual | options))


_ABSENT_IDS: Counter[str] = Counter()


def _absent(at: Side, version: int) -> dict[str, Any]:
    """Name another voter each time: a node that failed is not asked again for a while."""
    _ABSENT_IDS[at.name] += 1
    return _added(voter_id=20 + _ABSENT_IDS[at.name])(at, version)


def _lagging(at: Side, version: int) -> dict[str, Any]:
    """Name the address of the controller itself, which answers and does not fetch."""
    end = {"name": "CONTROLLER", "host": "127.0.0.1", "port": at.ports["controller"]}
    return _added(voter_id=8, listeners=[end])(at, version)


def _last_voter(at: Side, version: int) -> dict[str, Any]:
    topic = {"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}
    found = at.ask(ApiKey.DESCRIBE_QUORUM, topics=[topic]).topics[0].partitions[0]
    (voter,) = found.current_voters
    directory_id = voter.replica_directory_id
    return {"cluster_id": None, "voter_id": 1, "voter_directory_id": directory_id}


MEMBERS = [
    *_on_both(UnregisterBrokerRequest, "unknown", same(broker_id=7), E_.BROKER_ID_NOT_REGISTERED),
    *_on_both(
        AddRaftVoterRequest,
        "of another cluster",
        _added(cluster_id="other"),
        E_.INCONSISTENT_CLUSTER_ID,
    ),
    *_on_both(AddRaftVoterRequest, "there already", _added(voter_id=1), E_.DUPLICATE_VOTER),
    *_on_both(AddRaftVoterRequest, "without address", _added(listeners=[]), E_.INVALID_REQUEST),
    *_on_both(AddRaftVoterRequest, "no voter", _added(voter_id=-1), E_.INVALID_REQUEST),
    *_on_both(
        AddRaftVoterRequest,
        "no directory",
        _added(voter_directory_id=Uuid()),
        E_.INVALID_REQUEST,
    ),
    *_on_both(
        AddRaftVoterRequest,
        "on another listener",
        _added(listeners=[{"name": "OTHER", "host": "127.0.0.1", "port": 1}]),
        E_.INVALID_REQUEST,
    ),
    *_on_both(AddRaftVoterRequest, "not at its address", _absent, E_.REQUEST_TIMED_OUT),
    *_on_both(AddRaftVoterRequest, "has not fetched", _lagging, E_.REQUEST_TIMED_OUT),
    *_on_both(
        RemoveRaftVoterRequest,
        "of another cluster",
        same(cluster_id="other", voter_id=1, voter_directory_id=INSTANCE),
        E_.INCONSISTENT_CLUSTER_ID,
    ),
    *_on_both(
        RemoveRaftVoterRequest,
        "unknown",
        same(cluster_id=None, voter_id=9, voter_directory_id=INSTANCE),
        E_.VOTER_NOT_FOUND,
    ),
    *_on_both(RemoveRaftVoterRequest, "the last", _last_voter, E_.VOTER_NOT_FOUND),
    *_on_both(
        RemoveRaftVoterRequest,
        "no voter",
        same(cluster_id=None, voter_id=-1, voter_directory_id=INSTANCE),
        E_.INVALID_REQUEST,
    ),
    *_on_both(
        RemoveRaftVoterRequest,
        "no directory",
        same(cluster_id=None, voter_id=9, voter_directory_id=Uuid()),
        E_.INVALID_REQUEST,
    ),
]
CASES: list[Case] = [
    *MEMBERS,
    *VERSIONS,
    *CLUSTER,
    *QUORUM,
    *DIRECTORIES,
    *PRODUCERS,
    *TELEMETRY,
    *SECURITY,
]

"""The supported API keys and their message classes, imported on first use.

Kafka: org.apache.kafka.common.protocol.ApiKeys.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.protocol.schema import NO_VERSIONS, Versions

if TYPE_CHECKING:
    from ottla.protocol.schema import Request, Response


class ApiKey(IntEnum):
    """API keys, with Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def api_name(self) -> str:
        """Kafka's spelling: LIST_OFFSETS is ListOffsets."""
        return "".join(part.capitalize() for part in self.name.split("_"))


# Clients built on old librdkafka refuse a broker that does not advertise these versions of
# Produce, though none is served (KAFKA-18659).
_LOWEST_ADVERTISED = {ApiKey.PRODUCE: 0}


@cache
def _classes(key: int) -> tuple[Any, Any]:
    api = ApiKey(key)
    module = import_module(f"ottla.protocol.apis.{api.name.lower()}")
    return getattr(module, f"{api.api_name}Request"), getattr(module, f"{api.api_name}Response")


def request_class(key: int) -> type[Request]:
    """Return the request class; ValueError for a key that does not exist."""
    found: type[Request] = _classes(key)[0]
    return found


def response_class(key: int) -> type[Response]:
    """Return the response class; ValueError for a key that does not exist."""
    found: type[Response] = _classes(key)[1]
    return found


def request_header_version(key: int, version: int) -> int:
    """Return 2 for flexible versions, including unknown later ones, else 1."""
    return 2 if version >= first_flexible_request(key) else 1


@cache
def first_flexible_request(key: int) -> int:
    """Return the lowest version of an API whose request is flexible; ValueError for no API."""
    return _lowest(request_class(key).flexible)


@cache
def _first_flexible_response(key: int) -> int:
    never = key == ApiKey.API_VERSIONS  # clients read it before they know the broker's versions
    return _lowest(NO_VERSIONS if never else response_class(key).flexible)


def _lowest(versions: Versions) -> int:
    """Return the lowest of these versions; above all versions for an empty range."""
    return versions.lowest if versions.lowest in versions else 1 << 16


def response_header_version(key: int, version: int) -> int:
    """Return 1 for flexible versions, else 0; always 0 for ApiVersions (KIP-511)."""
    return 1 if version >= _first_flexible_response(key) else 0


def served_versions(key: int, *, unstable: bool = False) -> Versions:
    """Return the versions to serve; an unstable highest version only if enabled."""
    cls = request_class(key)
    hidden = cls.latest_version_unstable and not unstable
    return Versions(cls.versions.lowest, cls.versions.highest - hidden)


def advertised_versions(key: int, *, unstable: bool = False) -> Versions:
    """Return the versions for ApiVersions; for Produce more than are served."""
    lowest, highest = served_versions(key, unstable=unstable)
    return Versions(_LOWEST_ADVERTISED.get(ApiKey(key), lowest), highest)

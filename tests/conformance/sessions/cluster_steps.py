"""Steps of the cluster: nodes, quorum, features, client metrics, logins.

Kafka: none. No step changes what other sessions share: members and features are only refused, or
validated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey
from ottla.types import ZERO_UUID, Uuid
from tests.conformance.sessions.choices import CLIENTS, INT16, INT32
from tests.conformance.sessions.steps import Ref

if TYPE_CHECKING:
    from tests.conformance.sessions.choices import Choices

_METADATA_TOPIC = "__cluster_metadata"
_DIRECTORY_ID = Uuid(b"an odd directory")
_INSTANCE_ID = Ref("own_instance", ())
_FEATURES = ("metadata.version", "kraft.version", "nope", "")
_UNKNOWN_BROKERS = (7, -1, 2**31 - 1, -(2**31))
_ZSTD = 4


def get_subscriptions(pick: Choices, _version: int) -> dict[str, Any]:
    """Ask which metrics to push."""
    known = Ref("instance", (pick.rng.randrange(CLIENTS),))
    return {"client_instance_id": pick.mostly(pick.one(ZERO_UUID, known), _INSTANCE_ID)}


def push(pick: Choices, _version: int) -> dict[str, Any]:
    """Push metrics, mostly with the subscription that the client was answered."""
    slot = pick.rng.randrange(CLIENTS)
    subscription = Ref("subscription", (slot, pick.mostly(0, 1)))
    return {
        "client_instance_id": pick.mostly(Ref("instance", (slot,)), _INSTANCE_ID, ZERO_UUID),
        "subscription_id": pick.mostly(subscription, *INT32),
        "terminating": pick.chance(0.2),
        "compression_type": pick.mostly(0, 1, _ZSTD, 9, -1),
        "metrics": pick.mostly(b"", b"no metrics"),
    }


def describe_cluster(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe the brokers."""
    return {
        "include_cluster_authorized_operations": pick.chance(0.3),
        "endpoint_type": pick.mostly(1, 2, 9, 0, -1),
        "include_fenced_brokers": pick.chance(0.3),
    }


def describe_quorum(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe the quorum of the metadata topic, or of others."""
    names = pick.mostly([_METADATA_TOPIC], pick.topics(2), [_METADATA_TOPIC] * 2, odds=0.3)
    return {
        "topics": [
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": index}
                    for index in pick.mostly([0], pick.partitions(2), odds=0.2)
                ],
            }
            for name in names
        ]
    }


def update_features(pick: Choices, version: int) -> dict[str, Any]:
    """Validate levels of one feature: of several wrong ones Kafka names the first of a hash map.

    Version 0 cannot validate only: it names unknown features.
    """
    name = pick.one(*(_FEATURES if version else _FEATURES[2:]))
    updates = [
        {
            "feature": name,
            "max_version_level": pick.mostly(pick.one(29, 28, 20, 1), 99, *INT16, odds=0.3),
            "allow_downgrade": pick.chance(0.5),
            "upgrade_type": pick.mostly(pick.one(1, 2, 3), 0, 9, -1, odds=0.2),
        }
        for _ in range(pick.mostly(pick.one(1, 1, 2), 0, odds=0.05))
    ]
    return {"feature_updates": updates, "validate_only": True, "timeout_ms": 5000}


def unregister_broker(pick: Choices, _version: int) -> dict[str, Any]:
    """Remove a broker that is not there."""
    return {"broker_id": pick.one(*_UNKNOWN_BROKERS)}


def add_voter(pick: Choices, _version: int) -> dict[str, Any]:
    """Add a voter that is there, or with something wrong."""
    listener = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}
    wrong = pick.one("cluster", "voter", "listeners")
    return {
        "cluster_id": "other" if wrong == "cluster" else None,
        "timeout_ms": 1000,
        "voter_id": 1 if wrong == "voter" else pick.one(*_UNKNOWN_BROKERS),
        "voter_directory_id": pick.one(_DIRECTORY_ID, ZERO_UUID),
        "listeners": pick.one([], [listener | {"name": "NOPE"}])
        if wrong == "listeners"
        else [listener],
    }


def remove_voter(pick: Choices, _version: int) -> dict[str, Any]:
    """Remove a voter that is not there, or of another directory."""
    return {
        "cluster_id": pick.mostly(None, "other", "", odds=0.3),
        "voter_id": pick.one(1, *_UNKNOWN_BROKERS),
        "voter_directory_id": pick.one(_DIRECTORY_ID, ZERO_UUID),
    }


def scram(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe credentials: there are none."""
    users = [{"name": pick.mostly("{}-user", "", "{}-other")} for _ in range(pick.one(1, 1, 2, 3))]
    return {"users": pick.mostly(users, None, [])}


def api_versions(pick: Choices, _version: int) -> dict[str, Any]:
    """Ask for versions under good and bad names."""
    return {
        "client_software_name": pick.mostly("sessions", "", "a b", "-a", "a-", "a" * 300),
        "client_software_version": pick.mostly("1.0", "-", "", "1.0-x"),
    }


def handshake(pick: Choices, _version: int) -> dict[str, Any]:
    """Start a login where none is needed."""
    return {"mechanism": pick.mostly("PLAIN", "", "NOPE")}


def authenticate(pick: Choices, _version: int) -> dict[str, Any]:
    """Log in where no login is needed."""
    return {"auth_bytes": pick.mostly(b"x", b"")}


STEPS = (
    (1, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, get_subscriptions),
    (1, ApiKey.PUSH_TELEMETRY, push),
    (1, ApiKey.DESCRIBE_CLUSTER, describe_cluster),
    (1, ApiKey.DESCRIBE_QUORUM, describe_quorum),
    (1, ApiKey.UPDATE_FEATURES, update_features),
    (0.5, ApiKey.UNREGISTER_BROKER, unregister_broker),
    (0.5, ApiKey.ADD_RAFT_VOTER, add_voter),
    (0.5, ApiKey.REMOVE_RAFT_VOTER, remove_voter),
    (1, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, scram),
    (1, ApiKey.API_VERSIONS, api_versions),
    (0.3, ApiKey.SASL_HANDSHAKE, handshake),
    (0.3, ApiKey.SASL_AUTHENTICATE, authenticate),
)

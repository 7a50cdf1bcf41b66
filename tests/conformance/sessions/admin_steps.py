"""Steps of administration: topics, configs, quotas.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey
from ottla.types import ZERO_UUID
from tests.conformance.sessions.choices import INT16, INT32
from tests.conformance.sessions.steps import Ref

if TYPE_CHECKING:
    from tests.conformance.sessions.choices import Choices

_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32
_TOPIC_CONFIGS = (
    ("cleanup.policy", "compact", "delete", "compact,delete", "", "delete,delete", "nope"),
    ("compression.type", "producer", "uncompressed", "gzip", "lz4", "zstd", "snappy", "nope"),
    ("message.timestamp.type", "CreateTime", "LogAppendTime", "nope"),
    ("max.message.bytes", "1000000", "100", "0", "-1"),
    ("min.insync.replicas", "1", "2", "0"),
    ("segment.bytes", "1048576", "1"),
    ("retention.ms", "-1", "-1", "x", "-2"),
    ("message.timestamp.after.max.ms", "9223372036854775807", "-1"),
    ("index.interval.bytes", "1", "4096"),
    ("unclean.leader.election.enable", "true", "TRUE", "maybe"),
    ("nope", "1"),
)
_OTHER_CONFIGS = {
    _BROKER: (
        ("log.cleaner.threads", "1", "2", "9", "x"),
        ("min.insync.replicas", "1", "x"),
        ("log.retention.ms", "1000", "-1", "0"),
        ("log.dirs", "x"),
        ("nope", "1"),
        ("num.io.threads", "8", "100"),
    ),
    _METRICS: (
        ("interval.ms", "1000", "x", "1", "", "100", "3600001"),
        ("metrics", "a,b", "", "*", "a,a"),
        ("match", "client_id=a.*", "nope=1", "client_id=(", ""),
        ("nope", "1"),
    ),
    _GROUP: (
        ("consumer.session.timeout.ms", "50000", "1", "x"),
        ("consumer.heartbeat.interval.ms", "6000", "0"),
        ("share.auto.offset.reset", "earliest", "nope"),
        ("nope", "1"),
    ),
}
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def create_topics(pick: Choices, version: int) -> dict[str, Any]:
    """Create topics by counts or by assignments."""
    topics = []
    for name in pick.topics(2):
        # Kafka adds up counts in 32 bits and creates what overflows: no huge ones
        odd = (0, -5, 10_001, 10_000, -(2**31), *([-1] if version >= 4 else []))
        count = pick.mostly(pick.one(1, 2, 3), *odd)
        assigned = pick.chance(0.1)
        configs = [
            {"name": key, "value": pick.mostly(pick.one(*values), None, odds=0.02)}
            for key, *values in (pick.one(*_TOPIC_CONFIGS) for _ in range(pick.one(0, 0, 1, 2)))
        ]
        topics.append(
            {
                "name": name,
                "num_partitions": -1 if assigned else count,
                "replication_factor": -1 if assigned else pick.mostly(1, 2, *INT16),
                "assignments": [_assignment(pick, index) for index in range(pick.one(1, 2))]
                if assigned
                else [],
                "configs": configs,
            }
        )
    return {"topics": topics, "timeout_ms": 10_000, "validate_only": pick.chance(0.1)}


def _assignment(pick: Choices, index: int) -> dict[str, Any]:
    brokers: list[int] = pick.mostly([1], [9], [], [1, 1], [-1])
    return {"partition_index": pick.mostly(index, 5, 0, -1), "broker_ids": brokers}


def delete_topics(pick: Choices, version: int) -> dict[str, Any]:
    """Delete topics by name or id."""
    names = pick.topics(2)
    states: list[dict[str, Any]] = [
        {"name": None, "topic_id": Ref("topic_id", (name,))}
        if pick.chance(0.5)
        else {"name": name, "topic_id": ZERO_UUID}
        for name in names
    ]
    if pick.chance(0.08):
        states += [{"name": None, "topic_id": ZERO_UUID}] * pick.one(1, 2)
    return {"topic_names": names, "topics": states, "timeout_ms": 10_000}


def create_partitions(pick: Choices, _version: int) -> dict[str, Any]:
    """Grow topics."""
    topics = [
        {
            "name": name,
            # more than 10,000 new ones are a failure of Kafka's server, which creates some of them
            "count": pick.mostly(pick.one(2, 3, 4), *INT32[:4], -(2**31)),
            "assignments": [
                {"broker_ids": pick.mostly([1], [9], [], [1, 1])} for _ in range(pick.one(0, 1, 2))
            ]
            if pick.chance(0.1)
            else None,
        }
        for name in pick.topics(2)
    ]
    return {"topics": topics, "timeout_ms": 10_000, "validate_only": pick.chance(0.1)}


def metadata(pick: Choices, version: int) -> dict[str, Any]:
    """Describe topics, by name or id; never create any."""
    topics: Any = [{"name": name, "topic_id": ZERO_UUID} for name in pick.topics(3)]
    if version >= 12 and pick.chance(0.4):
        topics = [
            {"name": pick.mostly(None, name, odds=0.03), "topic_id": pick.topic_id(name)}
            for name in pick.topics(3)
        ]
    if version < 4:  # a name would be created
        topics = pick.one([]) if version == 0 or pick.chance(0.2) else None
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": pick.chance(0.2),
        "include_cluster_authorized_operations": pick.chance(0.2),
    }


def describe_topic_partitions(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe topics page by page."""
    names = pick.topics(3)
    cursor = None
    if pick.chance(0.3):
        # the highest number overflows in Kafka
        cursor = {"topic_name": pick.topic(), "partition_index": min(pick.partition(), 7)}
    return {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": pick.mostly(2000, 1, 2, *INT32, odds=0.3),
        "cursor": cursor,
    }


def _resource(pick: Choices) -> tuple[int, str, tuple[tuple[str, ...], ...]]:
    kind = pick.one(_TOPIC, _TOPIC, _TOPIC, _BROKER, _METRICS, _GROUP)
    if kind == _TOPIC:
        return kind, pick.topic(), _TOPIC_CONFIGS
    name = {
        _BROKER: pick.mostly("1", "", "7", "x", odds=0.4),
        _METRICS: pick.mostly("{}-m", ""),
        _GROUP: pick.mostly("{}-g0", ""),
    }[kind]
    return kind, name, _OTHER_CONFIGS[kind]


def incremental_alter_configs(pick: Choices, _version: int) -> dict[str, Any]:
    """Change single settings; those of brokers are only checked."""
    return _altered(pick, incrementally=True)


def alter_configs(pick: Choices, _version: int) -> dict[str, Any]:
    """Replace settings; those of brokers are only checked."""
    return _altered(pick, incrementally=False)


def _altered(pick: Choices, *, incrementally: bool) -> dict[str, Any]:
    resources: dict[tuple[int, str], dict[str, Any]] = {}
    for _ in range(pick.one(1, 1, 2)):
        kind, name, table = _resource(pick)
        configs = []
        for key, *values in {row[0]: row for row in (pick.one(*table) for _ in range(2))}.values():
            config: dict[str, Any] = {"name": key, "value": pick.mostly(pick.one(*values), None)}
            if incrementally:
                operation = pick.one(_SET, _SET, _SET, _DELETE, _APPEND, _SUBTRACT)
                if kind == _BROKER:  # an unknown one of others makes Kafka's controller resign
                    operation = pick.mostly(operation, 9, -1, odds=0.02)
                config["config_operation"] = operation
            configs.append(config)
        kind = pick.mostly(kind, 77, _LOGGER, odds=0.02)
        resources[kind, name] = {"resource_type": kind, "resource_name": name, "configs": configs}
    has_broker = any(kind in (_BROKER, _LOGGER) for kind, _ in resources)
    return {
        "resources": list(resources.values()),
        "validate_only": has_broker or pick.chance(0.1),
    }


def describe_configs(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe settings."""
    resources = []
    for _ in range(pick.one(1, 1, 2)):
        kind, name, table = _resource(pick)
        keys = [row[0] for row in table[:4]]
        if kind != _BROKER and pick.chance(0.3):
            keys = None  # type: ignore[assignment]  # all of them
        resources.append(
            {
                "resource_type": pick.mostly(kind, 77, 0, odds=0.03),
                "resource_name": name,
                "configuration_keys": pick.mostly(keys, [], odds=0.03),
            }
        )
    return {
        "resources": resources,
        "include_synonyms": pick.chance(0.5),
        "include_documentation": False,
    }


def list_config_resources(pick: Choices, _version: int) -> dict[str, Any]:
    """List what has settings."""
    kinds = pick.some((_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP, 0, 77), 2)
    return {"resource_types": kinds if pick.chance(0.7) else []}


def _entity(pick: Choices) -> list[dict[str, Any]]:
    parts = [
        {"entity_type": kind, "entity_name": pick.mostly(f"{{}}-{kind}", "{}-other", odds=0.3)}
        for kind in pick.mostly(pick.one(["user"], ["client-id"], ["user", "client-id"]), ["nope"])
    ]
    return pick.mostly(parts, [], parts * 2, odds=0.03)


def alter_client_quotas(pick: Choices, _version: int) -> dict[str, Any]:
    """Set and remove quotas of names that no client uses."""
    keys = ("consumer_byte_rate", "producer_byte_rate", "request_percentage", "nope")
    entries = [
        {
            "entity": _entity(pick),
            "ops": [
                {
                    "key": pick.one(*keys),
                    "value": pick.mostly(pick.one(1000.0, 5.5), 0.0, -1.0, 0.5, 1e300, odds=0.15),
                    "remove": pick.chance(0.25),
                }
                for _ in range(pick.one(1, 2))
            ],
        }
        for _ in range(pick.one(1, 1, 2))
    ]
    return {"entries": entries, "validate_only": pick.chance(0.15)}


def describe_client_quotas(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe quotas by filters that match exact names."""
    kinds = pick.one(["user"], ["client-id"], ["user", "client-id"])
    components = [
        {
            "entity_type": pick.mostly(kind, "nope", odds=0.04),
            "match_type": pick.mostly(0, 1, 2, 7, odds=0.2),
            "match": pick.mostly(f"{{}}-{kind}", "{}-other", None, ""),
        }
        for kind in kinds
    ]
    components = pick.mostly(components, [], components * 2, odds=0.04)
    return {"components": components, "strict": pick.chance(0.5)}


def elect_leaders(pick: Choices, _version: int) -> dict[str, Any]:
    """Elect leaders that lead already."""
    topics = [{"topic": name, "partitions": pick.partitions(2)} for name in set(pick.topics(2))]
    topics.sort(key=str)
    return {
        "election_type": pick.mostly(0, 1, 9, -1),
        "topic_partitions": pick.mostly(topics, None),
        "timeout_ms": 5000,
    }


def list_reassignments(pick: Choices, _version: int) -> dict[str, Any]:
    """List reassignments: there are none."""
    topics = [{"name": name, "partition_indexes": pick.partitions(2)} for name in pick.topics(2)]
    return {"timeout_ms": pick.int32(1000), "topics": pick.mostly(topics, None)}


STEPS = (
    (5, ApiKey.CREATE_TOPICS, create_topics),
    (2, ApiKey.DELETE_TOPICS, delete_topics),
    (2, ApiKey.CREATE_PARTITIONS, create_partitions),
    (4, ApiKey.METADATA, metadata),
    (2, ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions),
    (3, ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs),
    (1, ApiKey.ALTER_CONFIGS, alter_configs),
    (3, ApiKey.DESCRIBE_CONFIGS, describe_configs),
    (1, ApiKey.LIST_CONFIG_RESOURCES, list_config_resources),
    (1, ApiKey.ALTER_CLIENT_QUOTAS, alter_client_quotas),
    (2, ApiKey.DESCRIBE_CLIENT_QUOTAS, describe_client_quotas),
    (1, ApiKey.ELECT_LEADERS, elect_leaders),
    (1, ApiKey.LIST_PARTITION_REASSIGNMENTS, list_reassignments),
)

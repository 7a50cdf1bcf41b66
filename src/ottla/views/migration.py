"""Facts about a cluster that is to be migrated, and about the files of its nodes, as data.

Kafka: none.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.admin.configs import ConfigResource, ConfigSource, ResourceType
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import METADATA_VERSION
from ottla.security.acl import AclFilter, Operation, PatternType, Permission
from ottla.security.acl import ResourceType as AclResourceType
from ottla.types import TopicPartition
from ottla.views.configs import credentials
from ottla.views.health import ClusterHealth, examine
from ottla.views.topics import describe_topics
from ottla.views.transactions import hanging_transactions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.admin.cluster import FeatureRange
    from ottla.clients.blocking import Admin
    from ottla.config.problems import ConfigProblem
    from ottla.views.topics import TopicFacts

_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_DYNAMIC = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
HANGING_AFTER_MS = 15 * 60 * 1000
"""The default of transaction.max.timeout.ms: no coordinator leaves one open for longer."""


class BrokerFacts(NamedTuple):
    """A running broker; metadata_version is the highest level that it supports, 0 if unknown.

    Nothing in its answers says whether it is Kafka or Ottla.
    """

    address: str
    metadata_version: int


class DiskFacts(NamedTuple):
    """The file system of a running broker's log directory; -1 while unknown."""

    broker: int
    path: str
    total_bytes: int
    usable_bytes: int


class ClusterFacts(NamedTuple):
    """What a running cluster answers."""

    health: ClusterHealth
    brokers: Mapping[int, BrokerFacts]
    finalized: Mapping[str, FeatureRange]
    topics: list[TopicFacts]
    reassignments: list[str]
    groups: Mapping[str, int]
    """Number of groups by type."""
    open_transactions: int
    hanging_transactions: list[str]
    disks: list[DiskFacts]
    acls: int
    quotas: int
    scram_users: int
    dynamic: Mapping[int, Mapping[str, str | None]] = MappingProxyType({})
    """Each broker's settings in the metadata, its own over those of all; None hides a secret."""


class DirectoryFacts(NamedTuple):
    """A log directory on this machine."""

    path: str
    cluster_id: str = ""
    node_id: int = -1
    problem: str | None = None
    """Why it cannot be opened by a node."""
    total_bytes: int = -1
    usable_bytes: int = -1


class DynamicFacts(NamedTuple):
    """A setting in the cluster's metadata; None stands for a secret, and for none in the file."""

    name: str
    value: str | None
    file_value: str | None = None
    problem: str | None = None
    """Why Ottla does not apply it."""


class NodeFacts(NamedTuple):
    """A node's properties file, as `ottla server-start` reads it."""

    file: str
    node_id: int
    roles: tuple[str, ...]
    problems: tuple[ConfigProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    own_settings: tuple[str, ...] = ()
    """Names in the file that Kafka does not have."""
    python_classes: tuple[str, ...] = ()
    """`setting=class` of classes that Kafka cannot load."""
    directories: tuple[DirectoryFacts, ...] = ()
    missing_directories: tuple[str, ...] = ()
    """Paths that are not on this machine."""
    dynamic: tuple[DynamicFacts, ...] = ()


def read_cluster(admin: Admin, now_ms: int) -> ClusterFacts:
    """Query the cluster; raises KafkaError."""
    health = examine(admin)
    nodes = {node.node_id: node for node in admin.describe_cluster().brokers}
    names = sorted(topic.name for topic in admin.list_topics())
    topics = list(describe_topics(admin, names)) if names else []
    partitions = [
        TopicPartition(topic.name, partition.partition)
        for topic in topics
        for partition in topic.partitions
    ]
    hanging = hanging_transactions(admin, partitions, now_ms - HANGING_AFTER_MS)
    return ClusterFacts(
        health,
        {
            broker: _broker(admin, broker, f"{node.host}:{node.port}")
            for broker, node in nodes.items()
        },
        admin.describe_features().finalized,
        topics,
        sorted(map(str, admin.list_partition_reassignments())),
        Counter(group.type.capitalize() for group in admin.list_groups()),
        len(admin.list_transactions(states=_OPEN_STATES)),
        [f"{found.partition} of producer {found.producer.producer_id}" for found in hanging],
        [
            DiskFacts(broker, found.path, found.total_bytes, found.usable_bytes)
            for broker, directories in admin.describe_log_dirs(health.brokers).items()
            for found in directories
            if found.error is None
        ],
        _acl_count(admin),
        len(admin.describe_client_quotas()),
        len(credentials(admin, ["users"], [])),
        _dynamic(admin, nodes),
    )


def _dynamic(admin: Admin, brokers: Iterable[int]) -> dict[int, dict[str, str | None]]:
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
    found: dict[int, dict[str, str | None]] = {}
    for resource, entries in admin.describe_configs(resources).items():
        if isinstance(entries, KafkaError):
            raise entries
        found[int(resource.name)] = {
            entry.name: entry.value for entry in entries.values() if entry.source in _DYNAMIC
        }
    return found


def _broker(admin: Admin, broker: int, address: str) -> BrokerFacts:
    supported = admin.describe_features(broker).supported.get(METADATA_VERSION)
    return BrokerFacts(address, 0 if supported is None else supported.highest)


def _acl_count(admin: Admin) -> int:
    """Return the number of ACLs; 0 without an authorizer."""
    every = AclFilter(
        AclResourceType.ANY, PatternType.ANY, None, None, None, Operation.ANY, Permission.ANY
    )
    try:
        return len(admin.describe_acls(every))
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return 0
        raise

"""The health of a cluster as data: the problems of controllers, brokers, disks and partitions.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.admin.quorum import QuorumInfo
    from ottla.clients.admin.topics import PartitionDescription, TopicDescription
    from ottla.clients.blocking import Admin

_CAUGHT_UP_MS = 5_000
"""A controller whose log was behind the leader's for longer counts as behind."""
_MIN_ISR = "min.insync.replicas"


class ClusterHealth(NamedTuple):
    """The state of a cluster; the lists name problems."""

    cluster_id: str
    active_controller: int
    controller_epoch: int
    controllers: list[int]
    controllers_behind: list[int]
    brokers: list[int]
    brokers_down: list[int]
    offline_log_directories: list[str]
    full_log_directories: list[str]
    topics: int
    partitions: int
    leaderless_partitions: list[str]
    under_min_isr_partitions: list[str]
    under_replicated_partitions: list[str]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return self.active_controller >= 0 and not any(
            (
                self.controllers_behind,
                self.brokers_down,
                self.offline_log_directories,
                self.full_log_directories,
                self.leaderless_partitions,
                self.under_min_isr_partitions,
                self.under_replicated_partitions,
            )
        )

    def document(self) -> dict[str, object]:
        """Return the document of --json."""
        return {"healthy": self.is_healthy, **self._asdict()}


def examine(admin: Admin) -> ClusterHealth:
    """Query the cluster; raises KafkaError."""
    cluster = admin.describe_cluster(include_fenced_brokers=True)
    quorum = admin.describe_metadata_quorum()
    alive = [node.node_id for node in cluster.brokers if node.node_id not in cluster.fenced]
    topics = [
        topic for topic in admin.describe_topics().values() if not isinstance(topic, KafkaError)
    ]
    behind = _incomplete(topics)
    directories = [
        (f"{one.path} of broker {broker}", one)
        for broker, found in admin.describe_log_dirs(alive).items()
        for one in found
    ]
    return ClusterHealth(
        cluster_id=cluster.cluster_id,
        active_controller=quorum.leader_id,
        controller_epoch=quorum.leader_epoch,
        controllers=[voter.replica_id for voter in quorum.voters],
        controllers_behind=controllers_behind(quorum),
        brokers=alive,
        brokers_down=sorted(cluster.fenced),
        offline_log_directories=[name for name, one in directories if one.error is not None],
        full_log_directories=[
            name for name, one in directories if one.error is None and one.usable_bytes == 0
        ],
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics),
        leaderless_partitions=[str(name) for name, one in behind if one.leader is None],
        under_min_isr_partitions=_under_min_isr(admin, behind),
        under_replicated_partitions=[str(name) for name, _ in behind],
    )


def _incomplete(
    topics: Iterable[TopicDescription],
) -> list[tuple[TopicPartition, PartitionDescription]]:
    found = [
        (TopicPartition(topic.name, partition.partition), partition)
        for topic in topics
        for partition in topic.partitions
        if partition.leader is None or len(partition.isr) < len(partition.replicas)
    ]
    return sorted(found, key=lambda pair: pair[0])


def controllers_behind(quorum: QuorumInfo) -> list[int]:
    """Return the voters whose log has not reached the leader's for CAUGHT_UP_MS."""
    caught_up = {voter.replica_id: voter.last_caught_up_ms or 0 for voter in quorum.voters}
    newest = max(caught_up.values(), default=0)
    return [
        voter
        for voter, when in caught_up.items()
        if voter != quorum.leader_id and newest - when > _CAUGHT_UP_MS
    ]


def _under_min_isr(
    admin: Admin, behind: list[tuple[TopicPartition, PartitionDescription]]
) -> list[str]:
    """Return partitions below min.insync.replicas; only incomplete topics are queried."""
    from ottla.clients.admin.configs import ConfigResource, ResourceType

    names = dict.fromkeys(name.topic for name, _ in behind)
    if not names:
        return []
    minimum = {}
    resources = {ConfigResource(ResourceType.TOPIC, name): [_MIN_ISR] for name in names}
    for resource, entries in admin.describe_configs(resources).items():
        if not isinstance(entries, KafkaError):
            minimum[resource.name] = int(entries[_MIN_ISR].value or 1)
    return [str(name) for name, one in behind if len(one.isr) < minimum.get(name.topic, 1)]

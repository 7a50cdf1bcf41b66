"""Topics as data: partitions with their replicas, states and moves, and the topic's own settings.

Kafka: TopicCommand computes them while printing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.admin.cluster import PartitionReassignment
    from ottla.clients.blocking import Admin
    from ottla.types import Uuid

_NO_MOVES: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


class PartitionFacts(NamedTuple):
    """A partition by broker ids; elr is None if the cluster does not report it (KIP-966)."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def replication_factor(self) -> int:
        """The number of replicas, without those that a reassignment adds."""
        return len(self.replicas) - len(self.adding)


class TopicFacts(NamedTuple):
    """A topic; settings are those that are not defaults."""

    name: str
    topic_id: Uuid
    settings: dict[str, str | None]
    min_insync_replicas: int
    partitions: list[PartitionFacts]

    def document(self, partitions: list[PartitionFacts]) -> dict[str, object]:
        """Return the JSON of the topic with some of its partitions."""
        return {
            "topic": self.name,
            "topic_id": str(self.topic_id),
            "partition_count": len(self.partitions),
            "replication_factor": self.partitions[0].replication_factor,
            "configs": self.settings,
            "partitions": [partition._asdict() for partition in partitions],
        }


def describe_topics(admin: Admin, names: list[str]) -> Iterator[TopicFacts]:
    """Describe topics in the order of their names; raises the first KafkaError."""
    topics = admin.describe_topics(names)
    details = _details(admin, names)
    moves = {partition: (move.adding, move.removing) for partition, move in _moves(admin).items()}
    settings = _settings(admin, names)
    for name in names:
        topic = topics[name]
        if isinstance(topic, KafkaError):
            raise topic
        partitions = details.get(name) or [
            PartitionFacts(
                p.partition, p.leader.node_id if p.leader else None, p.replicas, p.isr, None, None
            )
            for p in topic.partitions
        ]
        entries = settings[name]
        minimum = entries.get("min.insync.replicas")
        yield TopicFacts(
            name,
            topic.topic_id,
            {key: entry.value for key, entry in entries.items() if not entry.is_default},
            1 if minimum is None else int(minimum.value),
            [
                PartitionFacts(*p[:6], *moves.get(TopicPartition(name, p.partition), _NO_MOVES))
                for p in partitions
            ],
        )


def _details(admin: Admin, names: list[str]) -> dict[str, list[PartitionFacts]]:
    """Describe topics with eligible leader replicas (KIP-966); empty where not supported."""
    from ottla.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest

    requested = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    details: dict[str, list[PartitionFacts]] = {}
    cursor: Any = None
    while True:
        request = DescribeTopicPartitionsRequest(topics=requested, cursor=cursor)
        try:
            answer = admin.request(request)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return {}
            raise
        for topic in answer.topics:
            if topic.name is not None and not topic.error_code:
                partitions = details.setdefault(topic.name, [])
                partitions += [
                    PartitionFacts(
                        p.partition_index,
                        p.leader_id if p.leader_id >= 0 else None,
                        tuple(p.replica_nodes),
                        tuple(p.isr_nodes),
                        tuple(p.eligible_leader_replicas or ()),
                        tuple(p.last_known_elr or ()),
                    )
                    for p in topic.partitions
                ]
        if answer.next_cursor is None:
            return details
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )
        requested = [topic for topic in requested if topic.name >= cursor.topic_name]


def _moves(admin: Admin) -> dict[TopicPartition, PartitionReassignment]:
    """Return all reassignments; none if the cluster refuses to list them."""
    try:
        return admin.list_partition_reassignments()
    except KafkaError as error:
        refused = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if error.code in refused:
            return {}
        raise


def _settings(admin: Admin, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of each topic."""
    from ottla.clients.admin.configs import ConfigResource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    settings = {}
    for resource, entries in admin.describe_configs(resources).items():
        if isinstance(entries, KafkaError):
            raise entries
        settings[resource.name] = entries
    return settings

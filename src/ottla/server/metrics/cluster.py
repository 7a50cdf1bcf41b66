"""Metrics of the cluster and of the quorum, read from the metadata image.

Elections and changes of in-sync sets are counted when metadata change, not on a request's path.

Kafka: ControllerMetadataMetrics, QuorumControllerMetrics, KafkaRaftMetrics, ReplicaManager's ISR
meters.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from ottla.metrics.families import Series, client_gauge, gauge, label_text, meter, own, rate
from ottla.metrics.samples import Meter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.partition import PartitionRegistration
    from ottla.server.broker.replication import Replication
    from ottla.server.controller.controller_node import ControllerNode

_ONE = ("",)
_CONTROLLER = ("kafka.controller", "KafkaController")

_ACTIVE = gauge(*_CONTROLLER, "ActiveControllerCount", "1 on the active controller.")
_OFFLINE = gauge(*_CONTROLLER, "OfflinePartitionsCount", "Partitions without a leader.")
_IMBALANCE = gauge(
    *_CONTROLLER, "PreferredReplicaImbalanceCount", "Partitions not led by the first replica."
)
_ACTIVE_BROKERS = gauge(*_CONTROLLER, "ActiveBrokerCount", "Brokers that are not fenced.")
_FENCED_BROKERS = gauge(*_CONTROLLER, "FencedBrokerCount", "Brokers that are fenced.")
_STOPPING_BROKERS = gauge(
    *_CONTROLLER, "ControlledShutdownBrokerCount", "Brokers in controlled shutdown."
)
_TOPICS = gauge(*_CONTROLLER, "GlobalTopicCount", "Topics of the cluster.")
_PARTITIONS = gauge(*_CONTROLLER, "GlobalPartitionCount", "Partitions of the cluster.")
_APPLIED = gauge(
    *_CONTROLLER, "LastAppliedRecordOffset", "Offset of the last metadata record applied."
)

_STATS = ("kafka.controller", "ControllerStats")
_UNCLEAN = meter(
    *_STATS,
    "UncleanLeaderElectionsPerSec",
    "Leaders elected that were neither in sync nor eligible.",
)
_ELIGIBLE = meter(
    *_STATS,
    "ElectionFromEligibleLeaderReplicasPerSec",
    "Leaders elected that were eligible but not in sync.",
)
_ISR = ("kafka.server", "ReplicaManager")
_SHRINKS = meter(*_ISR, "IsrShrinksPerSec", "Times an in-sync set led here lost a replica.")
_EXPANDS = meter(*_ISR, "IsrExpandsPerSec", "Times an in-sync set led here gained a replica.")
_MAX_LAG = gauge(
    "kafka.server",
    "ReplicaFetcherManager",
    "MaxLag",
    "The most records that a log here misses up to its leader's high watermark.",
)
_WINDOW = "oneminuterate"
_SHRINK_RATE = rate(*_ISR, "IsrShrinksPerSec", _WINDOW, "The same a second.")
_EXPAND_RATE = rate(*_ISR, "IsrExpandsPerSec", _WINDOW, "The same a second.")

_RAFT = "raft-metrics"
_RAFT_LEADER = client_gauge(_RAFT, "current-leader", "The quorum's leader, -1 unknown.")
_RAFT_EPOCH = client_gauge(_RAFT, "current-epoch", "The quorum's epoch.")
_RAFT_VOTE = client_gauge(_RAFT, "current-vote", "The node this one voted for; -1 for none.")
_RAFT_WATERMARK = client_gauge(_RAFT, "high-watermark", "How far metadata are committed.")
_RAFT_END = client_gauge(_RAFT, "log-end-offset", "End of the metadata log.")
_RAFT_VOTERS = client_gauge(_RAFT, "number-of-voters", "Voters of the quorum.")
_RAFT_APPENDS = client_gauge(
    _RAFT, "append-records-rate", "Metadata records appended a second, over a minute."
)
_RAFT_COMMIT = client_gauge(
    _RAFT, "commit-latency-avg", "Milliseconds that the last hundred commits took; NaN without any."
)
_RAFT_COMMIT_MAX = client_gauge(
    _RAFT, "commit-latency-max", "The longest of them; NaN without any."
)
_RAFT_STATE = client_gauge(_RAFT, "current-state", "1 for the state this node is in.")
_RAFT_STATE_NAMES = _RAFT_STATE._replace(reporter=f"{_RAFT_STATE.reporter}_info")

_BROKER_INFO = own("kafka_broker_info", "1 for each broker of the cluster.")
_BROKERS = own("kafka_brokers", "Brokers of the cluster.")


class ClusterMetrics:
    """The metrics of a controller and its image."""

    def __init__(
        self, node_id: int, controller: ControllerNode, replication: Replication, *, now_s: float
    ) -> None:
        self._node_id = node_id
        self._replication = replication
        self._controller = controller
        self._partition_counts: tuple[int, int, int] | None = None
        self.unclean_elections = 0
        self.eligible_elections = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self._appends = Meter(now_s, controller.quorum.log_end_offset)
        self._shrinks = Meter(now_s)
        self._expands = Meter(now_s)

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Count the elections and the changes of in-sync sets in a delta."""
        self._partition_counts = None
        for topic_id, partitions in delta.partitions_changed.items():
            topic = image.topics.by_id.get(topic_id)
            for index, before in partitions.items():
                if before is not None and topic is not None:
                    self._compare(before, topic.partitions[index])

    def _compare(self, before: PartitionRegistration, now: PartitionRegistration) -> None:
        elected = now.has_leader and now.leader != before.leader
        if elected and now.leader not in before.isr:
            if now.leader in before.eligible_leader_replicas:
                self.eligible_elections += 1
            else:
                self.unclean_elections += 1
        if now.leader == self._node_id and not elected:
            self.isr_shrinks += len(now.isr) < len(before.isr)
            self.isr_expands += len(now.isr) > len(before.isr)

    def tick(self, now_s: float) -> None:
        """Update the rates from the counts since the last tick."""
        self._appends.update(self._controller.quorum.log_end_offset, now_s)
        self._shrinks.update(self.isr_shrinks, now_s)
        self._expands.update(self.isr_expands, now_s)

    def collect(self) -> Iterator[Series]:
        """Yield all series."""
        controller = self._controller
        image = controller.image
        yield Series(_ACTIVE, _ONE, (int(controller.active),))
        if self._partition_counts is None:
            self._partition_counts = _partition_counts(image)
        partitions, offline, imbalanced = self._partition_counts
        yield Series(_OFFLINE, _ONE, (offline,))
        yield Series(_IMBALANCE, _ONE, (imbalanced,))
        brokers = list(image.cluster.brokers.values())
        fenced = sum(broker.fenced for broker in brokers)
        yield Series(_ACTIVE_BROKERS, _ONE, (len(brokers) - fenced,))
        yield Series(_FENCED_BROKERS, _ONE, (fenced,))
        stopping = sum(broker.in_controlled_shutdown for broker in brokers)
        yield Series(_STOPPING_BROKERS, _ONE, (stopping,))
        yield Series(_TOPICS, _ONE, (len(image.topics.by_id),))
        yield Series(_PARTITIONS, _ONE, (partitions,))
        yield Series(_APPLIED, _ONE, (image.offset_and_epoch.offset,))
        yield Series(_UNCLEAN, _ONE, (self.unclean_elections,))
        yield Series(_ELIGIBLE, _ONE, (self.eligible_elections,))
        yield Series(_SHRINKS, _ONE, (self.isr_shrinks,))
        yield Series(_EXPANDS, _ONE, (self.isr_expands,))
        yield Series(_MAX_LAG, _ONE, (self._replication.max_lag,))
        yield Series(_SHRINK_RATE, _ONE, (self._shrinks.one_minute_rate,))
        yield Series(_EXPAND_RATE, _ONE, (self._expands.one_minute_rate,))
        labels = tuple(
            label_text(id=broker.broker_id, address=f"{end.host}:{end.port}")
            for broker in brokers
            for end in list(broker.listeners.values())[:1]
        )
        yield Series(_BROKERS, _ONE, (len(brokers),))
        yield Series(_BROKER_INFO, labels, (1,) * len(labels))
        yield from self._raft()

    def _raft(self) -> Iterator[Series]:
        quorum = self._controller.quorum
        state = quorum.state
        # a candidate votes for itself, and a leader was one
        vote = self._node_id if state in {"leader", "candidate"} else -1
        yield Series(_RAFT_LEADER, _ONE, (quorum.leader_id,))
        yield Series(_RAFT_EPOCH, _ONE, (quorum.leader_epoch,))
        yield Series(_RAFT_VOTE, _ONE, (vote,))
        yield Series(_RAFT_VOTERS, _ONE, (len(list(quorum.voters)),))
        yield Series(_RAFT_WATERMARK, _ONE, (quorum.high_watermark,))
        yield Series(_RAFT_END, _ONE, (quorum.log_end_offset,))
        yield Series(_RAFT_APPENDS, _ONE, (self._appends.one_minute_rate,))
        commits = self._controller.commit_latencies_ms
        average = sum(commits) / len(commits) if commits else nan
        yield Series(_RAFT_COMMIT, _ONE, (average,))
        yield Series(_RAFT_COMMIT_MAX, _ONE, (max(commits, default=nan),))
        yield Series(_RAFT_STATE_NAMES, (label_text(current_state=state),), (1,))


def _partition_counts(image: MetadataImage) -> tuple[int, int, int]:
    """Count all partitions, those without a leader and those not led by the first replica."""
    every = [
        partition
        for topic in image.topics.by_id.values()
        for partition in topic.partitions.values()
    ]
    offline = sum(not partition.has_leader for partition in every)
    imbalanced = sum(partition.leader != partition.preferred_replica for partition in every)
    return len(every), offline, imbalanced

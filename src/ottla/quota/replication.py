"""Limits on the bytes that brokers replicate from each other, for the replicas that are listed.

`leader` limits what this broker sends to followers that are not in sync, `follower` what it fetches
for its own replicas that lag. All bytes of listed replicas count, those of replicas in sync
included; only replicas out of sync are throttled, so that a limit makes none fall out of sync.
`directories` limits the bytes copied by moves between log directories, of all replicas.

Kafka: kafka.server.ReplicationQuotaManager, TopicConfigHandler.updateThrottledList (KIP-73).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metadata.resources import ConfigResourceType
from ottla.metrics.sampled_stat import SampledStat, SampleWindow
from ottla.quota.rates import over_rate_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.image.configs import ConfigsImage
    from ottla.types import TopicPartition

UNLIMITED: Final = float((1 << 63) - 1)
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
_ALL: Final = "*"


class ReplicationQuota:
    """A limit in bytes per second, and the partitions to which it applies."""

    __slots__ = ("_listed", "_sample_ms", "_stat", "is_on", "is_used", "limit")

    def __init__(self, window: SampleWindow) -> None:
        self.limit = UNLIMITED
        self.is_on = False
        """Whether any partition is listed; otherwise nothing is measured."""
        self.is_used = False
        """Whether bytes were recorded since the start."""
        self._stat = SampledStat(window)
        self._sample_ms = window.sample_ms
        self._listed: dict[str, frozenset[int] | None] = {}
        """Partitions by topic; None for all of them."""

    def list_partitions(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Replace a topic's listed partitions; None lists all."""
        self._listed.pop(topic, None)
        if partitions is None or partitions:
            self._listed[topic] = partitions
        self.is_on = bool(self._listed)

    def is_listed(self, partition: TopicPartition) -> bool:
        """Whether the limit applies to a partition."""
        topic, index = partition
        if topic not in self._listed:
            return False
        listed = self._listed[topic]
        return listed is None or index in listed

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count copied bytes."""
        self.is_used = True
        self._stat.record(size_bytes, now_ms)

    def rate(self, now_ms: int) -> float:
        """Return the bytes per second since the oldest sample, which lasts one sample at least.

        Kafka: org.apache.kafka.common.metrics.stats.SimpleRate.
        """
        total = sum(sample.total for sample in self._stat.recorded(now_ms))
        return total * 1000 / self._window_ms(now_ms)

    def _window_ms(self, now_ms: int) -> int:
        starts_ms = (sample.start_ms for sample in self._stat.recorded(now_ms))
        return max(now_ms - min(starts_ms, default=now_ms), self._sample_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return after which time without copies the rate is that of the limit; 0 below it."""
        rate = self.rate(now_ms)
        over_ms = over_rate_ms(rate, self.limit, self._window_ms(now_ms))
        return over_ms if rate > self.limit else 0

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether listed replicas have to wait."""
        return self.rate(now_ms) > self.limit


class ReplicationQuotas:
    """The limits of a broker, from the settings of brokers and topics."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the sample windows."""
        window = SampleWindow(
            config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000
        )
        self.leader = ReplicationQuota(window)
        self.follower = ReplicationQuota(window)
        self.directories = ReplicationQuota(
            SampleWindow(
                config.alter_log_dirs_replication_quota_window_num,
                config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
            )
        )
        self._node_id: int = config.node_id

    def set_rates(self, configs: ConfigsImage) -> None:
        """Apply the rates stored for this broker, else those for all brokers."""
        stored = {
            **configs.of(ConfigResourceType.BROKER, ""),
            **configs.of(ConfigResourceType.BROKER, str(self._node_id)),
        }
        self.leader.limit = float(stored.get(LEADER_RATE, UNLIMITED))
        self.follower.limit = float(stored.get(FOLLOWER_RATE, UNLIMITED))
        self.directories.limit = float(stored.get(DIRECTORY_RATE, UNLIMITED))

    def set_replicas(self, topic: str, settings: Mapping[str, str]) -> None:
        """Apply the lists in a topic's settings; no settings remove them."""
        for quota, name in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
            quota.list_partitions(topic, self._listed(settings.get(name, "")))

    def _listed(self, text: str) -> frozenset[int] | None:
        """Return the partitions that pairs of partition:broker list for this broker."""
        if text.strip() == _ALL:
            return None
        pairs = (pair.split(":") for pair in text.split(",") if pair.strip())
        return frozenset(
            int(partition) for partition, broker in pairs if int(broker) == self._node_id
        )

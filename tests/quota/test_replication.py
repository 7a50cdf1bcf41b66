"""Limits on replication: which replicas, how much, over which time."""

from __future__ import annotations

import pytest

from ottla.config.broker import parse_broker_config
from ottla.metadata.image.configs import ConfigsImage
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.metrics.sampled_stat import SampleWindow
from ottla.quota.replication import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    UNLIMITED,
    ReplicationQuota,
    ReplicationQuotas,
)
from ottla.server.node.settings import development_defaults
from ottla.types import TopicPartition

NOW_MS = 1_000_000


def quotas(**settings: str) -> ReplicationQuotas:
    """Return those of broker 1."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return ReplicationQuotas(parse_broker_config({**development_defaults(), **dotted}))


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("*", {0, 1, 2}),
        (" * ", {0, 1, 2}),
        ("0:1,2:1", {0, 2}),
        ("0:1,1:2", {0}),
        ("1:2", set()),
        ("", set()),
    ],
)
def test_the_pairs_of_this_broker_are_listed(text: str, listed: set[int]) -> None:
    """Or all partitions of the topic."""
    limits = quotas()
    limits.set_replicas("t", {LEADER_REPLICAS: text})
    leader = limits.leader
    assert {one for one in range(3) if leader.is_listed(TopicPartition("t", one))} == listed
    assert leader.is_on is bool(listed)
    assert not leader.is_listed(TopicPartition("other", 0))
    assert not limits.follower.is_on
    limits.set_replicas("t", {FOLLOWER_REPLICAS: "*"})
    assert not leader.is_on
    assert limits.follower.is_listed(TopicPartition("t", 7))


def test_the_rate_of_one_broker_comes_before_that_of_all() -> None:
    """Without either nothing is limited."""
    limits, configs = quotas(), ConfigsImage()
    limits.set_rates(configs)
    assert (limits.leader.limit, limits.follower.limit) == (UNLIMITED, UNLIMITED)
    broker = ConfigResourceType.BROKER
    configs.by_resource[ConfiguredResource(broker, "")] = {LEADER_RATE: "5", FOLLOWER_RATE: "6"}
    configs.by_resource[ConfiguredResource(broker, "1")] = {LEADER_RATE: "7"}
    configs.by_resource[ConfiguredResource(broker, "2")] = {FOLLOWER_RATE: "8"}
    limits.set_rates(configs)
    assert (limits.leader.limit, limits.follower.limit) == (7.0, 6.0)


def test_the_rate_is_over_the_elapsed_time_of_one_sample_at_least() -> None:
    """Until the sample is older than the window: moving 3 MB at 300 kB/s takes ten seconds."""
    quota = ReplicationQuota(SampleWindow(11, 1000))
    quota.limit = 100.0
    quota.record(1000, NOW_MS)
    assert quota.rate(NOW_MS) == 1000.0
    assert quota.is_exceeded(NOW_MS + 9_900)
    assert not quota.is_exceeded(NOW_MS + 10_000)
    quota.record(100, NOW_MS + 10_000)
    assert quota.rate(NOW_MS + 10_000) == 110.0
    assert quota.rate(NOW_MS + 12_000) == 50.0
    assert quota.rate(NOW_MS + 22_000) == 0.0


def test_the_window_is_configured() -> None:
    """By replication.quota.window.num and .size.seconds."""
    limits = quotas(replication_quota_window_num="2", replication_quota_window_size_seconds="5")
    limits.leader.record(1000, NOW_MS)
    assert limits.leader.rate(NOW_MS) == 200.0

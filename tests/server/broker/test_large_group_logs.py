"""Groups whose partition of __consumer_offsets is larger than what is loaded at once."""

from __future__ import annotations

from ottla import Admin, OffsetAndMetadata, TopicPartition
from ottla.testing.cluster import Cluster

METADATA = "m" * 4000
BUFFER_BYTES = 10_000
COMMITS = 20


def test_groups_with_a_large_log_are_served_after_a_restart() -> None:
    """Every read but the last ends within a batch: offsets.load.buffer.size."""
    config = {"offsets.topic.num.partitions": 1, "offsets.load.buffer.size": BUFFER_BYTES}
    with Cluster(config=config) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("t")
            for offset in range(COMMITS):
                committed = {TopicPartition("t", 0): OffsetAndMetadata(offset, METADATA)}
                assert not any(admin.alter_group_offsets("g", committed).values())
        cluster.restart()
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            found = admin.list_group_offsets("g")
    assert found == {TopicPartition("t", 0): OffsetAndMetadata(COMMITS - 1, METADATA)}

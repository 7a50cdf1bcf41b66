"""Groups and the topic that keeps their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.blocking import Admin
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path


def test_groups_are_found_in_an_offsets_topic_made_with_another_setting(tmp_path: Path) -> None:
    """offsets.topic.num.partitions says how the topic is made; afterwards the topic itself says."""
    place, groups = TopicPartition("t", 0), [f"group-{n}" for n in range(4)]
    config = {"offsets.topic.num.partitions": "5"}
    with Cluster(config=config, data_dir=str(tmp_path)) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("t", 1)
            for name in groups:
                admin.alter_group_offsets(name, {place: 7})
        for count in ("50", "1"):
            cluster.shutdown()
            cluster.config["offsets.topic.num.partitions"] = count
            cluster.start()
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                found = [admin.list_group_offsets(name)[place] for name in groups]
                assert [one and one.offset for one in found] == [7] * len(groups)

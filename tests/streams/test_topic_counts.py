"""Numbers of partitions as workers find them, on a node."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.errors import KafkaError
from ottla.streams.run import spark_tasks
from ottla.streams.run.spark_tasks import TopicCounts
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    """Give a node."""
    with Cluster() as cluster:
        yield cluster


def test_a_number_is_asked_for_once_a_while(node: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by what another task has unpickled; a missing topic is an error each time."""
    given = {"kafka.bootstrap.servers": node.bootstrap, "maxOffsetsPerTrigger": "5"}
    find = TopicCounts(given)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        with pytest.raises(KafkaError, match="there is no topic 'counted'"):
            find("counted")
        admin.create_topic("counted", partitions=2)
        assert find("counted") == 2
        admin.create_partitions({"counted": 3})
    again = pickle.loads(pickle.dumps(find))
    assert again("counted") == 2
    monkeypatch.setattr(spark_tasks, "KNOWN_S", 0.0)
    assert again("counted") == 3

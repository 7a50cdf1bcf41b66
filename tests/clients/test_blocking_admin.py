"""The blocking admin client has what the asyncio one has, typed.

Kafka: no counterpart.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from ottla.clients.admin.admin import AsyncAdmin
from ottla.clients.admin.blocking import Admin
from ottla.clients.blocking import Producer
from ottla.errors import ErrorCode, KafkaError, UnsupportedVersion
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable


def test_every_call_is_there_and_looks_the_same() -> None:
    """A call added to AsyncAdmin is added to Admin in one line: name = waited_for(AsyncAdmin.name).

    Arguments, annotations and text are the same.
    """
    theirs: dict[str, Callable[..., object]] = {
        name: method
        for name, method in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction)
        if name[0] != "_" and name not in ("start", "close")
    }
    ours = {name for name in vars(Admin) if name[0] != "_" and name not in ("close", "metrics")}
    assert ours == set(theirs)
    for name, method in theirs.items():
        assert inspect.signature(getattr(Admin, name)) == inspect.signature(method)
        assert getattr(Admin, name).__doc__ == method.__doc__


def test_calls_wait() -> None:
    """Results come as from a plain function."""
    with Cluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("t", 2)
        assert [topic.name for topic in admin.list_topics()] == ["t"]
        assert admin.describe_cluster().controller is not None


def test_producers_places_and_moves_of_replicas() -> None:
    """An idempotent producer leaves its state; nothing moves; a replica is in the directory."""
    with Cluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("t", 1)
        where, nowhere = TopicPartition("t", 0), TopicPartition("t", 9)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("t", b"v", partition=0).result(60)
            producer.send("t", b"v", partition=0).result(60)
        for broker_id in (None, 1):
            found = admin.describe_producers([where], broker_id=broker_id)[where]
            assert isinstance(found, list)
            assert [one.last_sequence for one in found] == [1]
            assert found[0].transaction_start_offset is None
        missing = admin.describe_producers([nowhere])[nowhere]
        assert isinstance(missing, KafkaError)
        assert admin.list_partition_reassignments() == {}
        assert admin.list_partition_reassignments([where]) == {}
        moved = admin.alter_partition_reassignments({where: [1], nowhere: None})
        assert moved[where] is None
        unknown = moved[nowhere]
        assert unknown is not None
        assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        grown = admin.alter_partition_reassignments(
            {where: [1, 2]}, allow_replication_factor_change=False
        )
        refused = grown[where]
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        places = admin.describe_replica_log_dirs([(where, 1), (nowhere, 1)])
        assert places[where, 1].current_path == cluster.data_dir
        assert places[where, 1].future_path is None
        assert places[nowhere, 1].current_path is None


def test_lists_of_groups_are_narrowed_and_features_asked_of_a_node() -> None:
    """Groups by protocol as Java's withProtocolTypes; a node that is not there is no node."""
    with Cluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("t", 1)
        admin.alter_group_offsets("committed", {TopicPartition("t", 0): 0})
        assert [one.group_id for one in admin.list_groups(protocol_types=[""])] == ["committed"]
        assert admin.list_groups(protocol_types=["consumer"]) == []
        assert admin.describe_features(1).finalized == admin.describe_features().finalized
        with pytest.raises(KafkaError):
            admin.describe_features(9, timeout=0.3)


def test_the_cluster_gives_a_client_one_instance_id() -> None:
    """With a receiver of metrics the id is given once; without one there is none."""
    config = {"metric.reporters": "tests.server.node.receivers.Receiver"}
    with Cluster(config=config) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        given = admin.client_instance_id()
        assert given
        assert admin.client_instance_id() == given
    with (
        Cluster() as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        pytest.raises(UnsupportedVersion),
    ):
        admin.client_instance_id(timeout=60)

"""A node with users and rights in two lines."""

from __future__ import annotations

import pytest

from ottla import Consumer, Producer
from ottla.errors import KafkaError
from ottla.testing import ClusterError, SecuredCluster
from tests.waits import WAIT_S


def test_users_do_what_they_are_granted() -> None:
    """Alice writes, bob reads, and not the other way round."""
    with SecuredCluster("alice", "bob") as cluster:
        cluster.grant("alice", "write", "create", topic="orders")
        cluster.grant("bob", "read", topic="ord*", group="readers")
        with Producer(**cluster.login("alice")) as producer:
            producer.send("orders", b"one")
            producer.flush()
        with Consumer(
            "orders", group_id="readers", auto_offset_reset="earliest", **cluster.login("bob")
        ) as consumer:
            assert next(iter(consumer)).value == b"one"
        with Producer(**cluster.login("bob")) as producer:
            sent = producer.send("orders", b"two")
            with pytest.raises(KafkaError, match="uthoriz"):
                sent.result(WAIT_S)
        with pytest.raises(ClusterError, match="no user carol"):
            cluster.login("carol")

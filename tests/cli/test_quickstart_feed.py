"""What the quickstart reads back of a job that writes in transactions."""

from __future__ import annotations

from ottla import Producer
from ottla.clients.blocking import Admin
from ottla.quickstart.feed import read_all
from ottla.testing.cluster import Cluster


def test_committed_records_are_read_to_the_end() -> None:
    """The last offset is a marker, and records of an aborted transaction are left out."""
    with Cluster() as node:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            admin.create_topic("weeks")
        with Producer(bootstrap_servers=node.bootstrap, transactional_id="job") as producer:
            producer.init_transactions()
            for value, is_committed in ((b"1", True), (b"2", False), (b"3", True)):
                producer.begin_transaction()
                producer.send("weeks", value, b"k").result(60)
                (producer.commit_transaction if is_committed else producer.abort_transaction)()
        assert [one.value for one in read_all(node.bootstrap, "weeks")] == [b"1", b"3"]

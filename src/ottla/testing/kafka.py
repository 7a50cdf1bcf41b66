"""What the `kafka` fixture is: fresh names, topics, waiting on state, settings for any client.

Kafka: nothing like it; its users start containers.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.testing.topic import TestTopic, table
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clients.blocking import Admin, Consumer, Producer
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.testing.cluster import Cluster

_POLL_S = 0.02
_NAMES = itertools.count(1)


class Kafka:
    """One test's view of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topics: list[TestTopic] = []
        self.groups: list[str] = []
        self._producer: Producer | None = None
        self._admin: Admin | None = None
        self._making = threading.Lock()  # tests have threads: one of two producers was never closed

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        return self.cluster.bootstrap

    @property
    def producer(self) -> Producer:
        """A producer without lingering, made on first use."""
        with self._making:
            if self._producer is None:
                from ottla.clients.blocking import Producer

                self._producer = Producer(bootstrap_servers=self.bootstrap)
            return self._producer

    @property
    def admin(self) -> Admin:
        """An admin client, made on first use."""
        with self._making:
            if self._admin is None:
                from ottla.clients.blocking import Admin

                self._admin = Admin(bootstrap_servers=self.bootstrap)
            return self._admin

    # Names and topics

    def topic(
        self,
        name: str = "topic",
        *,
        partitions: int = 1,
        compact: bool = False,
        exact: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> TestTopic:
        """Create a topic; its name is made unique unless `exact`."""
        full = name if exact else self._unique(name)
        settings = dict(config or {})
        if compact:
            settings["cleanup.policy"] = "compact"
        self.admin.create_topic(full, partitions=partitions, configs=settings)
        created = TestTopic(full, self)
        self.topics.append(created)
        return created

    def group(self, name: str = "group") -> str:
        """Return a unique group id; the report of a failing test shows its lag."""
        unique = self._unique(name)
        self.groups.append(unique)
        return unique

    def _unique(self, name: str) -> str:
        return f"{name}-{next(_NAMES)}-{time.time_ns() % 1_000_000_007:x}"

    def consumer(self, *topics: str, group: str | None = None, **settings: Any) -> Consumer:
        """Return a native consumer that reads from the beginning; close it yourself."""
        from ottla.clients.blocking import Consumer

        settings.setdefault("auto_offset_reset", "earliest")
        if group is not None:
            settings["group_id"] = group
        consumer = Consumer(bootstrap_servers=self.bootstrap, **settings)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    # Settings for stock clients

    def confluent(self, **more: Any) -> dict[str, Any]:
        """Return a configuration for confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap, **more}

    def kafka_python(self, **more: Any) -> dict[str, Any]:
        """Return keyword arguments for kafka-python."""
        return {"bootstrap_servers": self.bootstrap, **more}

    def aiokafka(self, **more: Any) -> dict[str, Any]:
        """Return keyword arguments for aiokafka."""
        return {"bootstrap_servers": self.bootstrap, **more}

    def spark_options(self, **more: str) -> dict[str, str]:
        """Return options for Spark's `format("ottla")` (or the official connector)."""
        return {"kafka.bootstrap.servers": self.bootstrap, **more}

    # State

    def offsets(self, topic: str, partition: int, *, earliest: bool) -> int:
        """Return one end of a partition."""
        where = TopicPartition(topic, partition)
        found = self.admin.list_offsets(
            {where: EARLIEST_TIMESTAMP if earliest else LATEST_TIMESTAMP}
        )
        answer = found[where]
        if isinstance(answer, KafkaError):
            raise answer
        return answer.offset

    def read_all(self, topic: TestTopic, *, read_committed: bool = False) -> list[ConsumerRecord]:
        """Return all records of a topic that are there now."""
        partitions = topic.partitions()
        isolation = "read_committed" if read_committed else "read_uncommitted"
        with self.consumer(isolation_level=isolation) as consumer:
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends = consumer.end_offsets(partitions)
            records: list[ConsumerRecord] = []
            while any(consumer.position(one) < ends[one] for one in partitions):
                records += consumer.poll(1.0)
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return a group's committed offsets."""
        found = self.admin.list_group_offsets(group)
        return {where: one.offset for where, one in found.items() if one is not None}

    def lag(self, group: str) -> int:
        """Return how many records the group has not committed, over the topics of this test."""
        committed = self.committed(group)
        known = {where.topic for where in committed}
        partitions = [p for topic in self.topics if topic in known for p in topic.partitions()]
        for where in committed:
            if where not in partitions:
                partitions.append(where)
        return sum(
            self.offsets(where.topic, where.partition, earliest=False)
            - committed.get(where, self.offsets(where.topic, where.partition, earliest=True))
            for where in partitions
        )

    def wait_lag(self, lag: int, *, group: str, timeout: float = 10.0) -> None:
        """Wait until the group has committed something and lags by no more than `lag` records."""
        self.wait(
            lambda: bool(self.committed(group)) and self.lag(group) <= lag,
            timeout,
            lambda: f"group {group} did not reach lag {lag}\n{self.describe()}",
        )

    def wait_assigned(self, group: str, *, members: int = 1, timeout: float = 10.0) -> None:
        """Wait until the group is stable with this many members."""

        def is_assigned() -> bool:
            description = self.admin.describe_groups([group])[group]
            if isinstance(description, KafkaError):
                return False
            return description.state == "Stable" and len(description.members) == members

        self.wait(
            is_assigned,
            timeout,
            lambda: f"group {group} has not become stable with {members} member(s)",
        )

    def wait(self, condition: Callable[[], bool], timeout: float, text: Callable[[], str]) -> None:
        """Wait for a condition on the broker's state; AssertionError with a text after timeout."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() >= deadline:
                raise AssertionError(text())
            time.sleep(_POLL_S)

    # Faults and the end

    def kill(self, _node: int = 1) -> None:
        """End the node as `kill -9` would."""
        self.cluster.kill()

    def start(self, _node: int = 1) -> None:
        """Start a killed or stopped node again on its data and port."""
        self.cluster.start()

    def describe(self) -> str:
        """Return topics with their records, and groups with their lag: for a failing test."""
        if not self.cluster.is_running:
            return "the broker is not running"
        lines = []
        try:
            lines.append(f"broker {self.bootstrap}")
            for topic in self.topics:
                lines += [f"topic {topic!s}:", table(self.read_all(topic), 20)]
            lines += [f"group {group}: lag {self.lag(group)}" for group in self.groups]
        except Exception as error:  # noqa: BLE001 - a report must not hide the test's own failure
            lines.append(f"(the broker could not be asked: {error})")
        return "\n".join(lines)

    def close(self) -> None:
        """Close the clients that the fixture made."""
        producer, self._producer = self._producer, None
        admin, self._admin = self._admin, None
        try:
            if producer is not None:
                producer.close(timeout=1.0)
        finally:
            if admin is not None:
                admin.close()

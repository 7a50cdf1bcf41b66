"""The object of the `kafka` fixtures: unique names, topics, waiting, settings for any client.

Kafka: none; its users start containers.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

from ottla.clients.arguments import either
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.testing.client_settings import of_confluent, of_python_clients
from ottla.testing.cluster import Cluster, ForeignCluster, as_text
from ottla.testing.errors import ClusterError, raised_at_the_call
from ottla.testing.expectation import table
from ottla.testing.topic import TestTopic
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self, Unpack

    from ottla.clients.blocking import Admin, Consumer, Producer
    from ottla.clients.keywords import ConsumerSettings
    from ottla.clients.share.blocking import ShareConsumer
    from ottla.testing.deliveries import GroupDeliveries
    from ottla.testing.expectation import Expectation
    from ottla.testing.fault_disk import DiskFaults
    from ottla.testing.fault_environment import ClusterClock
    from ottla.testing.fault_network import NetworkFaults

_POLL_S = 0.02
_REMOVAL_S = 5.0
CLOSE_TIMEOUT_S = 1.0
_NAMES = itertools.count(1)


class Timeouts(TypedDict):
    """Settings of clients, in ms."""

    request_timeout_ms: int
    default_api_timeout_ms: int


_TIMEOUTS: Final[Timeouts] = {"request_timeout_ms": 5000, "default_api_timeout_ms": 15_000}
"""Timeouts of the fixture's clients: nodes of tests respond within seconds or not at all."""


class KafkaFactory(Protocol):
    """The type of the `kafka_cluster` fixture."""

    def __call__(
        self,
        *,
        nodes: int = 1,
        config: Mapping[str, object] | None = None,
        data_dir: str | None = None,
    ) -> Kafka:
        """Start a cluster that lives until the end of the test."""


class Kafka:
    """One test's view of a cluster; `with Kafka(cluster) as kafka` in fixtures of your own.

    >>> with Cluster() as cluster, Kafka(cluster) as kafka:
    ...     orders = kafka.topic("orders", partitions=3)
    ...     _ = orders.produce_json({"item": "tea"}, key="item")
    ...     with kafka.consumer(orders, group=kafka.group()) as consumer:
    ...         print(next(iter(consumer)).value)
    ...     orders.values_json()
    b'{"item": "tea"}'
    [{'item': 'tea'}]
    """

    def __init__(self, cluster: Cluster | ForeignCluster, *, is_shared: bool = False) -> None:
        """Take a cluster; is_shared says that later tests use it."""
        self.cluster = cluster
        self.is_shared = is_shared
        self.topics: list[TestTopic] = []
        self.groups: list[str] = []
        self._exact: list[str] = []
        self.sent: dict[tuple[str, int, int], tuple[bytes | None, Any]] = {}
        """What `produce` was given, by topic, partition and offset, with its bytes."""
        self.unchecked: list[Expectation] = []
        self._producer: Producer | None = None
        self._admin: Admin | None = None
        self._consumers: list[Consumer | ShareConsumer] = []
        self._deliveries: dict[str, GroupDeliveries] = {}
        self._making = threading.Lock()  # threads of a test share one producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    @raised_at_the_call
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        return self.cluster.bootstrap

    @property
    def client_settings(self) -> dict[str, str]:
        """The `config` of native clients: the address, and what `--ottla-config` gives."""
        return {**self.cluster.client_settings, "bootstrap.servers": self.bootstrap}

    @property
    def producer(self) -> Producer:
        """A producer without lingering, made on first use."""
        with self._making:
            if self._producer is None:
                from ottla.clients.blocking import Producer

                self._producer = Producer(config=self.client_settings)
            return self._producer

    @contextmanager
    def transaction(self, transactional_id: str | None = None) -> Iterator[Producer]:
        """Send records in a transaction: it commits at the block's end, or aborts on an error.

        A unique id is generated unless one is given.
        """
        from ottla.clients.blocking import Producer

        name = transactional_id or self._unique("transaction")
        with (
            Producer(config=self.client_settings, transactional_id=name) as producer,
            producer.transaction(),
        ):
            yield producer

    @property
    def admin(self) -> Admin:
        """An admin client, made on first use."""
        with self._making:
            if self._admin is None:
                from ottla.clients.blocking import Admin

                self._admin = Admin(config=self.client_settings, **_TIMEOUTS)
            return self._admin

    # Names and topics

    @raised_at_the_call
    def topic(
        self,
        name: str = "topic",
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        compact: bool = False,
        exact: bool = False,
        config: Mapping[str, object] | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> TestTopic:
        """Create a topic and wait, up to 10 s, for its leaders.

        Parameters:
            name: the beginning of the name, which is made unique; the name itself with `exact`.
            replication_factor: by default a replica on each of up to three nodes.
            compact: whether cleanup.policy is compact.
            config: settings of the topic; `configs`, the admin client's word, is the same.

        Raises ConfigErrors for a setting that topics do not have, KafkaError as `create_topic`.
        """
        full = name if exact else self._unique(name)
        chosen = either("config", config, configs) or {}
        settings = {name: as_text(value) for name, value in chosen.items()}
        if compact:
            settings["cleanup.policy"] = "compact"
        self.cluster.check_topic_settings(settings)
        self.admin.create_topic(full, partitions, replication_factor, configs=settings)
        self.wait(
            lambda: self._has_leaders(full),
            10.0,
            lambda: f"topic {full} was created, but its partitions have no leaders after 10 s",
        )
        if exact:
            self._exact.append(full)
        created = TestTopic(full, self)
        self.topics.append(created)
        return created

    def _has_leaders(self, topic: str) -> bool:
        found = self.admin.describe_topics([topic])[topic]
        return not isinstance(found, KafkaError) and all(
            partition.leader is not None for partition in found.partitions
        )

    def group(self, name: str = "group") -> str:
        """Return a unique group id; the report of a failing test shows its lag."""
        unique = self._unique(name)
        self.groups.append(unique)
        return unique

    def _unique(self, name: str) -> str:
        return f"{name}-{next(_NAMES)}-{secrets.token_hex(4)}"

    @raised_at_the_call
    def consumer(
        self, *topics: str, group: str | None = None, **settings: Unpack[ConsumerSettings]
    ) -> Consumer:
        """Return a native consumer that reads from the beginning.

        Close it, or use it in `with`; the end of the test closes one that is left open.
        """
        from ottla.clients.blocking import Consumer

        settings = {"auto_offset_reset": "earliest", **_TIMEOUTS, **settings}
        if group is not None:
            settings["group_id"] = group
        consumer = Consumer(*topics, config=self.client_settings, **settings)
        self._consumers.append(consumer)
        return consumer

    @raised_at_the_call
    def share_consumer(
        self, *topics: str, group: str, **settings: Unpack[ConsumerSettings]
    ) -> ShareConsumer:
        """Return a native share consumer of a group that reads from the beginning.

        `assert_delivered` checks its records. Close it, or use it in `with`; the end of the test
        closes one that is left open.
        """
        from ottla.clients.admin.configs import ConfigResource, ResourceType
        from ottla.testing.deliveries import CountedShareConsumer, GroupDeliveries

        if group not in self._deliveries:
            self._deliveries[group] = GroupDeliveries()
            beginning = {"share.auto.offset.reset": "earliest"}
            self.admin.alter_configs({ConfigResource(ResourceType.GROUP, group): beginning})
        consumer = CountedShareConsumer(
            *topics,
            on_records=self._deliveries[group].note,
            config=self.client_settings,
            **{**_TIMEOUTS, **settings, "group_id": group},
        )
        self._consumers.append(consumer)
        return consumer

    # Settings for stock clients

    def confluent(self, **more: Any) -> dict[str, Any]:
        """Return a configuration for confluent-kafka: `confluent(group_id="g")` has `group.id`.

        Names of callbacks (`error_cb`, `on_commit`) keep their underscores.
        """
        dotted = {_dotted(name): value for name, value in more.items()}
        needed = of_confluent(self.cluster.client_settings)
        return {"bootstrap.servers": self.bootstrap, **needed, **dotted}

    def kafka_python(self, **more: Any) -> dict[str, Any]:
        """Return keyword arguments for kafka-python."""
        needed = of_python_clients(self.cluster.client_settings)
        return {"bootstrap_servers": self.bootstrap, **needed, **more}

    def aiokafka(self, **more: Any) -> dict[str, Any]:
        """Return keyword arguments for aiokafka."""
        needed = of_python_clients(self.cluster.client_settings)
        return {"bootstrap_servers": self.bootstrap, **needed, **more}

    def spark_options(self, **more: str) -> dict[str, str]:
        """Return options for Spark's `format("ottla")` (or the official connector)."""
        needed = {f"kafka.{name}": value for name, value in self.client_settings.items()}
        return {**needed, **more}

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

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return a group's committed offsets."""
        found = self.admin.list_group_offsets(group)
        return {where: one.offset for where, one in found.items() if one is not None}

    def lag(self, group: str) -> int:
        """Return how many records the group has not committed.

        They are counted in the topics of this test of which it has committed an offset; of a group
        that has committed none, in all of them, from the start of each log. Of a share group it is
        what was not delivered completely.
        """
        if group in self._deliveries:
            return sum(self._share_lag(group).values())
        committed = self.committed(group)
        known = {where.topic for where in committed} or set(map(str, self.topics))
        partitions = [p for topic in self.topics if topic in known for p in topic.partitions()]
        for where in committed:
            if where not in partitions:
                partitions.append(where)
        return sum(
            self.offsets(where.topic, where.partition, earliest=False)
            - committed.get(where, self.offsets(where.topic, where.partition, earliest=True))
            for where in partitions
        )

    def _share_lag(self, group: str) -> dict[TopicPartition, int]:
        found = self.admin.list_share_group_offsets(group)
        return {
            where: one.lag
            for where, one in found.items()
            if one is not None and not isinstance(one, KafkaError) and one.lag is not None
        }

    @raised_at_the_call
    def assert_delivered(self, *topics: str, group: str, times: int = 1) -> None:
        """Check that consumers of `share_consumer` got each record of the topics `times` times."""
        names = set(map(str, topics))
        records = [r for topic in self.topics if str(topic) in names for r in topic.records()]
        self._deliveries[group].check(group, records, times)

    @raised_at_the_call
    def wait_lag(self, lag: int, *, group: str, timeout: float = 30.0) -> None:
        """Wait until the group has committed something and lags by no more than `lag` records.

        Of a share group: until it has begun to read.
        """
        self.wait(
            lambda: self._has_begun(group) and self.lag(group) <= lag,
            timeout,
            lambda: f"group {group} did not reach lag {lag}\n{self.describe()}",
        )

    def _has_begun(self, group: str) -> bool:
        return bool(self._share_lag(group) if group in self._deliveries else self.committed(group))

    @raised_at_the_call
    def wait_assigned(self, group: str, *, members: int = 1, timeout: float = 30.0) -> None:
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

    @raised_at_the_call
    def wait(self, condition: Callable[[], bool], timeout: float, text: Callable[[], str]) -> None:
        """Wait for a condition on the broker's state; AssertionError with a text after timeout."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() >= deadline:
                raise AssertionError(text())
            time.sleep(_POLL_S)

    # Faults and the end

    @property
    def clock(self) -> ClusterClock:
        """The clock of the nodes; `kafka.clock.advance(days=8)`.

        Raises ClusterError on the node that all tests share: it would stay ahead for later tests.
        """
        if self.is_shared:
            raise ClusterError(
                "the clock of the node that all tests share cannot be moved, because it does not "
                "go back: take kafka_cluster(), or mark the test with @pytest.mark.kafka(config=…)"
            )
        return self._own.clock

    @property
    def network(self) -> NetworkFaults:
        """The links of several nodes; `kafka.network.cut(1, 2)`, `kafka.network.heal()`."""
        return self._own.network

    @raised_at_the_call
    def disk(self, node: int = 1) -> DiskFaults:
        """Return a node's disks; `kafka.disk(1).fill()`, `kafka.disk(1).heal()`."""
        return self._own.node(node).disk

    @contextmanager
    def partition_network(self, *groups: Iterable[int | str]) -> Iterator[None]:
        """Cut every link between nodes of different groups, and heal them at the end."""
        self.network.partition(*groups)
        try:
            yield
        finally:
            self.network.heal()

    @property
    def _own(self) -> Cluster:
        if isinstance(self.cluster, ForeignCluster):
            raise ClusterError(f"{self.bootstrap} cannot have faults injected (--ottla-url)")
        return self.cluster

    @raised_at_the_call
    def kill(self, node: int = 1) -> None:
        """End a node as `kill -9` would."""
        self.cluster.kill(node)

    @raised_at_the_call
    def stop(self, node: int = 1) -> None:
        """Stop a node cleanly."""
        self.cluster.stop(node)

    @raised_at_the_call
    def start(self, node: int = 1) -> None:
        """Start a killed or stopped node again on its data and port."""
        self.cluster.start(node)

    @raised_at_the_call
    def restart(self, node: int = 1) -> None:
        """Stop a node cleanly and start it again on its data and port."""
        self.cluster.restart(node)

    @raised_at_the_call
    def pause(self, node: int = 1) -> None:
        """Suspend a node until `resume`, as SIGSTOP would."""
        self.cluster.pause(node)

    @raised_at_the_call
    def resume(self, node: int = 1) -> None:
        """Resume a paused node."""
        self.cluster.resume(node)

    # Snapshots

    @raised_at_the_call
    def snapshot(self) -> int:
        """Keep topics, records, offsets and settings as they are now, for `restore`.

        The nodes are stopped cleanly and started again, which takes about a tenth of a second.
        Raises ClusterError on the node that all tests share.
        """
        self._refuse_shared()
        return self._own.snapshot()

    @raised_at_the_call
    def restore(self, snapshot: int) -> None:
        """Go back to a snapshot; the fixture's clients are closed, and made again on their use.

        Transactions that were open at the snapshot are aborted.
        """
        self._refuse_shared()
        self.close()
        self._own.restore(snapshot)

    def _refuse_shared(self) -> None:
        if self.is_shared:
            raise ClusterError(
                "the node that all tests share has no snapshots, because a restore would take "
                "other tests' topics away: take kafka_cluster(), or mark the test with "
                "@pytest.mark.kafka(config=…)"
            )

    def describe(self) -> str:
        """Return topics with their records, and groups with their lag: for a failing test."""
        if not self.cluster.is_running:
            return "the broker is not running"
        if isinstance(self.cluster, Cluster):
            self.cluster.heal()  # otherwise the report would wait for a paused node
        lines = []
        try:
            lines.append(f"broker {self.bootstrap}")
            for topic in self.topics:
                lines += [f"topic {topic!s}:", table(topic.records(), 20)]
            lines += [f"group {group}: lag {self.lag(group)}" for group in self.groups]
        except Exception as error:  # noqa: BLE001 - a report must not hide the test's own failure
            lines.append(f"(the broker does not respond: {error})")
        return "\n".join(lines)

    def remove_exact_topics(self) -> None:
        """Delete the topics whose names other tests may use as well."""
        if self._exact and self.cluster.is_running:
            with suppress(KafkaError):
                self.admin.delete_topics(self._exact, timeout=_REMOVAL_S)

    def close(self) -> None:
        """Close the clients that the fixture made; a cluster of the tests' own is healed first."""
        if isinstance(self.cluster, Cluster):
            self.cluster.heal()
        producer, self._producer = self._producer, None
        admin, self._admin = self._admin, None
        consumers, self._consumers = self._consumers, []
        with ExitStack() as closing:
            if admin is not None:
                closing.callback(admin.close)
            if producer is not None:
                closing.callback(producer.close, timeout=CLOSE_TIMEOUT_S)
            for consumer in consumers:
                closing.callback(_close_consumer, consumer)


def _close_consumer(consumer: Consumer | ShareConsumer) -> None:
    """Close a consumer that a test has left open, in another thread or without its broker."""
    with suppress(KafkaError, RuntimeError):
        consumer.close()


def _dotted(name: str) -> str:
    return name if name.startswith("on_") or name.endswith("_cb") else name.replace("_", ".")

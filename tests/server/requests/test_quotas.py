"""Quotas on a running node: set, described, held."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

import ottla
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.admin.quotas import ANY_NAME, QuotaChange
from ottla.errors import ErrorCode
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.frames import ResponseHeader
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request

TOPIC = "limited"
SLOWEST = 1
"""So few bytes a second that who is over it waits an hour: no test can see the end by accident."""
HOUR_MS = 3_600_000


class Wire:
    """One connection under one client id; requests go out before answers are asked for."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._client_id = client_id
        self._asked: list[tuple[ApiKey, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def send(self, request: Request, version: int) -> None:
        """Send a request."""
        key = ApiKey(request.message_key)
        items = frames.encode_request(request, version, 7, self._client_id)
        self._socket.sendall(b"".join(one for one in items if not isinstance(one, FileSlice)))
        self._asked.append((key, version))

    def answer(self) -> Any:
        """Return the answer to the oldest request that has none yet."""
        key, version = self._asked.pop(0)
        body = memoryview(self._exactly(int.from_bytes(self._exactly(4), "big")))
        header = response_header_version(key, version)
        position = codec.decode_at(ResponseHeader, header, body, 0)[1]
        return codec.decode_at(response_class(key), version, body, position)[0]

    def ask(self, request: Request, version: int) -> Any:
        """Send a request and return its answer."""
        self.send(request, version)
        return self.answer()

    def has_answer(self) -> bool:
        """Whether anything has arrived by now."""
        self._socket.setblocking(False)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self._socket.settimeout(60)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the node hung up"
            data += more
        return data


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run one node for all tests here; each limits clients of its own."""
    with Cluster() as running:
        with ottla.Admin(bootstrap_servers=running.bootstrap) as client:
            client.create_topic(TOPIC, configs={"retention.ms": "-1"})
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[ottla.Admin]:
    """Return an admin client of that node."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as client:
        yield client


def test_quotas_are_altered_and_described(admin: ottla.Admin) -> None:
    """Two keys of one entity, one of them removed later; a default; a refusal next to them."""
    app = {"user": "ann", "client-id": "app"}
    key = frozenset(app.items())
    limits = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}
    result = admin.alter_client_quotas(
        [
            QuotaChange(app, limits),
            QuotaChange({"user": None, "client-id": "app"}, {"request_percentage": 50.0}),
            QuotaChange({"user": "ann"}, {"no_such_key": 1.0}),
        ]
    )
    assert result[key] is None
    refused = result[frozenset({("user", "ann")})]
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_REQUEST
    assert admin.describe_client_quotas({"user": "ann"}) == {key: limits}
    assert len(admin.describe_client_quotas({"user": ANY_NAME, "client-id": "app"})) == 2
    admin.alter_client_quotas([QuotaChange(app, {"consumer_byte_rate": None})])
    assert admin.describe_client_quotas({"user": "ann"}) == {key: {"producer_byte_rate": 1000.0}}


def test_a_trial_changes_nothing(admin: ottla.Admin) -> None:
    """With validate_only the answer is the same and nothing is stored."""
    entity = {"client-id": "trial"}
    change = QuotaChange(entity, {"producer_byte_rate": 1.0})
    assert admin.alter_client_quotas([change], validate_only=True) == {
        frozenset(entity.items()): None
    }
    assert admin.describe_client_quotas(entity) == {}


def test_partitions_made_and_removed_are_charged(cluster: Cluster, admin: ottla.Admin) -> None:
    """An overdrawn bucket refuses topics one by one and says for how long to wait."""
    entity = {"client-id": "mutator"}
    admin.alter_client_quotas([QuotaChange(entity, {"controller_mutation_rate": 0.01})])
    with ottla.Admin(bootstrap_servers=cluster.bootstrap, client_id="mutator") as mutator:
        topic = CreateTopicsRequest.CreatableTopic
        request = CreateTopicsRequest(
            topics=[
                topic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
                for name in ("paid", "unpaid")
            ]
        )
        answer = mutator.request(request)
        codes = {one.name: one.error_code for one in answer.topics}
        assert codes == {"paid": 0, "unpaid": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert answer.throttle_time_ms > 100_000  # 3 less 0.11 tokens, at 0.01 a second
    assert "unpaid" not in {one.name for one in admin.list_topics()}
    admin.delete_topics(["paid"])


def _limit(admin: ottla.Admin, client_id: str, key: str, limit: float | None) -> None:
    change = QuotaChange({"client-id": client_id}, {key: limit})
    assert list(admin.alter_client_quotas([change]).values()) == [None]


def _produce(value_bytes: int, acks: int = 1) -> Request:
    batch = encode_batch([(1, b"key", bytes(value_bytes), ())])
    struct = ProduceRequest.TopicProduceData
    data = struct(name=TOPIC, partition_data=[struct.PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data])


def _fetch(max_wait_ms: int = 0, min_bytes: int = 0) -> Request:
    struct = FetchRequest.FetchTopic
    partition = struct.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1_000_000,
        session_epoch=-1,
        topics=[struct(topic=TOPIC, partitions=[partition])],
    )


METADATA = MetadataRequest(topics=[])


def test_a_producer_over_its_quota_is_not_heard(cluster: Cluster, admin: ottla.Admin) -> None:
    """Its records are stored and its answer comes; the next request lies unread, others do not."""
    _limit(admin, "writer", "producer_byte_rate", SLOWEST)
    with Wire(cluster.bootstrap, "writer") as limited, Wire(cluster.bootstrap, "free") as free:
        limited.send(_produce(5000), 9)
        limited.send(METADATA, 9)
        answer = limited.answer()
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms > HOUR_MS
        for _ in range(20):
            assert free.ask(_produce(1000), 9).throttle_time_ms == 0
        assert not limited.has_answer()


def test_without_an_answer_it_is_not_heard_either(cluster: Cluster, admin: ottla.Admin) -> None:
    """With acks=0 only the silence tells; the first request behind it waits."""
    _limit(admin, "silent", "producer_byte_rate", SLOWEST)
    with Wire(cluster.bootstrap, "silent") as limited, Wire(cluster.bootstrap, "free") as free:
        limited.send(_produce(5000, acks=0), 9)
        limited.send(METADATA, 9)
        for _ in range(20):
            free.ask(METADATA, 9)
        assert not limited.has_answer()


def test_a_pause_ends(cluster: Cluster, admin: ottla.Admin) -> None:
    """When the pause is over the request that came meanwhile is answered."""
    _limit(admin, "patient", "producer_byte_rate", 1000)
    with Wire(cluster.bootstrap, "patient") as limited:
        limited.send(_produce(10_000), 9)
        limited.send(METADATA, 9)
        assert 0 < limited.answer().throttle_time_ms < 10_000
        limited.answer()


def test_a_connection_that_is_not_heard_can_be_closed(cluster: Cluster, admin: ottla.Admin) -> None:
    """Nothing is left of it: neither its timer nor its place among the connections."""
    _limit(admin, "gone", "producer_byte_rate", SLOWEST)
    connections = cluster.run(lambda node: node._listeners.open[0].connections)
    before = set(connections)
    with Wire(cluster.bootstrap, "gone") as limited:
        limited.ask(_produce(5000), 9)
        (mine,) = connections.keys() - before
        cluster.run(lambda _node: mine.close())
    assert mine.is_closed
    assert mine not in connections


def test_a_consumer_over_its_quota_gets_nothing(cluster: Cluster, admin: ottla.Admin) -> None:
    """The answer is empty and comes at once; when the quota is gone the records come."""
    with Wire(cluster.bootstrap, "free") as free:
        free.ask(_produce(50_000), 9)
    _limit(admin, "reader", "consumer_byte_rate", SLOWEST)
    with Wire(cluster.bootstrap, "reader") as limited:
        limited.send(_fetch(max_wait_ms=100, min_bytes=10), 12)
        answer = limited.answer()
        assert answer.throttle_time_ms > 10_000
        assert answer.responses == []
    _limit(admin, "reader", "consumer_byte_rate", None)
    with Wire(cluster.bootstrap, "reader") as freed:
        assert freed.ask(_fetch(), 12).responses[0].partitions[0].records


def test_an_idle_consumer_reads_no_more_than_its_window(
    cluster: Cluster, admin: ottla.Admin
) -> None:
    """One answer is no larger than the quota allows in ten seconds, so that no pause is long."""
    with Wire(cluster.bootstrap, "free") as free:
        for _ in range(30):
            free.ask(_produce(1000), 9)
    _limit(admin, "window", "consumer_byte_rate", 600)
    with Wire(cluster.bootstrap, "window") as limited:
        request = _fetch()
        request.topics[0].partitions[0].fetch_offset = _end_offset(cluster) - 30  # type: ignore[attr-defined] # a FetchRequest
        assert limited.ask(request, 12).throttle_time_ms < 1000  # all thirty: 43,000


def _end_offset(cluster: Cluster) -> int:
    return cluster.run(lambda node: node.broker.replicas.get(TOPIC, 0).log.log_end_offset)


def test_time_is_limited_too(cluster: Cluster, admin: ottla.Admin) -> None:
    """Any request counts, waits of a fetch excepted, and costs a second of silence at most."""
    _limit(admin, "busy", "request_percentage", 1e-9)
    with Wire(cluster.bootstrap, "busy") as limited, Wire(cluster.bootstrap, "free") as free:
        begun_s = time.monotonic()
        assert limited.ask(METADATA, 9).throttle_time_ms == 1000
        limited.send(METADATA, 9)
        free.ask(METADATA, 9)
        assert limited.answer().throttle_time_ms == 1000
        assert time.monotonic() - begun_s >= 1


def test_an_address_that_connects_too_often_is_refused(admin: ottla.Admin) -> None:
    """Its connection is closed after a while, unheard; when the quota is gone it may come again."""
    with Cluster() as cluster, ottla.Admin(bootstrap_servers=cluster.bootstrap) as own:
        address = {"ip": "127.0.0.1"}
        own.alter_client_quotas([QuotaChange(address, {"connection_creation_rate": 1})])
        assert (
            sum(iter(lambda: _is_heard(cluster), False)) <= 100
        )  # of a busy machine a second each
        own.alter_client_quotas([QuotaChange(address, {"connection_creation_rate": None})])
        assert _is_heard(cluster)


def _is_heard(cluster: Cluster) -> bool:
    with Wire(cluster.bootstrap, "eager") as wire:
        try:
            wire.ask(METADATA, 9)
        except (AssertionError, ConnectionError):
            return False
        return True


def test_a_node_that_is_connected_to_too_often_lets_them_wait() -> None:
    """Over max.connection.creation.rate all are served, one after the other."""
    with Cluster(
        config={"max.connection.creation.rate": "200", "quota.window.num": "2"}
    ) as cluster:
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as own:
            own.describe_cluster()
        for _ in range(300):
            with Wire(cluster.bootstrap, "eager") as wire:
                wire.ask(METADATA, 9)
        rate = cluster.run(lambda node: node.broker.quotas.connections._node)
        assert rate.rate(cluster.run(lambda node: node.clock.monotonic_ms())) <= 210


def test_limits_on_connections_change_while_the_node_runs(
    cluster: Cluster, admin: ottla.Admin
) -> None:
    """max.connection.creation.rate of the node and of one listener come by AlterConfigs."""
    brokers = ConfigResource(ResourceType.BROKER, "")
    listener_key = "listener.name.plaintext.max.connection.creation.rate"
    rates = cluster.run(lambda node: node.broker.quotas.connections)
    admin.alter_configs({brokers: {"max.connection.creation.rate": "50000", listener_key: "40000"}})
    assert (rates._node_limit, rates._listener_limits) == (50_000, {"PLAINTEXT": 40_000})
    admin.alter_configs({brokers: {"max.connection.creation.rate": None, listener_key: None}})
    assert (rates._node_limit, rates._listener_limits) == (2**31 - 1, {})


def test_quotas_outlive_a_restart() -> None:
    """They are in the metadata log."""
    with Cluster() as cluster:
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as client:
            client.create_topic(TOPIC)
            _limit(client, "writer", "producer_byte_rate", SLOWEST)
        cluster.restart()
        with Wire(cluster.bootstrap, "writer") as limited:
            assert limited.ask(_produce(5000), 9).throttle_time_ms > HOUR_MS

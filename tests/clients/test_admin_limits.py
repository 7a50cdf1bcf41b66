"""Admin calls: deadlines, outcomes of parts, cleanup.

Kafka: org.apache.kafka.clients.admin.KafkaAdminClient (Call.deadlineMs), .internals.AdminApiDriver.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import loops
from ottla.clients.admin import calls
from ottla.clients.admin.admin import AsyncAdmin
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.loops import LoopThread
from ottla.errors import ClosedError, CoordinatorNotAvailableError, ErrorCode, KafkaError
from ottla.protocol.apis.describe_configs import DescribeConfigsResponse
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsResponse
from ottla.protocol.apis.offset_fetch import OffsetFetchResponse
from ottla.purgatory.pending import Pending
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.kafka import Kafka

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKER = ConfigResource(ResourceType.BROKER, "9")
SETTINGS = {"bootstrap_servers": "127.0.0.1:1"}


@pytest.fixture
def silent() -> Iterator[str]:
    """Give the address of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(("timeout", "limit_ms"), [(None, 30_000), (2.0, 2_000), (90.0, 30_000)])
def test_one_request_takes_no_longer_than_its_call(timeout: float | None, limit_ms: int) -> None:
    """A broker that never answers would hold a call of two seconds for thirty."""
    limits: list[int] = []

    def send(*_request: object, timeout_ms: int, **_how: object) -> Pending[Any]:
        limits.append(timeout_ms)
        failed: Pending[Any] = Pending()
        failed.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return failed

    async def run() -> None:
        admin = AsyncAdmin(config=SETTINGS)
        admin._runtime.now_ms = lambda: 5  # no time passes
        admin._client.send = send  # type: ignore[method-assign, assignment]  # no cluster
        with pytest.raises(KafkaError):
            await admin.list_topics(timeout=timeout)

    asyncio.run(run())
    assert limits == [limit_ms]


def test_topics_are_forgotten_with_the_question(kafka: Kafka) -> None:
    """An admin client that had asked for a missing topic asked for it every second from then on."""
    topic = str(kafka.topic("t"))
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        metadata = admin._async._client.metadata
        places = [TopicPartition(topic, 0), TopicPartition("missing", 0), TopicPartition(topic, -1)]
        found = admin.list_offsets(dict.fromkeys(places, -1))
        assert [isinstance(found[place], KafkaError) for place in places] == [False, True, True]
        assert metadata.request().topics == []
        assert admin.list_offsets({}) == {}


def test_questions_at_the_same_time_keep_their_topics() -> None:
    """The first to end leaves those of the other."""
    admin = AsyncAdmin(config=SETTINGS)
    with admin._keeping_topics({"a", "b"}):
        with admin._keeping_topics({"b", "c"}):
            pass
        assert [one.name for one in admin._client.metadata.request().topics or ()] == ["a", "b"]
    assert admin._client.metadata.request().topics == []


class PartlyGone(AsyncAdmin):
    """Every node answers but node 9."""

    async def _call(self, request: Any, *, node_id: int | None = None, **_how: Any) -> Any:
        if node_id == 9:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        if type(request).__name__ == "DescribeConfigsRequest":
            described = DescribeConfigsResponse.DescribeConfigsResult
            one = described(
                error_code=0,
                error_message=None,
                resource_type=TOPIC.type,
                resource_name="t",
                configs=[],
            )
            return DescribeConfigsResponse(results=[one])
        altered = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        return IncrementalAlterConfigsResponse(
            responses=[
                altered(
                    error_code=0, error_message=None, resource_type=TOPIC.type, resource_name="t"
                )
            ]
        )


def test_a_broker_that_is_away_costs_the_others_no_outcome() -> None:
    """Applied changes are reported as applied."""

    async def run() -> None:
        admin = PartlyGone(config=SETTINGS)
        altered = await admin.alter_configs({TOPIC: {"retention.ms": 5}, BROKER: {"a": 1}})
        assert altered[TOPIC] is None
        assert isinstance(altered[BROKER], KafkaError)
        described = await admin.describe_configs([TOPIC, BROKER])
        assert described[TOPIC] == {}
        assert isinstance(described[BROKER], KafkaError)
        with pytest.raises(KafkaError, match="broker"):
            await admin.describe_configs([BROKER])
        with pytest.raises(KafkaError, match="'one'"):
            await admin.describe_configs([ConfigResource(ResourceType.BROKER, "one")])

    asyncio.run(run())


def test_a_closed_client_says_so() -> None:
    """KafkaError as in every client, not asyncio's error."""
    admin = Admin(config=SETTINGS)
    admin.close()
    with pytest.raises(KafkaError, match="Cannot accept new calls when AdminClient is closing"):
        admin.list_topics()


@pytest.mark.parametrize("method", ["list_topics", "list_groups", "describe_groups"])
def test_a_call_ends_when_another_thread_closes_the_client(silent: str, method: str) -> None:
    """It would wait for ever for a loop that has stopped."""
    admin = Admin(bootstrap_servers=silent)
    errors: list[BaseException] = []
    begun = threading.Event()

    def call() -> None:
        arguments = (["g"],) if method == "describe_groups" else ()
        begun.set()
        try:
            outcome = getattr(admin, method)(*arguments)
        except BaseException as error:  # whatever it is, it has ended
            errors.append(error)
        else:
            errors.append(outcome["g"])

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    begun.wait()
    admin.close()
    caller.join(WAIT_S)
    assert [type(error) for error in errors] == [ClosedError]


def test_a_loop_that_ends_leaves_no_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not end by itself is cancelled."""
    monkeypatch.setattr(loops, "LAST_CALLS_SECONDS", 0.01)
    thread = LoopThread("test", lambda: ClosedError("closed"))
    errors: list[BaseException] = []
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            thread.call(endless())
        except BaseException as error:
            errors.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    begun.wait()
    thread.stop()
    caller.join(WAIT_S)
    assert len(errors) == 1


@pytest.mark.parametrize("host", ["a..b", "a" * 70])
def test_a_name_that_no_host_can_have_is_told_at_once(host: str) -> None:
    """The connection attempt ran to its timeout, and its error was never retrieved."""

    async def run() -> None:
        async with AsyncAdmin(bootstrap_servers=f"{host}:9092") as admin:
            with pytest.raises(KafkaError, match="label"):
                await admin.list_topics(timeout=1)  # it takes all of it

    asyncio.run(run())


def test_asking_a_cluster_that_is_only_late_is_not_called_unreachable() -> None:
    """The broker runs: what failed was the time."""

    async def run() -> None:
        with Cluster() as cluster:
            async with AsyncAdmin(bootstrap_servers=cluster.bootstrap) as admin:
                await admin._refresh_until(admin._deadline_ms(None))
                with pytest.raises(KafkaError) as caught:
                    await admin._refresh_until(admin._runtime.now_ms())
                assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(run())


class Slow(AsyncAdmin):
    """Every coordinator takes 25 seconds to fail."""

    def __init__(self) -> None:
        super().__init__(config=SETTINGS)
        self.now_ms = 0
        self.timeouts: list[float] = []
        self._runtime.now_ms = lambda: self.now_ms  # no time passes

    async def _coordinator_call(self, *_request: Any, **how: Any) -> Any:
        self.timeouts.append(how["timeout"])
        self.now_ms += 25_000
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.parametrize("call", ["describe_groups", "delete_groups"])
def test_groups_share_the_time_of_their_call(call: str) -> None:
    """A hundred groups of an unavailable coordinator fail in one minute, not in a hundred."""

    async def run() -> list[float]:
        admin = Slow()
        found = await getattr(admin, call)(["a", "b", "c", "d"])
        assert [type(one) for one in found.values()] == [CoordinatorNotAvailableError] * 4
        return admin.timeouts

    assert asyncio.run(run()) == [60.0, 35.0, 10.0, 0.0]


def test_offsets_below_zero_are_refused(kafka: Kafka) -> None:
    """As in Kafka's clients: the group would seem to have committed nothing."""
    place = TopicPartition(str(kafka.topic("t")), 0)
    group = kafka.group()
    with pytest.raises(KafkaError, match="Invalid negative offset -5"):
        kafka.admin.alter_group_offsets(group, {place: -5})
    with kafka.consumer(group=group) as consumer:
        consumer.assign([place])
        with pytest.raises(KafkaError, match="Invalid negative offset -1"):
            consumer.commit({place: -1})


def _members(kafka: Kafka, group: str) -> Any:
    found = kafka.admin.describe_groups([group])[group]
    return () if isinstance(found, KafkaError) else found.members


def test_all_members_leave_when_none_is_named(kafka: Kafka) -> None:
    """Static ones by their instance; an empty list is a mistake of the caller, as in Kafka."""
    topic, group = str(kafka.topic("t")), kafka.group()
    with (
        kafka.consumer(group=group, group_instance_id="fixed") as fixed,
        kafka.consumer(group=group) as other,
    ):
        for consumer in (fixed, other):
            consumer.subscribe([topic])
        while len(_members(kafka, group)) < 2:
            fixed.poll(0.05)
            other.poll(0.05)
        with pytest.raises(KafkaError, match="instance_ids is empty"):
            kafka.admin.remove_group_members(group, instance_ids=[])
        removed = kafka.admin.remove_group_members(group)
        assert len(removed) == 2
        assert removed.pop("fixed") is None
        assert list(removed.values()) == [None]
        assert _members(kafka, group) == ()


class Scripted(AsyncAdmin):
    """Gets one answer for every question to a coordinator."""

    def __init__(self, answer: Any) -> None:
        super().__init__(config=SETTINGS)
        self.answer = answer

    async def _coordinator_call(self, *_request: Any, **_how: Any) -> Any:
        return self.answer


def test_a_partition_with_an_error_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One such partition hid the offsets of all others; Kafka's client logs it and goes on."""
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    partition = topic.OffsetFetchResponsePartitions
    codes = (ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE)
    partitions = [
        partition(partition_index=index, committed_offset=7 + index, metadata="", error_code=code)
        for index, code in enumerate(codes)
    ]
    answer = OffsetFetchResponse(
        groups=[group(group_id="g", topics=[topic(name="t", partitions=partitions)])]
    )

    async def run() -> Any:
        return await Scripted(answer).list_group_offsets("g")

    found = asyncio.run(run())
    assert {place: one.offset for place, one in found.items()} == {("t", 0): 7, ("t", 2): 9}
    (line,) = (one.getMessage() for one in caplog.records if one.name == "ottla.clients")
    assert "t-1 in g omitted" in line


def test_few_coordinators_are_remembered(monkeypatch: pytest.MonkeyPatch, kafka: Kafka) -> None:
    """The cache of coordinators is bounded."""
    monkeypatch.setattr(calls, "MAX_COORDINATORS", 3)
    names = [f"group-{number}" for number in range(6)]
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        assert all(isinstance(one, KafkaError) for one in admin.describe_groups(names).values())
        admin.describe_groups(["group-3"])
        kept = [name for _, name in admin._async._coordinators]
        assert kept == ["group-4", "group-5", "group-3"]

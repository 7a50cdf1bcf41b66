"""Wrong arguments, and calls in a wrong state: the error comes from the call, with a plain text.

Kafka: the same mistakes are errors of its compiler, or IllegalStateException.
"""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.admin.admin import AsyncAdmin
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.blocking import Consumer, Producer
from ottla.clients.consumer.consumer import AsyncConsumer
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.producer.producer import AsyncProducer
from ottla.errors import ClosedError, ConfigError, IllegalStateError, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.testing.kafka import Kafka

NOWHERE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1"}
T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def consumer() -> Iterator[Consumer]:
    """Give a consumer that needs no broker, with an assignment."""
    with Consumer(group_id="g", **NOWHERE) as made:
        made.assign([T0])
        yield made


@pytest.fixture
def producer(kafka: Kafka) -> Iterator[Producer]:
    """Give a producer of a cluster with topic t."""
    with Producer(bootstrap_servers=kafka.bootstrap) as made:
        made.send("t", b"v").result(60)
        yield made


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda c: c.assign(["t"]),
            "a partition must be TopicPartition(topic, partition), not str",
        ),
        (lambda c: c.assign(["ab"]), "a partition must be TopicPartition(topic, partition), not"),
        (lambda c: c.assign([("t", "0")]), "TopicPartition takes a str and an int, not ('t', '0')"),
        (lambda _: TopicPartition("t", "0"), "TopicPartition takes a str and an int, not ('t', '"),  # type: ignore[arg-type]
        (lambda c: c.seek(T0, "0"), "an offset must be int, not str: '0'"),
        (lambda c: c.seek("t", 0), "a partition must be TopicPartition(topic, partition), not str"),
        (lambda c: c.pause("t"), "a partition must be TopicPartition(topic, partition), not str"),
        (lambda c: c.commit([1]), "offsets must be a mapping by partition, not list"),
        (lambda c: c.commit({T0: "5"}), "an offset must be int or OffsetAndMetadata, not str: '5'"),
        (lambda c: c.position("t"), "a partition must be TopicPartition(topic, partition), not"),
        (lambda c: c.offsets_for_times({T0: "1"}), "a timestamp must be int (ms since the epoch)"),
        (lambda c: c.subscribe([5]), "a topic must be str, not int: 5"),
        (lambda c: c.poll("1"), "timeout must be a number of seconds, not str"),
        (lambda c: c.poll(None), "timeout must be a number of seconds, not NoneType"),
        (lambda c: c.poll_batches(1.0, "5"), "max_records must be int, not str: '5'"),
        (lambda c: c.position(T0, timeout="1"), "timeout must be a number of seconds, not str"),
        (lambda c: c.partitions_for(5), "a topic must be str, not int: 5"),
        (
            lambda c: c.commit({T0: OffsetAndMetadata("5")}),  # type: ignore[arg-type]
            "an offset must be int or OffsetAndMetadata, not str: OffsetAndMetadata(offset='5'",
        ),
        (
            lambda c: c.subscribe("t", listener=print),
            "listener must be a RebalanceListener, not builtin_function_or_method",
        ),
        (
            lambda _: Consumer(config=["group.id=g"]),  # type: ignore[arg-type]
            "config must be a mapping of settings, not list",
        ),
        (
            lambda _: Consumer({"bootstrap.servers": "h:1", "sasl.password": "secret"}),  # type: ignore[arg-type]
            "a topic must be str, not a mapping; settings are keywords, or config={...}",
        ),
    ],
)
def test_wrong_types_are_an_error_of_the_consumers_call(
    consumer: Consumer, call: Callable[[Any], object], text: str
) -> None:
    """Nothing reaches the loop; values of a mapping are not shown, they may be secrets."""
    with pytest.raises(TypeError) as caught:
        call(consumer)
    assert str(caught.value).startswith(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda p: p.send("t", b"v", headers={"a": 1}),
            "header 'a' must be bytes, str or None, not",
        ),
        (
            lambda p: p.send("t", b"v", headers=[(b"a", b"")]),
            "the name of a header must be str, not",
        ),
        (lambda p: p.send("t", b"v", headers="ab"), "headers must be a mapping or (name, value)"),
        (lambda p: p.send("t", {"a": 1}), "a key or value must be bytes, str or None, not dict"),
        (lambda p: p.send("t", b"v", key=5), "a key or value must be bytes, str or None, not int"),
        (lambda p: p.send("t", b"v", partition="0"), "partition must be int, not str"),
        (lambda p: p.send("t", b"v", timestamp_ms=1.5), "timestamp_ms must be int (ms since the"),
        (lambda p: p.send("t", b"v", on_delivery=5), "on_delivery must be a function, not int"),
        (lambda p: p.send(b"t", b"v"), "a topic must be str, not bytes: b't'"),
        (lambda p: p.send_many("t", "abc"), "values must be a list, not str: ['abc']"),
        (lambda p: p.send_many(5, [b"v"]), "a topic must be str, not int: 5"),
        (lambda p: p.partitions_for(5), "a topic must be str, not int: 5"),
        (lambda p: p.flush("1"), "timeout must be a number of seconds, not str"),
        (lambda p: p.close("1"), "timeout must be a number of seconds, not str"),
    ],
)
def test_wrong_types_are_an_error_of_the_producers_call(
    producer: Producer, call: Callable[[Any], object], text: str
) -> None:
    """No record is queued."""
    with pytest.raises(TypeError) as caught:
        call(producer)
    assert str(caught.value).startswith(text)
    assert not producer._core.accumulator.unfinished


def test_a_wrong_timeout_of_a_delivery_is_an_error_of_its_call(producer: Producer) -> None:
    """The record is delivered all the same."""
    delivery = producer.send("t", b"v")
    with pytest.raises(TypeError, match="timeout must be a number of seconds, not str"):
        delivery.result("1")  # type: ignore[arg-type]
    assert delivery.result(60).topic == "t"


@pytest.mark.parametrize("timestamp_ms", [-1, 1 << 63])
def test_a_timestamp_that_no_record_can_have_is_refused(
    producer: Producer, timestamp_ms: int
) -> None:
    """Kafka's text; a too large one stopped the producer's loop."""
    text = "Invalid timestamp: .* Timestamp should always be non-negative or null"
    with pytest.raises(ValueError, match=text):
        producer.send("t", b"v", timestamp_ms=timestamp_ms)
    with pytest.raises(ValueError, match="a topic must not be empty"):
        producer.send("", b"v")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a: a.create_topic(5), "a topic must be str, not int: 5"),
        (lambda a: a.create_topic("t", "3"), "partitions must be int, not str: '3'"),
        (lambda a: a.create_topic("t", configs=["a=b"]), "configs must be a mapping, not list"),
        (lambda a: a.create_partitions({"t": "3"}), "a partition count must be int, not str: '3'"),
        (lambda a: a.list_offsets({T0: "1"}), "a timestamp must be int, not str: '1'"),
        (lambda a: a.delete_records({T0: "1"}), "an offset must be int, not str: '1'"),
        (lambda a: a.list_topics(timeout="1"), "timeout must be a number of seconds, not str"),
        (lambda a: a.delete_topics("abc"), "topics must be a list, not str: ['abc']"),
        (lambda a: a.delete_topics([5]), "a topic must be str, not int: 5"),
        (lambda a: a.describe_topics("abc"), "topics must be a list, not str: ['abc']"),
        (lambda a: a.delete_groups("abc"), "group_ids must be a list, not str: ['abc']"),
        (lambda a: a.describe_configs(["t"]), "a resource must be ConfigResource(type, name), not"),
        (
            lambda a: a.alter_configs({"t": {}}),
            "a resource must be ConfigResource(type, name), not",
        ),
        (
            lambda a: a.list_offsets({"t": -1}),
            "a partition must be TopicPartition(topic, partition",
        ),
    ],
)
def test_wrong_types_are_an_error_of_the_admins_call(
    call: Callable[[Any], object], text: str
) -> None:
    """A str is not taken for a list of one-letter names."""
    with Admin(**NOWHERE) as admin, pytest.raises(TypeError) as caught:
        call(admin)
    assert str(caught.value).startswith(text)


def test_polling_without_a_subscription_raises_kafkas_error() -> None:
    """In every way of polling, blocking or not."""
    text = "^Consumer is not subscribed to any topics or assigned any partitions$"
    with Consumer(**NOWHERE) as consumer:
        for call in (
            lambda: consumer.poll(0),
            lambda: consumer.poll_batches(0),
            lambda: next(iter(consumer)),
        ):
            with pytest.raises(IllegalStateError, match=text):
                call()
        with pytest.raises(IllegalStateError, match=r"^No current assignment for partition t-0$"):
            consumer.seek(T0, 0)

    async def run() -> None:
        async with AsyncConsumer(**NOWHERE) as consumer:
            with pytest.raises(IllegalStateError, match=text):
                await consumer.poll(0)

    asyncio.run(run())


def _calls(client: object, kind: type) -> dict[str, Callable[[], Any]]:
    """Return a call of each public method and property with plausible arguments."""
    given: dict[str, Any] = {
        "topic": "t",
        "topics": ["t"],
        "partition": T0,
        "partitions": [T0],
        "offset": 1,
        "values": [b"v"],
        "timestamps": {T0: 1},
        "offsets": {T0: 1},
        "group": None,
        "decided": None,
    }
    calls: dict[str, Callable[[], Any]] = {}
    for name, member in inspect.getmembers(kind):
        if name[0] == "_" or name in NOT_REFUSED:
            continue
        if isinstance(member, property):
            calls[name] = partial(getattr, client, name)
            continue
        needed = list(inspect.signature(member).parameters.values())[1:]
        values = [given[one.name] for one in needed if one.default is one.empty and one.kind < 2]
        if name == "subscribe":
            values = [["t"]]
        calls[name] = partial(getattr(client, name), *values)
    return calls


async def _awaited(call: Callable[[], Any]) -> None:
    result = call()
    if inspect.isawaitable(result):
        await result


NOT_REFUSED = {
    "close",  # idempotent
    "transaction",  # refused where its block begins
    "process",  # the same
    "metrics",
    "start",
    "wakeup",  # has no result
    # parts of other methods, for the blocking façade
    "commit_before_revocation",
    "finish_close",
    "finish_unsubscribe",
    "prepare_to_leave",
    "wait_batches",
}
TEXTS = {
    Producer: "Cannot perform operation after producer has been closed",
    AsyncProducer: "Cannot perform operation after producer has been closed",
    Consumer: "This consumer has already been closed.",
    AsyncConsumer: "This consumer has already been closed.",
}


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_every_call_of_a_closed_blocking_client_raises_one_error(kind: Any) -> None:
    """ClosedError with Kafka's text; close() again is harmless."""
    client = kind(**NOWHERE, **({"group_id": "g"} if kind is Consumer else {}))
    client.close()
    client.close()
    for name, call in _calls(client, kind).items():
        with pytest.raises(ClosedError) as caught:
            call()
        assert str(caught.value) == TEXTS[kind], name


@pytest.mark.parametrize("kind", [AsyncProducer, AsyncConsumer])
def test_every_call_of_a_closed_asyncio_client_raises_one_error(kind: Any) -> None:
    """The same as that of the blocking one."""

    async def run() -> None:
        client = kind(**NOWHERE, **({"group_id": "g"} if kind is AsyncConsumer else {}))
        async with client:
            pass
        await client.close()
        for name, call in _calls(client, kind).items():
            with pytest.raises(ClosedError) as caught:
                await _awaited(call)
            assert str(caught.value) == TEXTS[kind], name

    asyncio.run(run())


def test_a_closed_admin_raises_the_same_error() -> None:
    """Blocking or not."""
    text = "^Cannot accept new calls when AdminClient is closing.$"
    admin = Admin(**NOWHERE)
    admin.close()
    with pytest.raises(ClosedError, match=text):
        admin.list_topics()

    async def run() -> None:
        async with AsyncAdmin(**NOWHERE) as client:
            pass
        with pytest.raises(ClosedError, match=text):
            await client.list_topics()

    asyncio.run(run())


def test_admin_errors_name_the_topic(kafka: Kafka) -> None:
    """The broker's text does not."""
    unknown = "topic 'missing': This server does not host this topic-partition."
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        outcomes = [
            admin.delete_topics(["missing"])["missing"],
            admin.create_partitions({"missing": 3})["missing"],
        ]
    assert [str(one) for one in outcomes] == [unknown] * 2


def test_an_api_timeout_below_a_requests_is_refused() -> None:
    """As in Kafka; the default follows the longer request."""
    text = "The specified value of default.api.timeout.ms must be no smaller than the value of "
    with pytest.raises(ConfigError) as caught:
        Admin(default_api_timeout_ms=5_000, **NOWHERE)
    assert str(caught.value) == text + "request.timeout.ms."
    with Admin(request_timeout_ms=90_000, **NOWHERE) as admin:
        assert admin._async._settings.default_api_timeout_ms == 90_000


def test_settings_of_a_topic_have_either_name(kafka: Kafka) -> None:
    """The admin client says configs, the fixture config: both take both, but not at once."""
    named = {"retention.ms": "60000"}
    first, second = kafka.topic("a", config=named), kafka.topic("b", configs=named)
    kafka.admin.create_topic("either-c", config=named)
    kafka.admin.create_topic("either-d", configs=named)
    resources = [
        ConfigResource(ResourceType.TOPIC, str(name))
        for name in (first, second, "either-c", "either-d")
    ]
    for entries in kafka.admin.describe_configs(resources).values():
        assert not isinstance(entries, KafkaError)
        assert entries["retention.ms"].value == "60000"
    with pytest.raises(TypeError, match="configs is given twice"):
        kafka.admin.create_topic("either-e", configs=named, config=named)

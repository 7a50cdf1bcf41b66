"""Third-party clients with an Ottla node: each codec, groups, offsets, times, a killed node.

The clients are programs of one command line (`clients/stock.py`), so that one test drives all.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, TopicPartition
from tests.conformance.clients.node_process import running_node
from tests.conformance.clients.stock import (
    CLIENTS,
    Client,
    Program,
    client_or_skip,
    places,
    records_in,
    run,
)
from tests.conformance.clients.target import Target, running_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Run one node, or a cluster, for all tests that leave it alive."""
    with running_target(tmp_path_factory.mktemp("stock")) as running:
        yield running


@pytest.fixture(params=CLIENTS, ids=lambda one: one.name)
def client(request: pytest.FixtureRequest) -> Client:
    """Give each of the clients in turn."""
    return client_or_skip(request.param)


@pytest.fixture(params=[one for one in CLIENTS if one.has_transactions], ids=lambda one: one.name)
def transactional(request: pytest.FixtureRequest) -> Client:
    """Give each of the clients that have transactions in turn."""
    return client_or_skip(request.param)


def test_produces_with_every_codec(node: Target, client: Client) -> None:
    """Idempotent records in each codec are stored as sent, and the client reads them back."""
    topic = node.create_topic(f"codecs-{client.name}", partitions=2)
    codecs, count = ",".join(client.codecs), 20 * len(client.codecs)
    produced = run(client, "produce", node.bootstrap, topic, 20, codecs, 0, 0)
    stored = records_in(node.bootstrap, topic, 2)
    assert sorted(stored.values()) == sorted(produced.numbers()) == list(range(count))
    if client.says_offsets:
        assert places(produced.said()) == stored
    batches = [*node.batches_of(topic, 0), *node.batches_of(topic, 1)]
    assert {batch.compression.name.lower() for batch in batches} == set(client.codecs)
    assert all(batch.producer_id >= 0 for batch in batches)
    consumed = run(client, "consume", node.bootstrap, topic, f"group-{topic}", count)
    assert places(consumed.said()) == stored


def test_resumes_after_its_commit(node: Target, client: Client) -> None:
    """The next member of a group goes on where the last one committed."""
    topic = node.create_topic(f"resume-{client.name}")
    run(client, "produce", node.bootstrap, topic, 30, "none", 0, 0)
    first = run(client, "consume", node.bootstrap, topic, f"group-{topic}", 10)
    second = run(client, "consume", node.bootstrap, topic, f"group-{topic}", 20)
    assert first.numbers() == list(range(10))
    assert second.numbers() == list(range(10, 30))


def test_finds_offsets_by_time(node: Target, client: Client) -> None:
    """The offset of a time is that of the first record at or after it."""
    topic = node.create_topic(f"times-{client.name}")
    run(client, "produce", node.bootstrap, topic, 30, "none,lz4", 0, 0)
    asked = (0, 1_700_000_007_000, 1_700_000_041_001, 1_700_000_060_000)
    times = ",".join(map(str, asked))
    said = run(client, "offset", node.bootstrap, topic, 0, times).lines
    past = 60 if client.past_the_end is None else client.past_the_end
    assert [int(line) for line in said] == [0, 7, 42, past]


def test_members_share_partitions_and_take_over(node: Target, client: Client) -> None:
    """Two members have two partitions each; when one leaves, the other reads all four."""
    topic = node.create_topic(f"share-{client.name}", partitions=4)
    joins = ("consume", node.bootstrap, topic, f"group-{topic}", "0")
    with Program(client, *joins) as staying, Program(client, *joins) as leaving:
        staying.wait_until(lambda: len(staying.assigned()) == 2)
        leaving.wait_until(lambda: len(leaving.assigned()) == 2)
        assert sorted(staying.assigned() + leaving.assigned()) == [0, 1, 2, 3]
        run(client, "produce", node.bootstrap, topic, 40, "none", 0, 0)
        staying.wait_until(lambda: len(staying.said()) + len(leaving.said()) == 40)
        assert staying.said()
        assert leaving.said()
        leaving.leave()
        run(client, "produce", node.bootstrap, topic, 40, "none", 40, 0)
        staying.wait_until(lambda: len(staying.assigned()) == 4)
        staying.wait_until(lambda: len(staying.said()) + len(leaving.said()) >= 80)
        assert sorted(staying.numbers() + leaving.numbers()) == list(range(80))
        staying.leave()


def test_members_of_different_libraries_share_a_group(node: Target) -> None:
    """Four libraries agree on the assignor that all know; when one leaves, the others take over."""
    names = ("java", "confluent-kafka", "kafka-python", "sarama")
    clients = [client_or_skip(one) for one in CLIENTS if one.name in names]
    topic = node.create_topic("mixed", partitions=8)
    joins = ("consume", node.bootstrap, topic, "group-mixed", "0")
    with ExitStack() as stack:
        members = [stack.enter_context(Program(one, *joins)) for one in clients]
        members[0].wait_until(lambda: [len(one.assigned()) for one in members] == [2] * 4)
        wanted = list(range(8))
        assert sorted(part for one in members for part in one.assigned()) == wanted
        run(clients[0], "produce", node.bootstrap, topic, 80, "snappy", 0, 0)
        members[0].wait_until(lambda: sum(len(one.said()) for one in members) == 80)
        leaving = members.pop(0)
        leaving.leave()
        members[0].wait_until(
            lambda: sorted(part for one in members for part in one.assigned()) == wanted
        )
        run(clients[1], "produce", node.bootstrap, topic, 80, "snappy", 80, 0)
        members[0].wait_until(lambda: sum(len(m.said()) for m in (*members, leaving)) >= 160)
        said = [number for one in (*members, leaving) for number in one.numbers()]
        assert sorted(said) == list(range(160))


def test_survives_a_killed_node(client: Client, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Over kill -9 and restart, producer and consumer finish and no record is lost or doubled."""
    with running_node(tmp_path_factory.mktemp("killed")) as node:
        topic = node.create_topic("killed", partitions=2)
        with (
            Program(client, "consume", node.bootstrap, topic, "group", "0") as consumer,
            Program(client, "produce", node.bootstrap, topic, "60", "lz4", "0", "30") as producer,
        ):
            producer.wait_until(lambda: len(producer.said()) >= 10)
            node.end(signal.SIGKILL)
            node.start()
            producer.wait()
            consumer.wait_until(lambda: set(consumer.numbers()) == set(range(60)))
            consumer.leave()
        stored = records_in(node.bootstrap, topic, 2)
        assert Counter(stored.values()) == Counter(range(60))
        if client.says_offsets:
            assert places(producer.said()) == stored


def _reading(client: Client, isolation: str) -> Client:
    environment = {**client.environment, "STOCK_ISOLATION": isolation}
    return client._replace(environment=environment)


def test_commits_and_aborts_transactions(node: Target, transactional: Client) -> None:
    """Nine transactions: readers of committed records skip three; the group has the last offset."""
    topic = node.create_topic(f"transactions-{transactional.name}", partitions=2)
    name = f"id-{transactional.name}"
    said = run(transactional, "transact", node.bootstrap, topic, name, 9).lines
    outcomes = ["aborted" if number % 3 == 2 else "committed" for number in range(9)]
    assert said == [f"{outcome} {number}" for number, outcome in enumerate(outcomes)]
    committed = [one for one in range(27) if outcomes[one // 3] == "committed"]
    for isolation, expected in (("read_committed", committed), ("read_uncommitted", range(27))):
        reader, group = _reading(transactional, isolation), f"{isolation}-{topic}"
        read = run(reader, "consume", node.bootstrap, topic, group, len(expected))
        assert sorted(read.numbers()) == list(expected)
        for partition in (0, 1):
            order = [one.number for one in read.said() if one.partition == partition]
            assert order == [one for one in expected if one % 2 == partition]
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        offsets = admin.list_group_offsets(name)
    found = offsets[TopicPartition(topic, 0)]
    assert found is not None
    assert found.offset == 8  # the last transaction is aborted


def test_a_zombie_is_fenced(node: Target, transactional: Client) -> None:
    """A producer whose id another one has cannot commit, and its record is never read."""
    topic = node.create_topic(f"zombies-{transactional.name}", partitions=2)
    name = f"zombie-{transactional.name}"
    with Program(transactional, "zombie", node.bootstrap, topic, name) as zombie:
        zombie.wait_until(lambda: "open" in zombie.lines)
        run(transactional, "transact", node.bootstrap, topic, name, 2)
        zombie.leave()
    assert zombie.lines == ["open", "fenced"], zombie.report()
    reader = _reading(transactional, "read_committed")
    read = run(reader, "consume", node.bootstrap, topic, f"group-{topic}", 6)
    assert sorted(read.numbers()) == list(range(6))


def test_clients_read_each_other(node: Target) -> None:
    """Each client reads what all the others wrote, in the codecs of their own libraries."""
    clients = [client_or_skip(client) for client in CLIENTS if not client.environment]
    topic = node.create_topic("babel")
    for first, writer in enumerate(clients):
        codecs = ",".join(writer.codecs)
        run(writer, "produce", node.bootstrap, topic, 10, codecs, first * 50, 0)
    total = 50 * len(clients)
    readers = [one for one in clients if one.name != "kafkajs"]  # lz4js misreads some lz4 frames
    for reader in readers:
        read = run(reader, "consume", node.bootstrap, topic, f"babel-{reader.name}", total)
        assert read.numbers() == list(range(total)), reader.name


def test_verifiable_tools_agree(node: Target, kafka: Kafka) -> None:
    """Kafka's verifiable producer and consumer count the same records."""
    topic = node.create_topic("verifiable", partitions=2)
    common = ("--bootstrap-server", node.bootstrap, "--topic", topic, "--max-messages", "500")
    produced = kafka.run("org.apache.kafka.tools.VerifiableProducer", *common)
    assert '"sent":500,"acked":500' in produced.stdout
    consumed = kafka.run("org.apache.kafka.tools.VerifiableConsumer", *common, "--group-id", "v")
    events = [json.loads(line) for line in consumed.stdout.splitlines() if line.startswith("{")]
    counts = [one["count"] for one in events if one["name"] == "records_consumed"]
    assert sum(counts) == 500


def test_a_group_changes_to_the_consumer_protocol_member_by_member(node: Target) -> None:
    """A rolling change of Java's and librdkafka's members under load, and back: none is left out.

    Members of both protocols share the partitions meanwhile; the group's type follows.
    """
    names = ("java", "confluent-kafka")
    classic = [client_or_skip(one) for one in CLIENTS if one.name in names]
    consumer = [one._replace(environment={"STOCK_PROTOCOL": "consumer"}) for one in classic]
    topic, group = node.create_topic("rolling", partitions=4), "group-rolling"
    joins = ("consume", node.bootstrap, topic, group, "0")
    with ExitStack() as stack:
        everyone = [stack.enter_context(Program(one, *joins)) for one in classic]
        members = list(everyone)

        def share(kind: str) -> None:
            members[0].wait_until(lambda: [len(one.assigned()) for one in members] == [2, 2])
            assert _group_type(node, group) == kind

        share("classic")
        load = stack.enter_context(
            Program(classic[1], "produce", node.bootstrap, topic, "1000", "none", "0", "5")
        )
        for number, client in enumerate((*consumer, *classic)):
            members[number % 2].leave()
            members[number % 2] = stack.enter_context(Program(client, *joins))
            everyone.append(members[number % 2])
            share("classic" if number == 3 else "consumer")
        load.wait()
        wanted = set(range(1000))
        members[0].wait_until(lambda: {n for one in everyone for n in one.numbers()} == wanted)


def _group_type(node: Target, group: str) -> str:
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        return next(one.type for one in admin.list_groups() if one.group_id == group)

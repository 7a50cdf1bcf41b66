"""What a node's log tells an operator at INFO, in virtual time; and what it never tells."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.admin.quotas import QuotaChange
from ottla.clients.admin.topics import NewTopic
from ottla.errors import KafkaError
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.server.node.startup import LoadReport
from ottla.server.requests.dispatch import Dispatcher, RequestLog
from ottla.storage.directories.loader import LoadProgress
from ottla.testing.cluster import Cluster
from ottla.testing.simulation.node import SimulatedNode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECRET = "open-sesame"
PAYLOAD = b"payload-of-a-customer"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the lines so far, levels from INFO on, but not those of another test's node."""
    caplog.set_level(logging.INFO, "ottla")
    earlier = {one.ident for one in threading.enumerate()} - {threading.get_ident()}
    return lambda: [
        one.getMessage()
        for one in caplog.records
        if one.name != "ottla.clients" and one.thread not in earlier
    ]


def run(*works: Callable[[SimulatedNode], Awaitable[None]], **config: str) -> None:
    """Start a node, do the works, each in its own life of the node, and stop it."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    simulation = SimulatedNode(7, config=settings)

    async def lives() -> None:
        for work in works:
            await simulation.start()
            await work(simulation)
            if simulation.is_alive:
                await simulation.stop()

    simulation.run(lives())


async def nothing(_node: SimulatedNode) -> None:
    """Only start and stop."""


def test_start_and_stop_are_told_step_by_step(lines: Callable[[], list[str]]) -> None:
    """Versions, role of the controller, recovery, listeners and times; then each step down."""
    run(nothing)
    told = "\n".join(lines())
    assert told.startswith("starting Ottla ")
    steps = (
        "node 1, roles broker,controller, log directories /data",
        "quorum: node 1 changes from Candidate to Leader in epoch 1",
        "metadata loaded up to offset",
        "broker 1 registered with epoch",
        "loaded 0 logs in ",
        "broker 1 unfenced: it serves clients",
        "listening on PLAINTEXT://",
        "listening on CONTROLLER://",
        "started in ",
        "stopping: closing 0 connections",
        "stopping: controlled shutdown",
        "broker 1 fenced",
        "quorum: node 1 changes from Leader to Resigned",
        "stopping: flushing and closing 0 logs",
        "stopped in ",
    )
    places = [told.find(step) for step in steps]
    assert -1 not in places, steps[places.index(-1)]
    assert places == sorted(places)


def test_topics_settings_and_quotas_are_told_without_secrets(
    lines: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Each committed change is a line; values of secrets and unknown settings are hidden."""

    async def change(node: SimulatedNode) -> None:
        admin = node.admin()
        await admin.create_topics([NewTopic("orders", 3)])
        await admin.create_partitions({"orders": 4})
        topic = ConfigResource(ResourceType.TOPIC, "orders")
        broker = ConfigResource(ResourceType.BROKER, "1")
        await admin.alter_configs({topic: {"retention.ms": "60000"}})
        await admin.alter_configs({topic: {"retention.ms": None}})
        secrets = ("listener.name.x.ssl.key.password", "vault.token")
        outcome = await admin.alter_configs({broker: dict.fromkeys(secrets, SECRET)})
        assert set(outcome.values()) == {None}
        await admin.alter_configs({broker: {"follower.replication.throttled.rate": "900"}})
        limits = {"producer_byte_rate": 1024.0}
        await admin.alter_client_quotas([QuotaChange({"client-id": "loader"}, limits)])
        await admin.delete_topics(["orders"])
        await admin.close()

    run(change)
    told = lines()
    assert any(
        one.startswith("topic orders created with 3 partitions, replication factor 1, id ")
        for one in told
    )
    assert "leads partitions orders-0, orders-1, orders-2" in told
    assert "topic orders has 4 partitions now, 1 more" in told
    assert "settings of topic orders changed: retention.ms=60000" in told
    assert "settings of topic orders changed: retention.ms=[default]" in told
    assert (
        "settings of broker 1 changed: listener.name.x.ssl.key.password=[hidden], "
        "vault.token=[hidden]"
    ) in told
    assert "settings of broker 1 changed: follower.replication.throttled.rate=900" in told
    assert "quota of client-id loader is now producer_byte_rate=1024.0" in told
    assert any(one.startswith("topic orders deleted, id ") for one in told)
    assert SECRET not in caplog.text


def test_groups_and_their_members_are_told(lines: Callable[[], list[str]]) -> None:
    """A rebalance, the generation it ends in, a member that leaves, one that goes silent."""

    async def consume(node: SimulatedNode) -> None:
        admin = node.admin()
        await admin.create_topics([NewTopic("orders", 2)])
        settings = {"group_id": "billing", "session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
        first = node.consumer("orders", client_id="first", **settings)
        await first.poll(1.0)
        second = node.consumer("orders", client_id="second", **settings)
        for _ in range(8):
            await asyncio.gather(first.poll(0.5), second.poll(0.5))
        await second.close()
        await first.poll(2.0)
        await first.close()
        await admin.close()

    run(consume)
    told = "\n".join(lines())
    assert "group billing rebalances: it was Empty with generation 0 and has 1 members" in told
    assert "group billing has generation 1 with 1 members" in told
    assert "group billing rebalances: it was Stable with generation 1 and has 2 members" in told
    assert "group billing has generation 2 with 2 members" in told
    assert "member second-" in told
    assert " leaves group billing" in told
    assert "group billing is empty, generation " in told


def test_fenced_and_silent_members_are_told(lines: Callable[[], list[str]]) -> None:
    """A second member with the same instance id; a member that sends no heartbeat any more."""

    async def replace(node: SimulatedNode) -> None:
        admin = node.admin()
        await admin.create_topics([NewTopic("orders", 1)])
        settings = {"group_id": "billing", "group_instance_id": "one", "session_timeout_ms": 6000}
        first = node.consumer("orders", client_id="first", **settings)
        await first.poll(1.0)
        second = node.consumer("orders", client_id="second", **settings)
        await second.poll(1.0)
        with pytest.raises(KafkaError):
            await first.poll(10.0)
        await asyncio.sleep(400)  # longer than max.poll.interval.ms: heartbeats end
        await admin.close()

    run(replace)
    told = "\n".join(lines())
    assert " of group billing fenced: " in told
    assert "joined with the same group.instance.id one" in told
    assert "removed from group billing: it sent no heartbeat for 6000 ms" in told


def test_segments_that_roll_and_go_are_told_and_no_payload(
    lines: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """The directory, the offset and the size; at TRACE as well no record's content."""
    caplog.set_level(5, "ottla")

    async def produce(node: SimulatedNode) -> None:
        admin, producer = node.admin(), node.producer(linger_ms=0)
        small = {"segment.bytes": "1048576", "retention.bytes": "1", "file.delete.delay.ms": "1"}
        await admin.create_topics([NewTopic("orders", 1, configs=small)])
        for _ in range(3):
            await producer.send_and_wait("orders", PAYLOAD * 30_000, key=PAYLOAD)
        await asyncio.sleep(30)
        await producer.close()
        await admin.close()

    run(produce, log_retention_check_interval_ms="1000")
    told = "\n".join(lines())
    assert "segment rolled in orders-0 at offset 1; the last one has 63" in told
    assert "segments of orders-0 deleted by retention, from offset 0 on; the log starts at" in told
    assert "PRODUCE version" in told
    assert "payload-of" not in caplog.text


def test_a_recovery_after_a_crash_is_told(lines: Callable[[], list[str]]) -> None:
    """The next start names the directory that was not closed cleanly, and how many logs it has."""

    async def crash(node: SimulatedNode) -> None:
        admin = node.admin()
        await admin.create_topics([NewTopic("orders", 2)])
        node.kill(power=False)

    run(crash, nothing)
    told = lines()
    assert "log directory /data was not closed cleanly: its logs were checked and recovered" in told
    assert any(one.startswith("loaded 2 logs in ") for one in told)


def test_an_unfinished_write_is_told(lines: Callable[[], list[str]]) -> None:
    """A recovery that removes bytes names the log and how many."""

    async def tear(node: SimulatedNode) -> None:
        admin, producer = node.admin(), node.producer(linger_ms=0)
        await admin.create_topics([NewTopic("orders", 1)])
        await producer.send_and_wait("orders", b"whole")
        node.kill(power=False)
        path = "orders-0/00000000000000000000.log"
        (found,) = (one for one in node.disk.files() if one.endswith(path))
        node.disk.open(found).append([b"torn"])

    run(tear, nothing)
    text = "4 bytes of unfinished writes are removed from the end of orders-0, which has offset 1 "
    assert any(one.startswith(text) for one in lines())


def test_a_long_load_is_told_every_few_seconds(lines: Callable[[], list[str]]) -> None:
    """An operator sees that the start goes on."""

    class Clock:
        ms = 0

        def monotonic_ms(self) -> int:
            return self.ms

        now_ms = monotonic_ms

    clock, timer = Clock(), TimingWheel(0)
    loads = [LoadProgress("/data"), LoadProgress("/more")]
    for load in loads:
        load.log_count = 100
    report = LoadReport(loads, clock, timer)
    for opened, segment_count in ((30, 1), (60, 7), (100, 0)):
        clock.ms += 6000
        loads[0].opened_count, loads[1].opened_count = opened, opened // 2
        loads[1].segment_count = segment_count
        timer.advance(clock.ms)
    report.stop()
    clock.ms += 60_000
    timer.advance(clock.ms)
    segments = ", 7 segments to read in the current one"
    assert lines() == [
        "loading logs: 45 are open after 6 s; 70 remain in /data; 85 remain in /more",
        f"loading logs: 90 are open after 12 s; 40 remain in /data; 70 remain in /more{segments}",
        "loading logs: 150 are open after 18 s; 50 remain in /more",
    ]


def test_refused_clients_are_told(lines: Callable[[], list[str]]) -> None:
    """The setting that refused them is named; the line has the client, so it is limited."""
    with Cluster(config={"max.connections.per.ip": "1"}) as cluster:
        host, _, port = cluster.bootstrap.partition(":")
        with socket.create_connection((host, int(port))) as first:
            first.sendall(b"\0")
            with socket.create_connection((host, int(port))) as second:
                assert second.recv(1) == b""
    assert "connection refused: the address has reached max.connections.per.ip" in lines()


def test_requests_pass_no_log_unless_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """A listener's handler is the dispatcher itself; DEBUG puts the log around it within 5 s."""
    handlers: list[object] = []

    async def look(node: SimulatedNode) -> None:
        for level in (logging.INFO, logging.DEBUG, logging.INFO):
            caplog.set_level(level, "ottla.requests")
            await asyncio.sleep(6)
            assert node.node is not None
            listener = node.node._listeners.open[0]
            handlers.append(type(listener.handle_frame.__self__))  # type: ignore[attr-defined] # a method

    run(look)
    assert handlers == [Dispatcher, RequestLog, Dispatcher]

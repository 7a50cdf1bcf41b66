"""Java's distributed worker and ours take over from each other, and share a group.

Both work on the same three topics: connectors, offsets, states and tasks of one are those of the
other. The brokers are Ottla's.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from ottla.clients.blocking import Consumer
from ottla.testing.cluster import Cluster
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
WAIT_S = 90.0


class Group:
    """The settings of a group of workers on one cluster."""

    def __init__(self, kafka: Kafka, bootstrap: str, directory: Path) -> None:
        self.kafka, self.directory = kafka, directory
        self.settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "workers",
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "offset.flush.interval.ms": "300",
            "scheduled.rebalance.max.delay.ms": "1000",
            "offset.storage.partitions": "2",
            "status.storage.partitions": "2",
        }
        for kind in ("config", "offset", "status"):
            self.settings[f"{kind}.storage.topic"] = f"connect-{kind}"
            self.settings[f"{kind}.storage.replication.factor"] = "1"

    @contextmanager
    def worker(self, kind: str) -> Iterator[Worker]:
        """Run a worker, java or ottla, until the end of the block."""
        (port,) = free_ports(1)
        file = self.directory / f"{kind}-{port}.properties"
        settings = {**self.settings, "listeners": f"http://127.0.0.1:{port}"}
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if kind == "java":
            command = self.kafka.command(
                "org.apache.kafka.connect.cli.ConnectDistributed", str(file)
            )
        else:
            command = [sys.executable, "-m", "ottla", "connect-distributed", str(file)]
        with (self.directory / f"{kind}-{port}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield Worker(port, process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Worker:
    """A worker by its REST API."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port, self.process = port, process

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON; 0 while there is no answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urlopen(request, timeout=WAIT_S) as answer:
                status, text = answer.status, answer.read()
        except HTTPError as error:
            status, text = error.code, error.read()
        except OSError:
            return 0, None
        try:
            return status, json.loads(text) if text else None
        except ValueError:  # Jetty's page while the worker starts
            return 0, None

    def states(self, name: str) -> tuple[str, list[str]]:
        """Return the states of a connector and its tasks."""
        status, body = self.call("GET", f"/connectors/{name}/status")
        if status != 200:
            return "", []
        return body["connector"]["state"], [it["state"] for it in body["tasks"]]

    def position(self, name: str) -> int:
        """Return the stored position of a file source, -1 without one."""
        status, body = self.call("GET", f"/connectors/{name}/offsets")
        return body["offsets"][0]["offset"]["position"] if status == 200 and body["offsets"] else -1


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.2)


@pytest.fixture(name="group")
def _group(kafka: Kafka, tmp_path: Path) -> Iterator[Group]:
    with Cluster() as cluster:
        yield Group(kafka, cluster.bootstrap, tmp_path)


def lines(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Return the first values of a topic, and what comes within a second after them."""
    with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=f"of-{topic}", auto_offset_reset="earliest"
    ) as consumer:
        values: list[bytes] = []
        until(lambda: len(values.__iadd__(it.value for it in consumer.poll(0.5))) >= count, topic)
        return values + [it.value for it in consumer.poll(1.0)]


RUNNING = ("RUNNING", ["RUNNING"])


def test_workers_take_over_in_turn(group: Group, tmp_path: Path) -> None:
    """Java, then ours, then Java: connectors, offsets, pauses and stops are those of the other."""
    source, text = tmp_path / "in.txt", ""
    config = {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines"}

    def add(line: str) -> None:
        nonlocal text
        text += line
        source.write_text(text)

    add("one\n")
    for turn, kind in enumerate(("java", "ottla", "java", "ottla")):
        with group.worker(kind) as worker:
            if turn == 0:
                until(
                    lambda w=worker: w.call("PUT", "/connectors/s/config", config)[0] in {200, 201},  # type: ignore[misc] # ruff's B023
                    "created",
                )
            until(lambda w=worker: w.states("s") == RUNNING, f"{kind} runs the task")  # type: ignore[misc]
            if turn:
                add(f"{kind} {turn}\n")
            end = len(text)
            until(lambda w=worker, e=end: w.position("s") == e, f"{kind} reads {end}")  # type: ignore[misc]
            if turn == 1:
                assert worker.call("PUT", "/connectors/s/pause")[0] == 202
                until(lambda w=worker: w.states("s") == ("PAUSED", ["PAUSED"]), "paused")  # type: ignore[misc]
                assert worker.call("PUT", "/connectors/s/resume")[0] == 202
                until(lambda w=worker: w.states("s") == RUNNING, "resumed")  # type: ignore[misc]
    read = lines(group.settings["bootstrap.servers"], "lines", 4)
    assert read == [b"one", b"ottla 1", b"java 2", b"ottla 3"]


@pytest.mark.parametrize("kinds", [("java", "ottla"), ("ottla", "java")])
def test_workers_of_both_kinds_share_a_group(
    group: Group, tmp_path: Path, kinds: tuple[str, str]
) -> None:
    """Either kind leads: connectors are divided, requests forwarded, and one takes over."""
    group.settings["scheduled.rebalance.max.delay.ms"] = "0"
    configs = {}
    for name in ("a", "b"):
        (tmp_path / name).write_text("one\n")
        configs[name] = {
            "connector.class": "FileStreamSource",
            "file": str(tmp_path / name),
            "topic": f"of-{name}",
        }

    def owners(worker: Worker, name: str) -> list[str]:
        status, body = worker.call("GET", f"/connectors/{name}/status")
        if status != 200:
            return []
        entries = [body["connector"], *body["tasks"]]
        return [it["worker_id"] for it in entries if it["state"] == "RUNNING"]

    with group.worker(kinds[0]) as first:
        until(
            lambda: first.call("PUT", "/connectors/a/config", configs["a"])[0] in {200, 201},
            "created",
        )
        until(lambda: first.states("a") == RUNNING, "the first runs it")
        with group.worker(kinds[1]) as second:
            until(  # the follower forwards to the leader
                lambda: second.call("PUT", "/connectors/b/config", configs["b"])[0] in {200, 201},
                "created by the follower",
            )

            def divided() -> bool:
                found = [owners(first, it) for it in configs]
                both = {f"127.0.0.1:{it.port}" for it in (first, second)}
                return all(len(it) == 2 for it in found) and both == {
                    it for of in found for it in of
                }

            until(divided, "each worker has a part")
            until(lambda: first.position("a") == first.position("b") == 4, "both are read")
            for worker in (first, second):
                for name in configs:
                    status, body = worker.call("POST", f"/connectors/{name}/tasks/0/restart")
                    assert status == 204, body
                    until(divided, "restarted")
        until(
            lambda: all(owners(first, it) == [f"127.0.0.1:{first.port}"] * 2 for it in configs),
            "the first takes over",
        )
    for name in configs:
        assert lines(group.settings["bootstrap.servers"], f"of-{name}", 1) == [b"one"]

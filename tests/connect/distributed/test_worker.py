"""Workers of a group on a real node: two in this process, and one as a command that is killed."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.clients.blocking import Consumer
from ottla.config.properties import parse_properties
from ottla.connect.distributed.forwarding import DistributedApi
from ottla.connect.distributed.settings import DISTRIBUTED
from ottla.connect.distributed.signing import SessionKey, sign
from ottla.connect.distributed.topics import create_topics
from ottla.connect.distributed.worker import Distributed
from ottla.connect.errors import ConnectException
from ottla.http.host import HttpHost
from ottla.testing.cluster import Cluster
from tests.connect.serving import serve
from tests.ports import free_ports
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

STRINGS = "org.apache.kafka.connect.storage.StringConverter"


def settings_of(bootstrap: str, group: str, **changes: str) -> dict[str, str]:
    """Return the settings of a group's workers."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.flush.interval.ms": "200",
        "scheduled.rebalance.max.delay.ms": "0",
        "heartbeat.interval.ms": "300",
        "session.timeout.ms": "6000",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
    }
    for kind in ("config", "offset", "status"):
        settings[f"{kind}.storage.topic"] = f"{group}-{kind}"
        settings[f"{kind}.storage.replication.factor"] = "1"
    return {**settings, **changes}


def call(
    port: int, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Return status and JSON of an answer; 0 without one."""
    data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
    sent = {"content-type": "application/json", **(headers or {})}
    request = Request(f"http://127.0.0.1:{port}{path}", data, sent, method=method)
    try:
        with urlopen(request, timeout=WAIT_S) as answer:
            status, text = answer.status, answer.read()
    except HTTPError as error:
        status, text = error.code, error.read()
    except OSError:
        return 0, None
    return status, json.loads(text) if text else None


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for a time that no healthy run needs."""
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.fixture(name="bootstrap", scope="module")
def _bootstrap() -> Iterator[str]:
    with Cluster() as cluster:
        yield cluster.bootstrap


@contextmanager
def worker(settings: Mapping[str, str]) -> Iterator[tuple[Distributed, int]]:
    """Run a worker in this process."""
    host = HttpHost("127.0.0.1", 0, "the API")
    address = f"127.0.0.1:{host.address[1]}"
    running = Distributed(settings, address, f"http://{address}/")
    serve(host, DistributedApi(running, "cluster"))
    try:
        yield running, host.address[1]
    finally:
        host.stop()
        running.stop()


def states(port: int, name: str) -> list[tuple[str, str]]:
    """Return state and worker of a connector and of its tasks."""
    status, body = call(port, "GET", f"/connectors/{name}/status")
    entries = [body["connector"], *body["tasks"]] if status == 200 else []
    return [(it["state"], it["worker_id"]) for it in entries]


def test_two_workers_divide_and_answer_alike(bootstrap: str, tmp_path: Path) -> None:
    """Each has one of two connectors; either answers every request; one takes over."""
    settings = settings_of(bootstrap, "pair")
    with worker(settings) as (first, port):
        until(lambda: first.call(lambda it: it.session_key is not None).result())  # type: ignore[attr-defined]
        with worker(settings) as (_, other):
            for number, at in enumerate((port, other)):
                source = tmp_path / f"{number}.txt"
                source.write_text("a\n")
                config = {"connector.class": "FileStreamSource", "file": str(source), "topic": "t"}
                until(
                    lambda at=at, n=number, c=config: (  # type: ignore[misc]
                        call(at, "PUT", f"/connectors/c{n}/config", c)[0] in {200, 201}
                    )
                )
            ids = {f"127.0.0.1:{port}", f"127.0.0.1:{other}"}

            def divided() -> bool:
                found = [states(port, it) for it in ("c0", "c1")]
                good = all([state for state, _ in it] == ["RUNNING"] * 2 for it in found)
                connectors = {it[0][1] for it in found if it}
                return good and connectors == ids and {it[1][1] for it in found} == ids

            until(divided)
            for at in (port, other):
                for name in ("c0", "c1"):
                    assert call(at, "POST", f"/connectors/{name}/restart")[0] == 204
                    assert call(at, "POST", f"/connectors/{name}/tasks/0/restart")[0] == 204
                path = "/connectors/c0/restart?includeTasks=true"
                status, body = call(at, "POST", path)
                assert (status, body["connector"]["state"]) == (202, "RESTARTING")
                until(divided)
            assert call(other, "PUT", "/connectors/c1/stop") == (204, None)
            until(lambda: [it[0] for it in states(port, "c1")] == ["STOPPED"])
            assert call(other, "DELETE", "/connectors/c1/offsets")[0] == 200
            assert call(other, "DELETE", "/connectors/c1") == (204, None)
            until(lambda: call(port, "GET", "/connectors") == (200, ["c0"]))
            until(lambda: states(port, "c1") == [])
        until(lambda: states(port, "c0") == [("RUNNING", f"127.0.0.1:{port}")] * 2)


def test_a_worker_that_does_not_answer_keeps_no_process_alive(bootstrap: str) -> None:
    """Whoever waits for it is a thread that may hang alone."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        worker(settings_of(bootstrap, "silent")) as (running, _),
    ):
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        answer = running.forward(url, "GET", "/", b"", {})
        client, _ = silent.accept()
        threads = [it for it in threading.enumerate() if it.name == "ottla-request"]
        assert threads
        assert all(it.daemon for it in threads)
        client.close()
        with pytest.raises(ConnectException, match="IO Error trying to forward REST request"):
            answer.result(WAIT_S)


def test_requests_between_workers_are_signed(bootstrap: str) -> None:
    """Kafka's answers to a missing, a foreign and a wrong signature, and to a wrong turn."""
    with worker(settings_of(bootstrap, "signed")) as (running, port):
        until(lambda: running.call(lambda it: it.session_key is not None).result())  # type: ignore[attr-defined]
        key: SessionKey = running.call(lambda it: it.session_key).result()  # type: ignore[attr-defined]
        path, body = "/connectors/nope/tasks?forward=false", [{"a": "b"}]
        assert call(port, "POST", path, body) == (
            400,
            {"error_code": 400, "message": "Internal request missing required signature"},
        )
        data = json.dumps(body, separators=(",", ":")).encode()
        headers = sign(key, data, "HmacSHA256")
        foreign = {**headers, "X-Connect-Request-Signature-Algorithm": "HmacSHA1"}
        assert call(port, "POST", path, body, foreign)[0] == 400
        wrong = sign(SessionKey(b"x", "HmacSHA256", 0), data, "HmacSHA256")
        large = [{"a": "b" * (2 << 20)}]  # the settings of many tasks
        data = json.dumps(large, separators=(",", ":")).encode()
        answer = call(port, "POST", path, large, sign(key, data, "HmacSHA256"))
        assert answer == (404, {"error_code": 404, "message": "Connector nope not found"})
        large = [{"a": "b" * (16 << 20)}]
        data = json.dumps(large, separators=(",", ":")).encode()
        large_headers = {**sign(key, data, "HmacSHA256"), "content-type": "application/json"}
        for method, at, sent in (
            ("POST", path, data),
            ("PUT", "/connectors/c/config", b"x" * (2 << 20)),
        ):
            url = f"http://127.0.0.1:{port}{at}"
            request = Request(url, sent, large_headers, method=method)
            try:
                with urlopen(request, timeout=30) as answered:
                    status = answered.status
            except HTTPError as error:
                status = error.code
                error.close()
            except OSError:
                status = 413  # closed while it was sent
            assert status == 413
        for bad in (wrong, {**headers, "X-Connect-Authorization": "?"}):
            refused = {
                "error_code": 403,
                "message": "Internal request contained invalid signature.",
            }
            assert call(port, "POST", path, body, bad) == (403, refused)
        status, answer = call(port, "POST", path, body, headers)
        assert (status, answer["message"]) == (404, "Connector nope not found")
        running.call(lambda it: it.lost()).result()  # type: ignore[attr-defined] # no leader
        config = {"connector.class": "FileStreamSource", "file": "x", "topic": "t"}
        for query, start in (
            ("", "Cannot complete request momentarily due to no known leader"),
            ("?forward=false", "Cannot complete request because of a conflicting"),
        ):
            status, answer = call(port, "PUT", f"/connectors/c/config{query}", config)
            assert status == 409
            assert answer["message"].startswith(start)


@pytest.mark.parametrize(
    ("kind", "partitions", "policy", "text"),
    [
        ("config", 1, "delete", "required to have 'cleanup.policy=compact'"),
        ("offset", 2, "compact,delete", "durability of source connector offsets"),
        ("config", 3, "compact", "a single partition in order to guarantee consistency"),
    ],
)
def test_topics_that_lose_data_are_refused(
    bootstrap: str, kind: str, partitions: int, policy: str, text: str
) -> None:
    """A topic that exists and is not compacted, or that splits the order of configurations."""
    settings = settings_of(bootstrap, f"wrong-{kind}-{partitions}")
    with Admin(bootstrap_servers=bootstrap) as admin:
        topic = settings[f"{kind}.storage.topic"]
        admin.create_topic(topic, partitions, 1, configs={"cleanup.policy": policy})
    with pytest.raises(ConnectException, match=text):
        create_topics(settings, DISTRIBUTED.parse(settings))


def test_a_killed_worker_goes_on_from_its_topics(bootstrap: str, tmp_path: Path) -> None:
    """The command is killed by force; the next one repeats nothing that was committed."""
    (port,) = free_ports(1)
    file, source = tmp_path / "worker.properties", tmp_path / "in.txt"
    settings = {**settings_of(bootstrap, "killed"), "listeners": f"http://127.0.0.1:{port}"}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    source.write_text("one\n")
    config = {"connector.class": "FileStreamSource", "file": str(source), "topic": "killed"}
    command = [sys.executable, "-m", "ottla", "connect-distributed", str(file)]

    def position() -> int:
        status, body = call(port, "GET", "/connectors/s/offsets")
        return body["offsets"][0]["offset"]["position"] if status == 200 and body["offsets"] else -1

    def create() -> bool:
        return call(port, "PUT", "/connectors/s/config", config)[0] in {200, 201}

    for turn, text in enumerate(("one\n", "one\ntwo\n")):
        end = len(text)
        source.write_text(text)
        with Popen(command, stdout=PIPE, stderr=PIPE) as process:
            try:
                if turn == 0:
                    until(create)
                until(lambda end=end: position() == end)  # type: ignore[misc]
            finally:
                if turn == 0:
                    process.kill()
                else:
                    process.terminate()
                process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    with Consumer(
        "killed", bootstrap_servers=bootstrap, group_id="of-killed", auto_offset_reset="earliest"
    ) as consumer:
        values: list[bytes] = []
        until(lambda: len(values.__iadd__(it.value for it in consumer.poll(0.5))) >= 2)
        assert values == [b"one", b"two"]


def test_the_settings_of_the_docs_are_complete() -> None:
    """The file of the page on Connect with a group is that of a worker of it."""
    text = (Path(__file__).parents[3] / "docs" / "connect.md").read_text("utf-8")
    files = (it.partition("```")[0] for it in text.split("```properties\n")[1:])
    file = next(it for it in files if "group.id=" in it)
    values = DISTRIBUTED.parse(parse_properties(file))
    assert (values["group.id"], values["scheduled.rebalance.max.delay.ms"]) == ("workers", 300_000)


def test_the_command_explains_itself(tmp_path: Path) -> None:
    """Help has an example; missing settings and foreign addresses are one line."""
    command = [sys.executable, "-m", "ottla", "connect-distributed"]
    shown = run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "ottla connect-distributed connect-distributed.properties" in shown
    file = tmp_path / "w.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\nlisteners=http://127.0.0.1:0\n")
    failed = run([*command, str(file)], capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "group.id" in failed.stderr
    assert "Traceback" not in failed.stderr

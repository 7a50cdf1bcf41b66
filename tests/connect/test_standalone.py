"""A worker on a real node: FileStream both ways, and the REST API."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.clients.blocking import Consumer, Producer
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.offset_file import decode_offsets, encode_offsets
from ottla.connect.runtime.rest import ConnectApi
from ottla.connect.runtime.standalone import Standalone
from ottla.http.host import HttpHost
from ottla.testing.cluster import Cluster
from tests.connect.serving import serve
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Rest:
    """A worker and its API."""

    def __init__(
        self, bootstrap: str, directory: Path, more: Mapping[str, str] | None = None
    ) -> None:
        """Start both."""
        self.settings = {
            "bootstrap.servers": bootstrap,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(directory / "offsets"),
            "offset.flush.interval.ms": "200",
            **(more or {}),
        }
        self.worker = Standalone(self.settings, "127.0.0.1:8083")
        self._host = HttpHost("127.0.0.1", 0, "the API")
        serve(self._host, ConnectApi(self.worker, "cluster"))

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self._host.address[1]}{path}"
        request = Request(url, data, {"content-type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=WAIT_S) as answer:
                status, text = answer.status, answer.read()
        except HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def close(self) -> None:
        """Stop both."""
        self._host.stop()
        self.worker.stop()


@pytest.fixture(name="bootstrap", scope="module")
def _bootstrap() -> Iterator[str]:
    with Cluster() as cluster:
        yield cluster.bootstrap


@pytest.fixture(name="rest")
def _rest(bootstrap: str, tmp_path: Path) -> Iterator[Rest]:
    rest = Rest(bootstrap, tmp_path)
    yield rest
    rest.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for a time that no healthy run needs."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def values_of(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Return the values of a topic's first records."""
    with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=f"check-{topic}", auto_offset_reset="earliest"
    ) as consumer:
        values: list[bytes] = []
        until(lambda: len(values.__iadd__(it.value for it in consumer.poll(0.2))) >= count)
        return values


def test_lines_go_through_a_topic_and_a_restart_repeats_none(
    bootstrap: str, tmp_path: Path
) -> None:
    """File to topic to file; after a clean stop the source goes on where it was."""
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("tea\nmilk\r\nhalf", encoding="utf-8")
    first = {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines"}
    second = {"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"}
    rest = Rest(bootstrap, tmp_path)
    status, body = rest.call("POST", "/connectors", {"name": "a", "config": first})
    assert (status, body["tasks"], body["type"]) == (201, [], "source")
    assert rest.call("PUT", "/connectors/b/config", second)[0] == 201
    until(lambda: sink.exists() and sink.read_text() == "tea\nmilk\n")
    until(lambda: rest.call("GET", "/connectors/a/offsets")[1]["offsets"] != [])
    stored = {"partition": {"filename": str(source)}, "offset": {"position": 10}}
    assert rest.call("GET", "/connectors/a/offsets") == (200, {"offsets": [stored]})
    assert rest.call("GET", "/connectors/b/topics")[1] == {"b": {"topics": ["lines"]}}
    rest.close()
    with source.open("a") as stream:
        stream.write(" and half\nlast\n")
    rest = Rest(bootstrap, tmp_path)
    for name, config in (("a", first), ("b", second)):
        assert rest.call("PUT", f"/connectors/{name}/config", config)[0] == 201
    expected = "tea\nmilk\nhalf and half\nlast\n"
    until(lambda: sink.read_text() == expected)
    rest.close()
    assert sink.read_text() == expected
    assert values_of(bootstrap, "lines", 4) == [b"tea", b"milk", b"half and half", b"last"]


def test_states_offsets_and_restarts(rest: Rest, tmp_path: Path) -> None:
    """Pause, stop, alter and reset offsets, restart, delete."""
    source = tmp_path / "in.txt"
    source.write_text("1\n2\n")
    config = {"connector.class": "FileStreamSource", "file": str(source), "topic": "states"}
    rest.call("POST", "/connectors", {"name": "c", "config": config, "initial_state": "paused"})

    def state() -> tuple[str | None, list[str]]:
        status, body = rest.call("GET", "/connectors/c/status")
        if status != 200:
            return None, []
        return body["connector"]["state"], [it["state"] for it in body["tasks"]]

    until(lambda: state() == ("PAUSED", []))
    assert rest.call("PUT", "/connectors/c/resume") == (202, None)
    until(lambda: state() == ("RUNNING", ["RUNNING"]))
    assert rest.call("PUT", "/connectors/c/pause") == (202, None)
    until(lambda: state() == ("PAUSED", ["PAUSED"]))
    refused = rest.call("DELETE", "/connectors/c/offsets")
    assert (refused[0], refused[1]["error_code"]) == (400, 400)
    assert rest.call("PUT", "/connectors/c/stop") == (204, None)
    until(lambda: state() == ("STOPPED", []))
    offset = {"partition": {"filename": str(source)}, "offset": {"position": 2}}
    done = "The offsets for this connector have been altered successfully"
    altered = rest.call("PATCH", "/connectors/c/offsets", {"offsets": [offset]})
    assert altered == (200, {"message": done})
    assert rest.call("GET", "/connectors/c/offsets")[1] == {"offsets": [offset]}
    wrong = {**offset, "offset": {"position": -1}}
    assert rest.call("PATCH", "/connectors/c/offsets", {"offsets": [wrong]})[0] == 500
    assert rest.call("DELETE", "/connectors/c/offsets")[0] == 200
    assert rest.call("GET", "/connectors/c/offsets")[1] == {"offsets": []}
    assert rest.call("PUT", "/connectors/c/resume") == (202, None)
    until(lambda: state() == ("RUNNING", ["RUNNING"]))
    assert rest.call("POST", "/connectors/c/restart") == (204, None)
    status, body = rest.call("POST", "/connectors/c/restart?includeTasks=true")
    assert (status, body["tasks"][0]["state"]) == (202, "RESTARTING")
    until(lambda: state() == ("RUNNING", ["RUNNING"]))
    assert rest.call("POST", "/connectors/c/tasks/0/restart") == (204, None)
    assert rest.call("DELETE", "/connectors/c") == (204, None)
    assert rest.call("GET", "/connectors") == (200, [])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/connectors/nope", None, 404, "Connector nope not found"),
        ("GET", "/connectors/nope/status", None, 404, "No status found for connector nope"),
        ("POST", "/connectors/nope/restart", None, 404, "Unknown connector: nope"),
        ("PUT", "/connectors/nope/pause", None, 404, "Unknown connector nope"),
        ("GET", "/huh", None, 404, "HTTP 404 Not Found"),
        ("DELETE", "/connectors", None, 405, "HTTP 405 Method Not Allowed"),
        ("GET", "/connector-plugins/Nope/config", None, 404, "Unknown plugin Nope."),
        (
            "POST",
            "/connectors",
            {"name": "s2", "config": {"name": "zz"}},
            400,
            "Connector name configuration (zz) doesn't match connector name in the URL (s2)",
        ),
        (
            "PUT",
            "/connectors/s2/config",
            {"tasks.max": "1"},
            400,
            "Connector config {tasks.max=1, name=s2} contains no connector type",
        ),
    ],
)
def test_refusals(rest: Rest, method: str, path: str, body: Any, status: int, message: str) -> None:
    """Kafka's status and text."""
    refused = {"error_code": status, "message": message}
    assert rest.call(method, path, body) == (status, refused)


def test_bad_bodies_are_500_and_unknown_plugins_name_the_known(rest: Rest) -> None:
    """As in Kafka, whose parser fails before its own checks."""
    assert rest.call("POST", "/connectors", ["x"])[0] == 500
    assert rest.call("POST", "/connectors", {"name": "x", "huh": 1, "config": {}})[0] == 500
    status, body = rest.call("PUT", "/connectors/x/config", {"connector.class": "Huh"})
    assert status == 400
    assert body["message"].startswith("Failed to find any class that implements Connector")
    validated = rest.call(
        "PUT",
        "/connector-plugins/FileStreamSink/config/validate",
        {"connector.class": "FileStreamSink", "name": "x", "tasks.max": "0"},
    )[1]
    assert validated["error_count"] == 3  # tasks.max, and neither topics nor topics.regex
    plugins = rest.call("GET", "/connector-plugins")[1]
    assert {it["type"] for it in plugins} == {"source", "sink"}


def test_dead_letters_and_failures(rest: Rest, bootstrap: str, tmp_path: Path) -> None:
    """Bad records go to the dead letters with headers, or fail the task; others run on."""
    sink = tmp_path / "good.txt"
    base = {
        "connector.class": "FileStreamSink",
        "topics": "mixed",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b'"a"', b"{bad", b'"b"'):
            producer.send_and_wait("mixed", value, b"k", headers=[("own", b"1")])
    tolerant = {
        **base,
        "file": str(sink),
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    assert rest.call("PUT", "/connectors/d/config", tolerant)[0] == 201
    strict = {**base, "file": str(tmp_path / "strict.txt")}
    assert rest.call("PUT", "/connectors/e/config", strict)[0] == 201
    until(lambda: sink.exists() and sink.read_text() == "a\nb\n")

    def failed() -> bool:
        tasks = rest.call("GET", "/connectors/e/status")[1].get("tasks")
        return bool(tasks) and tasks[0]["state"] == "FAILED"

    until(failed)
    trace = rest.call("GET", "/connectors/e/tasks/0/status")[1]["trace"]
    expected = "org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded in error"
    assert trace.startswith(expected)
    with Consumer(
        "letters", bootstrap_servers=bootstrap, group_id="l", auto_offset_reset="earliest"
    ) as consumer:
        letters: list[Any] = []
        until(lambda: bool(letters.__iadd__(consumer.poll(0.2))))
    assert (letters[0].key, letters[0].value) == (b"k", b"{bad")
    headers = dict(letters[0].headers)
    assert list(headers)[:3] == ["own", "__connect.errors.topic", "__connect.errors.partition"]
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert headers["__connect.errors.offset"] == b"1"


def test_the_topic_of_dead_letters_is_created(tmp_path: Path) -> None:
    """Also where brokers create none by themselves, with the replication factor of its setting."""
    with Cluster(config={"auto.create.topics.enable": "false"}) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("mixed", 1)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send_and_wait("mixed", b"{bad")
        rest = Rest(cluster.bootstrap, tmp_path)
        config = {
            "connector.class": "FileStreamSink",
            "topics": "mixed",
            "file": str(tmp_path / "out.txt"),
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "letters",
        }
        rest.call("PUT", "/connectors/d/config", config)

        def trace() -> str:
            return str(rest.call("GET", "/connectors/d/tasks/0/status")[1].get("trace", ""))

        until(lambda: "Could not initialize dead letter queue with topic=letters" in trace())
        config["errors.deadletterqueue.topic.replication.factor"] = "1"
        rest.call("PUT", "/connectors/d/config", config)
        assert values_of(cluster.bootstrap, "letters", 1) == [b"{bad"]
        rest.close()


JAVA_FILE = (
    bytes.fromhex(
        "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f6164466163"
        "746f724900097468726573686f6c6478703f4000000000000c7708000000100000000175720002"
        "5b42acf317f8060854e0020000787000000003"
    )
    + b"abc"
    + bytes.fromhex("7571007e000200000002")
    + b"{}x"
)


def test_the_offset_file_is_that_of_java() -> None:
    """Written and read byte for byte; anything else is refused, and nothing is looked up."""
    assert decode_offsets(JAVA_FILE) == {b"abc": b"{}"}
    assert encode_offsets({b"abc": b"{}"}) == JAVA_FILE
    many: dict[bytes | None, bytes | None] = {b"%d" % it: None for it in range(100)}
    assert decode_offsets(encode_offsets(many)) == many
    for end in range(1, len(JAVA_FILE)):
        with pytest.raises(ConnectException, match="Expected HashMap"):
            decode_offsets(JAVA_FILE[:end])


def test_the_command_runs_the_files_of_the_docs(bootstrap: str, tmp_path: Path) -> None:
    """The blocks of docs/connect.md, with this node and a free port; Ctrl-C commits and ends it."""
    text = (Path(__file__).parents[2] / "docs" / "connect.md").read_text(encoding="utf-8")
    worker, connector, *_ = (it.partition("```")[0] for it in text.split("```properties\n")[1:])
    worker = worker.replace("localhost:9092", bootstrap).replace(":8083", ":0")
    (tmp_path / "worker.properties").write_text(worker)
    (tmp_path / "lines.properties").write_text(connector.replace("=lines", "=documented"))
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    words = ("connect-standalone", "worker.properties", "lines.properties")
    with Popen(
        [sys.executable, "-m", "ottla", *words], cwd=tmp_path, stdout=PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Created connector documented\n"
        assert process.stdout.readline().startswith("REST API: http://127.0.0.1:")
        try:
            assert values_of(bootstrap, "documented", 2) == [b"one", b"two"]
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
    stored = decode_offsets((tmp_path / "connect.offsets").read_bytes())
    assert stored == {b'["documented",{"filename":"in.txt"}]': b'{"position":8}'}

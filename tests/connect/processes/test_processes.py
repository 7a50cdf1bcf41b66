"""Connectors in processes of their own: what they do there harms neither worker nor others."""

from __future__ import annotations

import errno
import logging
import math
import os
import random
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.errors import NotFoundException
from ottla.connect.metrics import MBean, series_of
from ottla.connect.plugins import Plugin, Plugins
from ottla.connect.processes import host, server
from ottla.connect.processes.beans import decode_metrics
from ottla.connect.processes.frames import MAX_FRAME_BYTES, MessageReader, encode_message
from ottla.connect.processes.host import ProcessHost
from ottla.connect.processes.runtime import ProcessRuntime
from ottla.connect.runtime.herder import StartTask
from ottla.connect.runtime.offsets import OffsetStore
from ottla.connect.runtime.standalone import Standalone
from ottla.connect.runtime.state import ConnectorTaskId, RunState, TargetState
from ottla.connect.settings import STANDALONE
from ottla.metrics.families import Exposition
from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.connect.runtime.herder import Herder

SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "offset.storage.file.filename": "none",
    "sasl.jaas.config": "canary-of-the-worker",
}
PLUGINS = Plugins(Plugin("Faulty", "source", "tests.connect.processes.connectors:Faulty"))


class Storage:
    """Offsets in memory."""

    def __init__(self) -> None:
        self.entries: dict[bytes | None, bytes | None] = {}

    def put(self, entries: Mapping[Any, bytes | None]) -> None:
        self.entries.update(entries)


class Worker:
    """A runtime, and what it reports."""

    def __init__(self, *, grace_ms: int = 5000) -> None:
        settings = {**SETTINGS, "task.shutdown.graceful.timeout.ms": str(grace_ms)}
        self.connectors: dict[str, list[tuple[RunState, str | None]]] = {}
        self.tasks: dict[str, list[tuple[RunState, str | None]]] = {}
        self.configs: dict[str, Sequence[Mapping[str, str]]] = {}
        self.store = OffsetStore(Storage())
        values = STANDALONE.parse(settings)
        self.runtime = ProcessRuntime(settings, values, PLUGINS, self.store, self)

    def connector_state(self, name: str, state: Any, trace: Any, version: Any) -> None:
        self.connectors.setdefault(name, []).append((state, trace))

    def task_state(self, task: ConnectorTaskId, state: Any, trace: Any, version: Any) -> None:
        self.tasks.setdefault(str(task), []).append((state, trace))

    def task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        self.configs[name] = configs

    def task_configs_requested(self, name: str) -> None:
        self.runtime.make_task_configs(name)

    def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        pass

    def start(self, name: str, **config: str) -> None:
        """Start a connector and its only task, and wait until both run."""
        config = {"connector.class": "Faulty", "name": name, **config}
        self.runtime.start_connector(name, config, TargetState.STARTED)
        wait_for(lambda: self.connectors.get(name))  # its task may end the process before
        task = ConnectorTaskId(name, 0)
        self.runtime.start_task(StartTask(task, config, config, TargetState.STARTED))
        wait_for(lambda: self.tasks.get(f"{name}-0"))

    def start_hanging(self, name: str, how: str, file: Path) -> None:
        """Start a connector whose task hangs, and wait until it does."""
        self.start(name, how=how, file=str(file))
        wait_for(file.exists)

    def failure(self, task: str) -> str:
        """Wait for the failure of a task, and return the first line of its trace."""
        wait_for(lambda: self.tasks[task][-1][0] is RunState.FAILED)
        return (self.tasks[task][-1][1] or "").partition("\n")[0]

    def process_id(self, name: str) -> int:
        """Return the process of a connector."""
        return wait_for(lambda: self.runtime._processes[name]._process.process_id or 0)

    def close(self) -> None:
        self.runtime.stop(time.monotonic() + 5)


@pytest.fixture(name="server", scope="module", autouse=True)
def _server() -> Iterator[None]:
    """Keep the process that others are forked from between tests."""
    ProcessHost.acquire()
    yield
    ProcessHost.release()


@pytest.fixture(name="worker")
def _worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def has_ended(process_id: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(process_id, 0)
        return "(zombie)" in Path(f"/proc/{process_id}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_garbage_as_metrics_harms_nothing(worker: Worker) -> None:
    """What is no bean is dropped; beans of the worker's types are those of the task alone."""
    worker.start("c")
    process = worker.runtime._processes["c"]
    good = ["kafka.connect", "task-error-metrics", {"connector": "x"}, {"total-retries": 2}]
    own: list[Any] = ["own", "Thing", {"of": "a"}, {"size": math.inf, "name": "b"}]
    fakes: list[Any] = [
        *(None, 7, [], "abcd", [[]], ["a", "b", {}], [1, "b", {}, {}], ["a", "b", [], []]),
        ["a\n", "b", {}, {"x": 1}],
        ["a", "b", {"t": "\ud800"}, {"x": 1}],
        ["a", "b", {"t": 1}, {"x": 1}],
        ["0a", "b", {}, {"x": 1}],
        ["a", "b", {"0t": "1"}, {"x": 1}],
        ["a", "b", {"__name__": "c"}, {"x": 1}],
        ["a", "b", {}, {"x": None}],
        ["a", "b", {}, {"x": 10**400}],
        ["a", "b", {}, {"x y": 1}],
        ["a", "b", {}, {"x": "y" * 2000}],
        ["a", "b", {}, {f"x{it}": 1 for it in range(1000)}],
        ["kafka.connect", "connect-worker-metrics", {}, {"task-count": 9}],
    ]
    reports: list[Any] = [None, {}, "abc", [None], [[0]], [["0", []]], [[7, [good]]]]
    for tasks in reports:
        process.on_message({"type": "metrics", "tasks": tasks})
        assert not decode_metrics(tasks).keys() & process.tasks
    metrics = decode_metrics([[0, [*fakes, good, own]]])[0]
    tags = {"connector": "c", "task": "0"}
    assert metrics.beans(ConnectorTaskId("c", 0), "running") == [
        MBean("kafka.connect", "task-error-metrics", tags, {"total-retries": 2}),
        MBean("kafka.connect", "connector-task-metrics", tags, {"status": "running"}),
        MBean(*own),
    ]
    assert list(Exposition().render(series_of(metrics.beans(ConnectorTaskId("c", 0), "running"))))
    many = decode_metrics([[0, [own] * 5000]])[0]
    assert len(many.beans(ConnectorTaskId("c", 0), "running")) == 1001
    wait_for(worker.runtime.task_metrics)
    assert worker.tasks["c-0"][-1][0] is RunState.RUNNING


@pytest.mark.parametrize(
    ("how", "trace"),
    [
        ("exit", "The task's process exited with 3"),
        ("segfault", "The task's process ended by signal SIGSEGV"),
        ("garbage", "The task's process has sent what is no message"),
        ("leak", "The task's process was killed: it used "),
    ],
)
def test_a_process_that_ends_fails_its_own_connector_only(
    worker: Worker, how: str, trace: str
) -> None:
    """The status says in one line how it ended; a restart of the connector works."""
    worker.start("other")
    other = worker.process_id("other")
    worker.start("bad", **{"how": how, "ottla.process.memory.max.mb": "200"})
    prefix = "org.apache.kafka.connect.errors.ConnectException: "
    assert worker.failure("bad-0").startswith(prefix + trace)
    state, text = worker.connectors["bad"][-1]
    assert state is RunState.FAILED
    assert trace.removeprefix("The task's") in (text or "")
    worker.runtime.stop_connector("bad")
    worker.runtime.stop_tasks([ConnectorTaskId("bad", 0)], time.monotonic() + 5)
    worker.tasks["bad-0"].clear()
    worker.start("bad", how="none")
    assert worker.tasks["bad-0"][-1] == (RunState.RUNNING, None)
    assert worker.process_id("other") == other
    assert not has_ended(other)
    assert {it[0] for it in worker.tasks["other-0"]} == {RunState.RUNNING}


def test_an_exception_fails_the_task_and_leaves_its_process(worker: Worker) -> None:
    """As on a thread; the trace has the lines of the connector."""
    worker.start("bad", how="raise")
    worker.failure("bad-0")
    assert "RuntimeError: no more" in (worker.tasks["bad-0"][-1][1] or "")
    assert worker.connectors["bad"] == [(RunState.RUNNING, None)]
    assert not has_ended(worker.process_id("bad"))


def test_a_failure_of_any_size_is_told(worker: Worker) -> None:
    """A trace that no message has room for is cut."""
    worker.start("bad", how="raise much")
    worker.failure("bad-0")
    has_cause = "RuntimeError: xxx" in (worker.tasks["bad-0"][-1][1] or "")
    assert has_cause


def test_what_a_connector_starts_has_no_pipe_of_its_worker(worker: Worker) -> None:
    """Descriptors that came by a socket are inherited unless somebody says so."""
    worker.start("bad", how="descriptors")
    worker.failure("bad-0")
    assert "inherited: []" in (worker.tasks["bad-0"][-1][1] or "")


def test_what_prints_without_end_does_not_stop_the_others(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """A program in a session of its own, which goes on after the connector's process."""
    caplog.set_level(logging.WARNING)
    worker.start("bad", how="daemon")
    assert "exited with 6" in worker.failure("bad-0")
    worker.start("good")


def test_an_answer_that_is_too_large_is_an_error(worker: Worker, tmp_path: Path) -> None:
    """The task hears of it, and the next question is answered."""
    offset = {"position": "x" * MAX_FRAME_BYTES}
    worker.store.put("asks", [({"shelf": 1}, offset)])
    worker.start("asks", how="ask", file=str(tmp_path / "offset"))
    worker.failure("asks-0")
    assert "the largest has" in (worker.tasks["asks-0"][-1][1] or "")
    worker.store.put("asks", [({"shelf": 1}, None)])
    worker.runtime.stop_tasks([ConnectorTaskId("asks", 0)], time.monotonic() + 5)
    worker.tasks["asks-0"].clear()
    worker.start("asks", how="ask", file=str(tmp_path / "offset"))
    worker.failure("asks-0")
    assert "ValueError: DataException" in (worker.tasks["asks-0"][-1][1] or "")


def test_a_server_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may be out of memory for a moment."""
    monkeypatch.setattr(ProcessHost, "_shared", None)
    monkeypatch.setattr(ProcessHost, "_users", 0)
    worker = Worker()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/no/such/python")
        worker.runtime.start_connector("a", {"connector.class": "Faulty"}, TargetState.STARTED)
        wait_for(lambda: worker.connectors.get("a"))
    assert "could not start: " in (worker.connectors["a"][-1][1] or "")
    worker.start("b")
    assert worker.tasks["b-0"] == [(RunState.RUNNING, None)]
    worker.close()


def test_a_host_that_cannot_start_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the last of those that have got it."""
    monkeypatch.setattr(ProcessHost, "_shared", None)
    monkeypatch.setattr(ProcessHost, "_users", 0)

    def refuse(_: ProcessHost) -> None:
        raise OSError(errno.EMFILE, "no more files")

    with monkeypatch.context() as patched:
        patched.setattr(ProcessHost, "__init__", refuse)
        with pytest.raises(OSError, match="no more files"):
            ProcessHost.acquire()
    made = ProcessHost.acquire()
    ProcessHost.release()
    assert not made._thread.is_alive()


def test_a_fork_that_fails_harms_no_other() -> None:
    """The server answers why, and goes on."""
    script = f"""
import errno, os, sys
sys.path[:] = {sys.path!r}
from ottla.connect.processes import server
fork = os.fork
def once():
    os.fork = fork
    raise OSError(errno.EAGAIN, "no more processes")
os.fork = once
server.main()
"""
    own, other = socket.socketpair()
    with (
        own,
        other,
        Popen([sys.executable, "-c", script, str(other.fileno())], pass_fds=[other.fileno()]),
    ):
        own.settimeout(WAIT_S)
        for number, kind in ((1, server.REFUSED), (2, server.STARTED)):
            request = server.REQUEST.pack(server.FORK, number)
            pipe, output = socket.socketpair(), os.pipe()
            socket.send_fds(own, [request], [pipe[1].fileno(), output[1]])
            got, of, value = server.REPLY.unpack(own.recv(server.REPLY.size))
            assert (got, of) == (kind, number)
            assert kind != server.REFUSED or value == errno.EAGAIN
            for descriptor in output:
                os.close(descriptor)
            for end in pipe:
                end.close()
        own.shutdown(socket.SHUT_WR)


def test_a_line_of_any_length_is_printed_whole(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """In parts."""
    caplog.set_level(logging.INFO)
    text = "".join(f"{it:07}|" for it in range(4000))
    worker.start("loud", how="print", text=text)
    wait_for(lambda: "output: milk" in caplog.messages)
    printed = "".join(it.removeprefix("output: ") for it in caplog.messages if "|" in it)
    assert printed == text


def test_a_crash_of_the_connector_itself_fails_it(worker: Worker) -> None:
    """One that has no task yet."""
    worker.runtime.start_connector(
        "bad", {"connector.class": "Faulty", "how": "start"}, TargetState.STARTED
    )
    wait_for(lambda: worker.connectors.get("bad"))
    assert "exited with 5" in (worker.connectors["bad"][-1][1] or "")


@pytest.mark.parametrize("how", ["hang", "hold"])
def test_a_task_that_hangs_ends_with_its_process(how: str, tmp_path: Path) -> None:
    """Its connector goes on in another one, also if the whole process has hung."""
    worker = Worker(grace_ms=100)
    worker.start_hanging("bad", how, tmp_path / "hangs")
    before = worker.process_id("bad")
    worker.runtime.stop_tasks([ConnectorTaskId("bad", 0)], time.monotonic() + 0.1)
    assert has_ended(before)
    wait_for(lambda: len(worker.connectors["bad"]) == 2)
    assert worker.connectors["bad"][-1] == (RunState.RUNNING, None)
    assert worker.process_id("bad") != before
    assert [it[0] for it in worker.tasks["bad-0"]] == [RunState.RUNNING]
    worker.close()


def test_a_connector_fails_that_has_no_process_after_its_task_has_hung(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also the other tasks are stopped."""
    worker = Worker(grace_ms=100)
    worker.start_hanging("bad", "hang", tmp_path / "hangs")
    worker.start("other")
    other = worker.runtime._processes["other"]

    def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, "no more files")

    with monkeypatch.context() as patched:
        patched.setattr(worker.runtime.host, "start", refuse)
        tasks = [ConnectorTaskId(it, 0) for it in ("bad", "other")]
        worker.runtime.stop_tasks(tasks, time.monotonic() + 0.1)
    state, trace = worker.connectors["bad"][-1]
    assert state is RunState.FAILED
    assert "no more files" in (trace or "")
    assert not other.tasks
    worker.close()


def test_a_process_that_does_not_answer_is_killed(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is stopped, or whose threads cannot run."""
    worker.start("bad")
    os.kill(worker.process_id("bad"), signal.SIGSTOP)
    monkeypatch.setattr(host, "_PING_S", 0.3)
    assert "was killed: it has not answered for " in worker.failure("bad-0")


def test_what_a_connector_prints_is_logged(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """With its name, and without harm to the pipe; so are its lines of the log."""
    caplog.set_level(logging.INFO)
    worker.start("loud", how="print")
    wait_for(lambda: {"output: tea", "output: milk"} <= set(caplog.messages))
    worker.runtime.stop_connector("loud")
    worker.start("bad", how="raise")
    wait_for(lambda: "bad-0: Task threw an uncaught" in caplog.text)
    contexts = {getattr(it, "connector_context", None) for it in caplog.records}
    assert contexts >= {"[loud|worker] ", "[bad|task-0] "}


def test_lines_of_new_loggers_take_no_memory(
    worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library may have one for each connection; levels are those of the parent."""
    monkeypatch.setattr(logging.getLogger("tests.parent"), "level", logging.WARNING)
    worker.start("c")
    process = worker.runtime._processes["c"]._process
    names = ("tests.parent.new-1", "tests.parent.new-2.a", "new-3", "." * (1 << 20))
    for name in names:
        for level in (logging.INFO, logging.ERROR):
            process._log(name, level, f"{level} of {name[:20]}", "")
    assert not {*names} & logging.Logger.manager.loggerDict.keys()
    logged = [it for it in caplog.records if " of " in it.getMessage()]
    assert [(it.name, it.levelno) for it in logged if it.name in names[:2]] == [
        (it, logging.ERROR) for it in names[:2]
    ]
    assert {it.name for it in logged if it.levelno == logging.ERROR} == {*names}


def test_what_a_connector_has_forked_ends_with_it(worker: Worker, tmp_path: Path) -> None:
    """Also if it goes first."""
    file = tmp_path / "fork"
    worker.start("bad", how="fork", file=str(file))
    assert "exited with 4" in worker.failure("bad-0")
    wait_for(lambda: has_ended(int(file.read_text())))


def test_offsets_pass_the_pipe(worker: Worker, tmp_path: Path) -> None:
    """Of this connector only; what JSON cannot say is refused as on a thread."""
    file = tmp_path / "offset"
    worker.store.put("asks", [({"shelf": 1}, {"position": 7})])
    worker.start("asks", how="ask", file=str(file))
    worker.failure("asks-0")
    assert file.read_text() == "{'position': 7}"
    assert f"ValueError: DataException {file}" in (worker.tasks["asks-0"][-1][1] or "")


def test_offsets_of_a_process_that_has_ended_are_stored_before_it_has_failed(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start of the task, or an operator, would see others than were there a moment ago."""
    begun, may_store, put = threading.Event(), threading.Event(), worker.store.put

    def put_later(*arguments: Any) -> None:
        begun.set()
        may_store.wait(WAIT_S)
        put(*arguments)

    monkeypatch.setattr(worker.store, "put", put_later)
    worker.start("puts", how="put")
    assert begun.wait(WAIT_S)
    process = worker.runtime._processes["puts"]
    assert process._process.ended.wait(WAIT_S)
    with worker.runtime.lock:
        stopped = process.stop_tasks([0], 0)
    assert not stopped.done()
    assert worker.tasks["puts-0"] == [(RunState.RUNNING, None)]
    may_store.set()
    assert stopped.result(WAIT_S) == []
    assert worker.store.get_all("puts", [{"shelf": 1}, {"shelf": 2}]) == [{"at": 7}] * 2
    assert "exited with 3" in worker.failure("puts-0")
    with worker.runtime.lock:
        assert process.stop_tasks([0], 0).result(0) == []


def test_a_first_message_that_cannot_be_said_starts_no_process(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without end is in no list; paths that imports ignore are left out."""
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/no/such/directory"), None])
    before = set(worker.runtime.host._processes)
    settings = worker.runtime.settings
    worker.runtime.settings = {**settings, "x": "x" * MAX_FRAME_BYTES}
    with pytest.raises(ValueError, match="largest"):
        worker.start("large")
    worker.runtime.settings = settings
    worker.start("good")
    new = worker.runtime.host._processes.keys() - before
    assert new == {worker.runtime._processes["good"]._process.number}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "offsets", "partitions": []},
        {"type": "put_offsets", "id": "1", "entries": []},
        {"type": "stopped", "id": 1, "unfinished": ["one"]},
    ],
)
def test_garbage_as_messages_is_refused_where_it_is_read(
    worker: Worker, message: dict[str, Any]
) -> None:
    """Not on the thread that answers, nor on the herder's."""
    worker.start("c")
    process = worker.runtime._processes["c"]
    process._answers[1] = Future()
    with pytest.raises(ValueError, match=r"unknown message|invalid literal"):
        process.on_message(message)
    assert list(process._answers) == [1]


def test_other_users_see_no_settings(worker: Worker) -> None:
    """They go by the pipe: neither arguments nor environment have any."""
    worker.start("secret", password="canary-of-the-connector")
    directory = Path(f"/proc/{worker.process_id('secret')}")
    seen = directory.joinpath("cmdline").read_bytes() + directory.joinpath("environ").read_bytes()
    assert b"canary" not in seen


def test_a_process_that_has_ended_reads_no_file(worker: Worker) -> None:
    """Its files were ready in the turn in which it ended: their numbers may be others' by now."""
    worker.start("a")
    process = worker.runtime._processes["a"]._process
    process.kill("was killed")
    assert process.ended.wait(WAIT_S)
    number = process.output = os.open(__file__, os.O_RDONLY)
    try:
        assert not process.read_output()
        process.on_ready(1)
        assert os.lseek(number, 0, os.SEEK_CUR) == 0
    finally:
        os.close(number)


def test_without_its_server_all_processes_end(worker: Worker) -> None:
    """And the next one has another."""
    worker.start("bad")
    process_id = worker.process_id("bad")
    assert worker.runtime.host._server_process is not None
    worker.runtime.host._server_process.kill()
    assert "ended with the process that had forked it" in worker.failure("bad-0")
    wait_for(lambda: has_ended(process_id))
    worker.start("good")


def test_processes_end_with_their_worker(tmp_path: Path) -> None:
    """Also one that hangs in C, when the worker is killed."""
    script = f"""
import pathlib, sys, time
sys.path[:] = {sys.path!r}
from {__name__} import Worker
worker = Worker()
worker.start("a"); worker.start_hanging("b", "hold", pathlib.Path({str(tmp_path / "hangs")!r}))
print(worker.process_id("a"), worker.process_id("b"), flush=True)
time.sleep(3600)
"""
    with Popen([sys.executable, "-c", script], stdout=PIPE) as process:
        assert process.stdout is not None
        process_ids = [int(it) for it in process.stdout.readline().split()]
        process.kill()
    assert len(process_ids) == 2
    for process_id in process_ids:
        wait_for(partial(has_ended, process_id))


def test_messages_are_cut_anywhere_and_bounded() -> None:
    """Garbage and lengths that nothing has are refused before memory is taken."""
    data = encode_message({"type": "a"}) + encode_message({"type": "b", "x": "é\ud800"})
    for size in (1, 3, len(data)):
        reader, made = MessageReader(), list[Any]()
        for start in range(0, len(data), size):
            made += reader.feed(data[start : start + size])
        assert made == [{"type": "a"}, {"type": "b", "x": "é\ud800"}]
    for bad in (b"\xff\xff\xff\xff", b"\0\0\0\1[", b"\0\0\0\2[]"):
        with pytest.raises(ValueError, match=r"message|Expecting"):
            list(MessageReader().feed(bad))
    with pytest.raises(ValueError, match="largest"):
        encode_message({"x": "x" * MAX_FRAME_BYTES})


def test_kills_at_random_lose_nothing(tmp_path: Path) -> None:
    """File to topic to file, each connector in its process; a restart goes on where it was."""
    rng = random.Random(4)
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    sent: list[str] = []
    with Cluster(config={"group.min.session.timeout.ms": 100}) as cluster:
        worker = Standalone(
            {
                **SETTINGS,
                "bootstrap.servers": cluster.bootstrap,
                "offset.storage.file.filename": str(tmp_path / "offsets"),
                "offset.flush.interval.ms": "50",
                "ottla.runtime": "process",
            },
            "w:1",
        )
        # a killed consumer is a member until then, and its group waits for it
        expiry = {
            "consumer.override.session.timeout.ms": "1000",
            "consumer.override.heartbeat.interval.ms": "200",
        }
        configs = {
            "a": {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines"},
            "b": {"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"},
        }
        try:
            source.touch()
            for name, config in configs.items():
                worker.put(name, {**config, **expiry, "name": name}, may_replace=False).result(
                    WAIT_S
                )

            def has_state(name: str, state: str) -> bool:
                try:
                    status = worker.call(lambda it: it.status(name)).result()
                except NotFoundException:
                    return False
                return [it["state"] for it in (status["connector"], *status["tasks"])] == [
                    state
                ] * 2

            for turn in range(3):
                for name in configs:
                    wait_for(partial(has_state, name, "RUNNING"))
                lines = [f"{turn}-{number}" for number in range(rng.randrange(1, 200))]
                sent += lines
                with source.open("a") as file:
                    file.write("".join(f"{it}\n" for it in lines))
                time.sleep(rng.random() / 5)
                name = rng.choice("ab")
                runtime: Any = worker._worker._runtimes["process"]
                os.kill(runtime._processes[name]._process.process_id, signal.SIGKILL)
                wait_for(partial(has_state, name, "FAILED"))
                worker.call(partial(_restart, name)).result()
            wait_for(lambda: sink.exists() and set(sent) <= set(sink.read_text().split()))
        finally:
            worker.stop()
    assert list(dict.fromkeys(sink.read_text().split())) == sent


def _restart(name: str, herder: Herder) -> None:
    herder.restart_with_tasks(name, include_tasks=True, only_failed=True)

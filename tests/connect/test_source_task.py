"""The loop of a source task, and a worker whose plug-ins hang."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ottla.config.problems import ConfigErrors
from ottla.connect.connector import SourceConnector, SourceTask
from ottla.connect.converters.primitive import SimpleHeaderConverter, StringConverter
from ottla.connect.errors import BadRequestException, ConnectException
from ottla.connect.file.source import FileStreamSourceTask
from ottla.connect.plugins import Plugin
from ottla.connect.records import SourceRecord
from ottla.connect.runtime.offset_file import OffsetFile
from ottla.connect.runtime.offsets import OffsetStore
from ottla.connect.runtime.pipeline import Converters, Pipeline
from ottla.connect.runtime.source_task import OffsetReader, SourceLoop
from ottla.connect.runtime.standalone import Standalone
from ottla.connect.runtime.state import ConnectorTaskId, RunState, TargetState
from ottla.connect.runtime.tasks import TaskControl
from ottla.connect.runtime.tolerance import ErrorHandler, Tolerance
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

TASK = ConnectorTaskId("s", 0)


class Delivery:
    """An answer of the broker: its offset is the value, or the record is refused."""

    done = True

    def __init__(self, value: bytes) -> None:
        """Refuse `bad`."""
        self.error = ConnectException("too large") if value == b"bad" else None
        self.metadata = self
        self.offset = 7


class Producer:
    """Answers at once."""

    def __init__(self) -> None:
        """Begin with nothing sent."""
        self.sent: list[bytes] = []

    def send(self, _topic: str, value: bytes, _key: bytes | None, **_: Any) -> Delivery:
        """Take a record."""
        self.sent.append(value)
        return Delivery(value)

    def flush(self, _timeout_s: float) -> None:
        """Have nothing to wait for."""

    def close(self, _timeout_s: float) -> None:
        """Have nothing to wait for."""


class Store:
    """Keeps what was stored."""

    def __init__(self) -> None:
        """Begin empty."""
        self.offsets: list[Any] = []

    def put(self, _connector: str, offsets: Iterable[tuple[Any, Mapping[str, Any] | None]]) -> None:
        """Take offsets."""
        self.offsets += [offset for _, offset in offsets]


class Lines(SourceTask):
    """Returns its values once, with their places as offsets."""

    def __init__(self, *values: str) -> None:
        """Take the values."""
        self.values, self.stops, self.committed = values, 0, list[Any]()
        self.stop_has_ended = False
        self.stopped, self.hangs = threading.Event(), threading.Event()
        self.hangs.set()

    def start(self, config: Mapping[str, str]) -> None:
        """Need no settings."""

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return all values, then wait for the stop."""
        values, self.values = self.values, ()
        if not values:
            self.stopped.wait(WAIT_S)
        return [
            SourceRecord("t", value=it, source_partition={"p": 0}, source_offset={"at": at})
            for at, it in enumerate(values)
        ]

    def commit_record(self, record: SourceRecord, offset: int | None) -> None:
        """Note what was written."""
        self.committed.append((record.value, offset))

    def stop(self) -> None:
        """Count, and end `poll`; may hang first."""
        self.stops += 1
        self.stopped.set()
        self.hangs.wait(3 * WAIT_S)
        self.stop_has_ended = True


def loop_of(task: Lines, *, tolerates: bool = False) -> tuple[SourceLoop, TaskControl, Store]:
    """Return the loop of a task with a producer that refuses `bad`."""
    control = TaskControl(TASK, TargetState.STARTED, lambda _state, _trace: None)
    tolerance = Tolerance(tolerates, 0, 0, logs=False, logs_records=False)
    handler = ErrorHandler(TASK, tolerance, now_s=control.now_s, wait=control.wait)
    key, value = StringConverter(), StringConverter()
    key.configure({}, is_key=True)
    value.configure({}, is_key=False)
    store = Store()
    loop = SourceLoop(
        control,
        task,
        Pipeline([], Converters(key, value, SimpleHeaderConverter()), handler),
        handler,
        producer=Producer(),  # type: ignore[arg-type] # what the loop uses
        store=store,  # type: ignore[arg-type] # what the loop uses
        flush_interval_s=60,
        use_topic=lambda _: None,
    )
    return loop, control, store


def test_no_offset_after_a_refused_record() -> None:
    """The task fails, and begins with the refused record after its restart."""
    task = Lines("a", "bad", "c")
    loop, _, store = loop_of(task)
    with pytest.raises(ConnectException, match="Unrecoverable exception from producer send"):
        loop.run({})
    assert store.offsets == [{"at": 0}]
    assert task.committed == [("a", 7)]
    assert task.stops == 1


def test_the_failure_of_a_task_is_not_that_of_its_last_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its trace says why it failed, as in Kafka."""
    task = Lines("a")
    loop, _, store = loop_of(task)
    poll = task.poll

    def fail_then() -> Sequence[SourceRecord] | None:
        if task.values:
            return poll()
        raise ValueError("the source is gone")

    def refuse(_connector: str, _offsets: Any) -> None:
        raise ConnectException("no offset can be stored")

    monkeypatch.setattr(task, "poll", fail_then)
    monkeypatch.setattr(store, "put", refuse)
    with pytest.raises(ConnectException, match="Unhandled exception in error handler"):
        loop.run({})
    assert task.stops == 1


def test_a_refused_record_that_is_tolerated_is_passed() -> None:
    """It is written nowhere, and what follows is."""
    task = Lines("a", "bad", "c")
    loop, control, store = loop_of(task, tolerates=True)
    thread = threading.Thread(target=loop.run, args=({},))
    thread.start()
    wait_for(lambda: len(task.committed) >= 3)
    control.stop()
    thread.join(WAIT_S)
    assert task.committed == [("a", 7), ("bad", None), ("c", 7)]
    assert store.offsets == [{"at": 2}]
    control.metrics.texts = {"connector-type": "source"}
    figures = control.metrics.beans(TASK, "running")[1].attributes
    names = ("source-record-poll-total", "source-record-write-total", "source-record-active-count")
    assert [figures[it] for it in names] == [3, 2, 0]


def test_a_stop_comes_once_and_holds_nobody_up() -> None:
    """It ends `poll`; a task that hangs in it keeps its own thread only."""
    task = Lines("a")
    task.hangs.clear()
    loop, control, store = loop_of(task)
    thread = threading.Thread(target=loop.run, args=({},))
    thread.start()
    wait_for(lambda: task.committed)
    control.stop()
    wait_for(lambda: store.offsets)
    assert not task.stop_has_ended
    task.hangs.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert (task.stops, store.offsets) == (1, [{"at": 0}])


def test_a_file_that_is_opened_during_the_stop_is_closed(tmp_path: Path) -> None:
    """Whichever comes first; `poll` after the stop opens nothing."""
    path = tmp_path / "in.txt"
    path.write_text("a\n")
    for rounds in range(50):
        source = FileStreamSourceTask()
        source.context = OffsetReader(OffsetStore(OffsetFile(str(tmp_path / "none"))), "s", {})
        source.start({"file": str(path), "topic": "t"})
        stopping = threading.Timer(rounds / 1e5, source.stop)
        stopping.start()
        while source.poll() is not None:
            pass
        stopping.join()
        stream = source._stream
        assert stream is None or stream.closed


def settings_of(directory: Path) -> dict[str, str]:
    """Return the settings of a worker without a broker."""
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(directory / "offsets"),
    }


class Hanging(SourceConnector):
    """Never says whether its settings are valid."""

    task_class = Lines
    freed: ClassVar = threading.Event()

    def start(self, config: Mapping[str, str]) -> None:
        """Need no settings."""

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Have no tasks."""
        del tasks_max
        return []

    def validate(self, config: Mapping[str, str]) -> Any:
        """Hang."""
        self.freed.wait(WAIT_S)
        return super().validate(config)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_end_alike_however_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """LF, CR or both, also where a read ends between them; positions are those after the ends."""
    monkeypatch.setattr("ottla.connect.file.source._CHUNK", size)
    monkeypatch.setattr("ottla.connect.file.source._WAIT_S", 0)
    path = tmp_path / "in.txt"
    path.write_bytes("a\r\n\rbä\n\n\r\n-\rlong line\n\r".encode())
    task = FileStreamSourceTask()
    task.context = OffsetReader(OffsetStore(OffsetFile(str(tmp_path / "none"))), "c", {})
    task.start({"file": str(path), "topic": "t", "batch.size": "2"})
    records = [it for _ in range(60) for it in task.poll() or ()]
    with path.open("ab") as file:
        file.write(b"x\n")
    records += [it for _ in range(9) for it in task.poll() or ()]
    task.stop()
    assert [(it.value, (it.source_offset or {})["position"]) for it in records] == [
        ("a", 3), ("", 4), ("bä", 8), ("", 9), ("", 11), ("-", 13), ("long line", 23), ("", 24),
        ("x", 26),
    ]  # fmt: skip


def test_a_long_line_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end would otherwise be looked for from its beginning after each read."""
    path = tmp_path / "in.txt"
    path.write_bytes(b"x" * (1 << 20))
    task = FileStreamSourceTask()
    task.context = OffsetReader(OffsetStore(OffsetFile(str(tmp_path / "none"))), "c", {})
    task.start({"file": str(path), "topic": "t"})
    monkeypatch.setattr(task._is_stopped, "wait", lambda _: False)
    for _ in range(20):
        task.poll()
    assert task._searched == 1 << 20
    task.stop()


def test_a_validation_that_hangs_holds_only_its_request_up(tmp_path: Path) -> None:
    """Others are answered; too many at a time are refused."""
    worker = Standalone(settings_of(tmp_path), "w:1")
    worker.plugins.plugins += (Plugin("shop.Hanging", "source", f"{__name__}:Hanging"),)
    config = {"name": "h", "connector.class": "shop.Hanging"}
    waiting = [worker.put("h", config, may_replace=True) for _ in range(32)]
    assert worker.call(lambda it: it.names()).result(WAIT_S) == []
    with pytest.raises(ConnectException, match="try again later"):
        worker.validate(config).result(WAIT_S)
    assert not any(it.done() for it in waiting)
    Hanging.freed.set()
    assert len(wait(waiting, WAIT_S).done) == 32
    assert worker.call(lambda it: it.names()).result(WAIT_S) == ["h"]
    worker.stop()


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ({}, []),
        ({"policy": "None"}, ["acks", "sasl.jaas.config"]),
        ({"policy": "Principal"}, ["acks"]),
        ({"policy": "Allowlist", "allowlist": "linger.ms, acks"}, ["sasl.jaas.config"]),
        (
            {
                "policy": "org.apache.kafka.connect.connector.policy."
                "NoneConnectorClientConfigOverridePolicy"
            },
            ["acks", "sasl.jaas.config"],
        ),
    ],
)
def test_settings_of_clients_that_connectors_may_change(
    policy: dict[str, str], refused: list[str], tmp_path: Path
) -> None:
    """The policy of the worker's file; texts say no values."""
    settings = {f"connector.client.config.override.{name}": it for name, it in policy.items()}
    worker = Standalone({**settings_of(tmp_path), **settings}, "w:1")
    config = {
        "name": "o",
        "connector.class": "FileStreamSource",
        "topic": "t",
        "producer.override.acks": "1",
        "admin.override.sasl.jaas.config": "canary",
    }
    infos = worker.validate(config).result(WAIT_S)
    errors = [text for it in infos["configs"] for text in it["value"]["errors"]]
    assert [text.split("'")[3] for text in errors] == refused
    assert infos["error_count"] == len(refused)
    assert "canary" not in str(infos)
    if refused:
        with pytest.raises(BadRequestException, match="to be overridden in the connector config"):
            worker.put("o", config, may_replace=True).result(WAIT_S)
    worker.stop()


def test_a_policy_that_is_none_of_them_stops_the_start(tmp_path: Path) -> None:
    """It is not taken for another one."""
    with pytest.raises(ConfigErrors, match="Invalid value none for configuration connector"):
        Standalone(
            {**settings_of(tmp_path), "connector.client.config.override.policy": "none"}, "w:1"
        )


def test_changes_at_the_same_time_are_all_made(tmp_path: Path) -> None:
    """Each PATCH is of the configuration that the one before has left."""
    worker = Standalone(settings_of(tmp_path), "w:1")
    config = {"name": "p", "connector.class": "FileStreamSource", "topic": "t"}
    worker.put("p", config, may_replace=False, initial=TargetState.STOPPED).result(WAIT_S)
    changes = [worker.patch("p", {f"header.converter.x{it}": "1"}) for it in range(8)]
    for change in changes:
        change.result(WAIT_S)
    changed = worker.call(lambda it: it.config("p")).result(WAIT_S)
    assert changed == {**config, **{f"header.converter.x{it}": "1" for it in range(8)}}
    worker.stop()


def test_a_task_that_was_left_behind_writes_nothing() -> None:
    """It comes back when another one has its work: no records, no offsets, no state."""
    task = Lines()
    task.values = ("a",)
    loop, control, store = loop_of(task)
    states: list[Any] = []
    control._report = lambda state, _: states.append(state)
    polls, may_return = threading.Event(), threading.Event()
    poll = task.poll

    def hang() -> Any:
        polls.set()
        may_return.wait(WAIT_S)
        return poll()

    task.poll = hang  # type: ignore[method-assign] # hangs
    thread = threading.Thread(target=loop.run, args=({},))
    thread.start()
    polls.wait(WAIT_S)
    before = list(states)
    control.stop()
    control.abandon()
    may_return.set()
    thread.join(WAIT_S)
    assert (loop._producer.sent, store.offsets) == ([], [])  # type: ignore[attr-defined]
    control.report(RunState.FAILED)
    assert states == before


def test_an_abandoned_task_that_waits_for_its_producer_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each restart for a topic that does not exist would otherwise leave a thread behind."""
    task = Lines("a")
    loop, control, store = loop_of(task)
    is_sending, is_closed = threading.Event(), threading.Event()

    def send(*_: Any, **__: Any) -> Delivery:
        is_sending.set()
        is_closed.wait(WAIT_S)
        raise ConnectException("the producer is closed")

    monkeypatch.setattr(loop._producer, "send", send)
    monkeypatch.setattr(loop._producer, "close", lambda _timeout_s: is_closed.set())

    def run() -> None:
        with pytest.raises(ConnectException, match="the producer is closed"):
            loop.run({})

    thread = threading.Thread(target=run)
    thread.start()
    assert is_sending.wait(WAIT_S)
    control.stop()
    control.abandon()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert (task.stops, store.offsets) == (1, [])


def test_a_pause_stores_the_offsets_of_what_is_written() -> None:
    """Else they wait for the resumption, and come again after a crash."""
    task = Lines("a", "b")
    loop, control, store = loop_of(task)
    first = task.poll

    def poll() -> Any:
        control.set_target(TargetState.PAUSED)
        return first()

    task.poll = poll  # type: ignore[method-assign] # pauses
    thread = threading.Thread(target=loop.run, args=({},))
    thread.start()
    wait_for(lambda: store.offsets)
    assert store.offsets == [{"at": 1}]
    control.stop()
    thread.join(WAIT_S)


def test_a_task_that_cannot_start_is_not_asked_to_commit() -> None:
    """Its failure is that of the start."""

    class Broken(Lines):
        def start(self, config: Mapping[str, str]) -> None:
            raise ConnectException("no such database")

        def commit(self) -> None:
            raise AssertionError("not started")

    loop, _, _ = loop_of(Broken())
    with pytest.raises(ConnectException, match="no such database"):
        loop.run({})

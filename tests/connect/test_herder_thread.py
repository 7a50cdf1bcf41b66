"""The herder's thread: requests that end early, and effects that fail."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.errors import ConnectException
from ottla.connect.runtime.herder import StartTask, WriteConfig
from ottla.connect.runtime.standalone import Standalone
from ottla.connect.runtime.state import ConnectorTaskId, RunState, TargetState
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = {"name": "s", "connector.class": "FileStreamSource", "topic": "t"}


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Iterator[Standalone]:
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(tmp_path / "offsets"),
    }
    worker = Standalone(settings, "w:1")
    yield worker
    worker.stop()


def test_a_request_that_is_given_up_harms_no_other(worker: Standalone) -> None:
    """Its client was answered 503 meanwhile; what has not begun by then is not done."""
    has_begun, may_end = threading.Event(), threading.Event()
    late: list[str] = []

    def slow(_: Any) -> str:
        has_begun.set()
        may_end.wait(WAIT_S)
        return "done"

    first = worker.call(slow)
    has_begun.wait(WAIT_S)
    second = worker.call(lambda _: late.append("second"))
    first.cancel()
    second.cancel()
    may_end.set()
    assert worker.call(lambda it: it.names()).result(WAIT_S) == []
    assert late == []


def test_a_plug_in_that_answers_too_late_frees_its_place(worker: Standalone) -> None:
    """Nothing is raised on its thread."""
    raised: list[Any] = []
    may_end = threading.Event()
    before, threading.excepthook = threading.excepthook, raised.append
    try:
        answer = worker._aside(lambda: may_end.wait(WAIT_S))
        answer.cancel()
        may_end.set()
        while worker._asides._value < 32:
            pass
    finally:
        threading.excepthook = before
    assert raised == []


def test_a_task_that_cannot_start_holds_up_nothing_that_follows(worker: Standalone) -> None:
    """Its plug-in is gone: it is FAILED, the next one starts; questions are answered."""
    gone, good = ConnectorTaskId("s", 0), ConnectorTaskId("s", 1)

    def step(herder: Any) -> None:
        herder.configs.connectors["s"] = {"name": "s", "connector.class": "shop.Gone"}
        for task, kind in ((gone, "shop.Gone"), (good, "FileStreamSource")):
            herder._running.add(task)
            config = {"connector.class": kind, "topic": "t", "file": "/no/such"}
            herder._effects.append(StartTask(task, config, config, TargetState.PAUSED))

    worker.call(step).result(WAIT_S)
    statuses = worker.call(lambda it: dict(it.statuses.tasks)).result(WAIT_S)
    assert statuses[gone].state is RunState.FAILED
    assert "Unknown plugin shop.Gone" in (statuses[gone].trace or "")
    assert set(worker._worker._tasks) == {good}
    assert worker.call(lambda it: it.info("s")).result(WAIT_S)["type"] == "unknown"


def test_no_record_follows_one_that_was_not_written(
    worker: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit would make the old settings of tasks those of the new connector."""
    done: list[Any] = []

    def do(effect: Any) -> None:
        done.append(effect)
        if isinstance(effect, WriteConfig):
            raise ConnectException("no brokers")

    monkeypatch.setattr(worker, "_do", do)
    effects = [WriteConfig("task-s-0", {}), WriteConfig("commit-s", {"tasks": 1}), "accept"]
    with pytest.raises(ConnectException, match="no brokers"):
        worker.call(lambda it: it._effects.extend(effects)).result(WAIT_S)
    assert done == [effects[0], effects[2]]
    monkeypatch.undo()

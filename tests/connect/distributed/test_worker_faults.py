"""A worker of a group whose effects fail; no brokers."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.distributed.signing import SessionKey
from ottla.connect.distributed.topics import InternalTopics
from ottla.connect.distributed.worker import Distributed
from ottla.connect.errors import ConnectException

if TYPE_CHECKING:
    from collections.abc import Callable


def bare(**parts: Any) -> Any:
    """Return a worker of these parts only, whose calls run at once."""
    worker: Any = object.__new__(Distributed)

    def call(step: Callable[[Any], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        try:
            answer.set_result(step(worker._herder))
        except Exception as error:
            answer.set_exception(error)
        return answer

    worker.__dict__.update(parts, call=call)
    return worker


def test_tasks_that_cannot_be_handed_over_are_tried_less_and_less_often() -> None:
    """The connector makes them again each time: that alone is no success."""
    delays: list[float] = []
    worker = bare(
        _herder=SimpleNamespace(task_configs_made=lambda *_: None, is_leader=False),
        _retry_s={},
        _stored=lambda _, configs: configs,
        _later=lambda delay_s, _: delays.append(delay_s),
    )
    for _ in range(3):
        worker.task_configs("c", [])
        worker._retry("c", ConnectException("the leader answers 500"))
    assert delays == [0.25, 0.5, 1.0]


def test_a_session_key_that_nobody_can_read_is_not_used() -> None:
    """The others would sign with the one before; the next attempt is not at once."""
    attempts: list[str] = []

    def write(key: str, _: Any) -> None:
        attempts.append(key)
        raise ConnectException("no brokers")

    old = SessionKey(b"x", "HmacSHA256", 0)
    worker = bare(
        _herder=SimpleNamespace(session_key=old),
        _topics=SimpleNamespace(write_config=write),
        values={"inter.worker.key.generation.algorithm": "HmacSHA256"},
        _key_due_s=0.0,
    )
    with pytest.raises(ConnectException):
        worker._make_session_key()
    worker._make_session_key()
    assert worker._herder.session_key is old
    assert attempts == ["session-key"]


def test_the_member_has_its_answer_though_an_effect_fails() -> None:
    """Without one it would never join again."""
    answers: list[Any] = []

    def fail() -> None:
        raise ConnectException("no brokers")

    worker = bare(_herder=None, _is_stopping=False, _carry_out=fail, _in_loop=answers.append)
    worker._answers = []
    worker._ask(lambda: worker._answers.append("join"))
    assert answers == ["join"]


def test_the_end_of_a_membership_ends_tasks_before_the_herder_has_time() -> None:
    """It may wait for a write to the config topic, longer than a session."""
    ended: list[str] = []
    worker = bare(_worker=SimpleNamespace(end_tasks=lambda: ended.append("tasks")))
    worker._herder = SimpleNamespace(lost=lambda: None)
    worker._post = lambda _: ended.append("herder")
    worker.lost()
    assert ended == ["tasks", "herder"]


def test_a_status_that_cannot_be_written_ends_no_writer() -> None:
    """Not even with a text that is no Unicode, as in the name of a file."""
    written: list[bytes | None] = []

    class Status:
        def write(self, _: bytes, value: bytes | None) -> bytes | None:
            return value

    def run(value: bytes | None) -> None:
        written.append(value)
        if len(written) == 1:
            raise RuntimeError("of a client")

    topics: Any = object.__new__(InternalTopics)
    topics._statuses = SimpleNamespace(get=iter([("a", {}), ("b", {"f": "\udcff"}), None]).__next__)
    topics._status, topics.thread = Status(), SimpleNamespace(call=run)
    topics._write_statuses()
    assert written == [b"{}", b'{"f":"\\udcff"}']

"""Fetches of what is not in memory: a worker reads it, the loop does not wait."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

from ottla import Consumer, Producer, TopicPartition
from ottla.server.requests import page_cache
from ottla.server.system.files import RealFile
from ottla.types import FileSlice
from tests.waits import read_records

if TYPE_CHECKING:
    import pytest

    from ottla.testing.kafka import Kafka


def test_cold_records_are_read_by_a_worker_and_arrive(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fetch meets a cold file: all records come, and none was read ahead on the loop."""
    topic = kafka.topic("cold", partitions=2)
    with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for number in range(400):
            producer.send(topic, b"%d" % number * 50, partition=number % 2)
    readers = set()
    read = page_cache._read

    def noted(slices: Any) -> None:
        readers.add(threading.current_thread().name)
        read(slices)

    monkeypatch.setattr(RealFile, "is_cached", lambda *_: False)
    monkeypatch.setattr(page_cache, "_read", noted)
    with Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        values = [record.value or b"" for record in read_records(consumer, 400)]
    assert sorted(values) == sorted(b"%d" % number * 50 for number in range(400))
    assert readers
    assert all(name.startswith("ottla-worker") for name in readers)


def test_files_stay_open_while_they_are_read() -> None:
    """A file closed meanwhile gives its descriptor back only after the worker is done."""
    events: list[str] = []

    class File:
        volume = "/d/"

        def pin(self) -> None:
            events.append("pin")

        def unpin(self) -> None:
            events.append("unpin")

        def read(self, position: int, size: int) -> bytes:
            events.append(f"read {position}+{size}")
            return b""

    file: Any = File()
    started: list[Any] = []
    pending = page_cache.when_warm(
        [FileSlice(file, 5, 1_500_000)], "answer", lambda _, job, done: started.extend((job, done))
    )
    assert not pending.done
    job, done = started
    job()
    done(None, OSError("shown when it is sent"))
    assert pending.value == "answer"
    assert events == ["pin", "read 5+1048576", "read 1048581+451424", "unpin"]


def test_a_file_that_cannot_be_opened_holds_no_other_open() -> None:
    """The others are read and released; sending the slice reports the error."""
    events: list[str] = []

    class File:
        volume = "/d/"

        def __init__(self, name: str) -> None:
            self._name = name

        def pin(self) -> None:
            if self._name == "lost":
                raise OSError(errno.EMFILE, "no descriptor left")
            events.append(f"pin {self._name}")

        def unpin(self) -> None:
            events.append(f"unpin {self._name}")

        def read(self, position: int, size: int) -> bytes:
            events.append(f"read {self._name}")
            return b""

    def run(_volume: object, job: Any, done: Any) -> None:
        job()
        done(None, None)

    files: list[Any] = [File("first"), File("lost"), File("last")]
    slices = [FileSlice(file, 0, 10) for file in files]
    assert page_cache.when_warm(slices, "answer", run).value == "answer"
    assert events == [
        "pin first", "pin last", "read first", "read last", "unpin first", "unpin last",
    ]  # fmt: skip

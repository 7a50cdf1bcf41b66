"""The directory sink: formats, rotation, and a crash after each of its steps."""

from __future__ import annotations

import csv
import fcntl
import gc
import gzip
import json
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from ottla.connect.data import DATE, INT64, STRING, Struct, array, decimal, struct
from ottla.connect.directory import formats, sink
from ottla.connect.directory.settings import SINK
from ottla.connect.directory.sink import (
    DirectorySinkConnector,
    DirectorySinkTask,
    Disk,
    next_offset,
)
from ottla.connect.errors import ConnectException
from ottla.connect.records import SinkRecord
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PARTITION = TopicPartition("t", 0)
PAGE = Path(__file__).parents[3] / "docs" / "directory.md"


class Context:
    """Remembers seeks and dead letters."""

    def __init__(self) -> None:
        """Begin without any."""
        self.position: int | None = None
        self.errant: list[int] = []

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Remember the offset."""
        assert partition == PARTITION
        self.position = offset

    def report_errant(self, record: SinkRecord, error: Exception) -> None:
        """Remember the record."""
        del error
        self.errant.append(record.offset)


class Task(DirectorySinkTask):
    """Has a clock and a disk of the test."""

    def __init__(self, directory: Path, disk: Disk | None = None, **settings: object) -> None:
        """Start and open the partition."""
        self.time_s = 0.0
        self.now_s = lambda: self.time_s
        self.disk = disk or Disk()
        self.known = Context()
        self.context = self.known  # type: ignore[assignment]
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.start({"directory": str(directory), **named})
        self.open([PARTITION])


def record(offset: int, value: Any = None, schema: Any = None) -> SinkRecord:
    """Return a record, by default of its offset."""
    made = {"n": offset} if value is None else value
    return SinkRecord(
        "renamed", 7, value_schema=schema, value=made, offset=offset, original=PARTITION
    )


def names(directory: Path) -> list[str]:
    """Return offsets and ends of the files' names."""
    return sorted(
        "+".join([str(int(first)), last.lstrip("0") or "0"])
        for first, last in (it.name.split("+")[2:] for it in (directory / "t").glob("t+*"))
    )


def lines(directory: Path) -> list[int]:
    """Return the numbers of all JSON lines, in the order of the names."""
    files = sorted((directory / "t").glob("t+*.jsonl"))
    return [json.loads(line)["n"] for it in files for line in it.read_text().splitlines()]


def test_a_file_ends_by_records_bytes_time_and_shape(tmp_path: Path) -> None:
    """The names have the first and the last offset; commits stop before what has no name."""
    task = Task(tmp_path, flush_size=3, rotate_bytes=100, rotate_interval_ms=1000)
    task.put([record(it) for it in (5, 6, 8, 9)])
    assert names(tmp_path) == ["5+8.jsonl"]
    assert task.pre_commit({PARTITION: 10}) == {PARTITION: 9}
    task.put([record(10, {"n": "x" * 100})])
    task.put([record(11)])
    assert names(tmp_path) == ["5+8.jsonl", "9+10.jsonl"]
    task.time_s = 1.0
    task.put([])
    assert names(tmp_path) == ["11+11.jsonl", "5+8.jsonl", "9+10.jsonl"]
    assert task.pre_commit({PARTITION: 13}) == {PARTITION: 13}
    other = Task(tmp_path, format="csv")
    assert other.known.position == 12
    other.put([record(12, {"a": 1}), record(13, {"b": 1})])
    assert "12+12.csv" in names(tmp_path)
    other.stop()
    assert not list((tmp_path / "t").glob(".t+*"))


ROW = struct(
    id=INT64, note=STRING.as_optional(), day=DATE.as_optional(), tags=array(STRING).as_optional()
)


def rows() -> list[SinkRecord]:
    """Return records with texts that need quotes."""
    return [
        record(0, Struct(ROW, id=1, note='a,"b"\nc', tags=["x", "y"]), ROW),
        record(1, Struct(ROW, id=2), ROW),
    ]


def test_csv_and_gzip(tmp_path: Path) -> None:
    """A header, quotes where they are needed, JSON for what is nested; the same bytes each time."""
    Task(tmp_path / "lines", format="csv", flush_size=1).put([record(0, {"a": "1\r2", "b": "\n"})])
    (plain,) = (tmp_path / "lines" / "t").glob("*.csv")
    assert plain.read_bytes() == b'a,b\n"1\r2","\n"\n'
    Task(tmp_path, format="csv", compression="gzip", flush_size=2).put(rows())
    (file,) = (tmp_path / "t").glob("*.csv.gz")
    with gzip.open(file, "rt", newline="") as stream:
        assert list(csv.reader(stream)) == [
            ["id", "note", "day", "tags"],
            ["1", 'a,"b"\nc', "", '["x","y"]'],
            ["2", "", "", ""],
        ]
    Task(tmp_path / "again", format="csv", compression="gzip", flush_size=2).put(rows())
    (again,) = (tmp_path / "again" / "t").glob("*.csv.gz")
    assert again.read_bytes() == file.read_bytes()


def test_parquet(tmp_path: Path) -> None:
    """Columns have the types of the schema; a value that is no row goes to the dead letters."""
    parquet = pytest.importorskip("pyarrow.parquet")
    task = Task(tmp_path, format="parquet", compression="gzip", flush_size=2)
    nothing = struct()
    hollow = struct(a=nothing)
    half = Struct(ROW, id=0, note="\ud800")
    refused = [record(0, "text"), record(0, half, ROW)]
    refused.append(record(0, Struct(hollow, a=Struct(nothing)), hollow))
    exact = struct(d=decimal(40))
    refused.append(record(0, Struct(exact, d=Decimal("1E-40")), exact))
    task.put([*refused, *rows()])
    assert task.known.errant == [0] * 4
    (file,) = (tmp_path / "t").glob("*.parquet")
    assert parquet.read_table(file).to_pylist() == [
        {"id": 1, "note": 'a,"b"\nc', "day": None, "tags": ["x", "y"]},
        {"id": 2, "note": None, "day": None, "tags": None},
    ]


def test_row_groups_of_parquet_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large values are written before there are many."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(formats, "_ROW_GROUP_BYTES", 1000)
    text = struct(a=STRING)
    task = Task(tmp_path, format="parquet", flush_size=5)
    task.put([record(it, Struct(text, a="x" * 600), text) for it in range(5)])
    (file,) = (tmp_path / "t").glob("*.parquet")
    assert parquet.ParquetFile(file).num_row_groups == 3


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_incomplete_files_are_closed(tmp_path: Path) -> None:
    """Also by a library that would write to the closed file when it is released."""
    pytest.importorskip("pyarrow")
    task = Task(tmp_path, format="parquet", flush_size=9)
    task.put(rows())
    task.close([PARTITION])
    gc.collect()
    assert [it.name for it in (tmp_path / "t").iterdir()] == []


class FullDisk(Disk):
    """Has room for no byte."""

    def __init__(self) -> None:
        """Remember the files."""
        self.files: list[BinaryIO] = []

    def create(self, path: Path) -> BinaryIO:
        """Open a file whose bytes are refused, once they leave the memory."""
        path.touch()
        self.files.append(Path("/dev/full").open("wb"))  # noqa: SIM115 - the task closes it
        return self.files[-1]


@pytest.mark.parametrize("format_", ["csv", "jsonl", "parquet"])
def test_a_full_disk_loses_no_record_and_leaves_no_file(tmp_path: Path, format_: str) -> None:
    """The last commit of the failed task stops before the records that had no complete file."""
    if format_ == "parquet":
        pytest.importorskip("pyarrow")
    disk = FullDisk()
    task = Task(tmp_path, disk, format=format_, flush_size=2)
    first, second = rows()
    task.put([first])
    with pytest.raises(OSError, match="No space left"):
        task.put([second])
    assert task.pre_commit({PARTITION: 1}) == {PARTITION: 0}
    task.close([PARTITION])
    assert [it.name for it in (tmp_path / "t").iterdir()] == []
    assert all(it.closed for it in disk.files)


def test_no_topic_leads_out_of_the_directory(tmp_path: Path) -> None:
    """Names that Kafka does not allow are refused, from brokers and from requests."""
    task = Task(tmp_path / "out", flush_size=1)
    for topic in ("..", ".", "../else", "/else", "a+0", "", "a\0"):
        other = TopicPartition(topic, 0)
        made = SinkRecord(topic, 0, value=1, offset=0, original=other)
        with pytest.raises(ConnectException, match="is no name of a topic"):
            task.open([other])
        with pytest.raises(ConnectException, match="is no name of a topic"):
            task.put([made])
        with pytest.raises(ConnectException, match="is no name of a topic"):
            next_offset(tmp_path, other)
    assert not list(tmp_path.iterdir())


def test_a_lock_that_is_never_released_fails_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that hangs does not have the others hang, too."""
    monkeypatch.setattr(sink, "_LOCK_S", 0.1)
    task = Task(tmp_path, flush_size=2)
    task.put([record(0)])
    with (tmp_path / "t" / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConnectException, match="a task that hangs"):
            task.put([record(1)])
    assert task.pre_commit({PARTITION: 1}) == {PARTITION: 0}
    task.stop()
    Task(tmp_path, flush_size=2).put([record(0), record(1)])
    assert lines(tmp_path) == [0, 1]


class Crash(BaseException):
    """The end of the process."""


class QuickDisk(Disk):
    """Waits for no disk."""

    def sync(self, file: BinaryIO) -> None:
        """Hand the bytes to the system."""
        file.flush()

    def sync_directory(self, path: Path) -> None:
        """Do nothing."""


class CrashingDisk(QuickDisk):
    """Ends the process before or after its nth step."""

    def __init__(self, steps: int) -> None:
        """Crash at this step: an even number before a call, an odd one after it."""
        self.steps = steps
        self.created: list[BinaryIO] = []

    def _step(self, call: Callable[[], Any]) -> Any:
        self._count()
        result = call()
        self._count()
        return result

    def _count(self) -> None:
        if self.steps == 0:
            raise Crash
        self.steps -= 1

    def create(self, path: Path) -> BinaryIO:
        """Create or crash."""

        def create() -> None:
            self.created.append(Disk.create(self, path))

        self._step(create)
        return self.created[-1]

    def sync(self, file: BinaryIO) -> None:
        """Sync or crash."""
        self._step(file.flush)

    def rename(self, source: Path, target: Path) -> None:
        """Rename or crash."""
        self._step(lambda: Disk.rename(self, source, target))

    def sync_directory(self, path: Path) -> None:
        """Sync or crash."""
        self._step(lambda: None)


class Leaving(Task):
    """Has no chance to clean up, as a process that is killed."""

    def _finish(self, partition: TopicPartition) -> None:
        self._files.pop(partition).finish()


def run(task: Task, committed: int, values: Sequence[int]) -> int:
    """Give all records from where the task goes on; returns the group's next commit."""
    start = committed if task.known.position is None else task.known.position
    for offset in values[start:]:
        task.put([record(offset)])
        committed = task.pre_commit({PARTITION: offset + 1})[PARTITION]
    return committed


def test_a_crash_at_each_step_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Whichever step was the last, the next task completes the files with each record once."""
    values = range(5)
    is_over = False
    crashes = 0
    while not is_over:
        directory = tmp_path / str(crashes)
        disk = CrashingDisk(crashes)
        try:
            run(Leaving(directory, disk, flush_size=2), 0, values)
            is_over = True
        except Crash:
            pass
        for file in disk.created:
            file.close()
        # nothing was committed, so that the names alone must tell
        task = Task(directory, QuickDisk(), flush_size=2, rotate_interval_ms=1)
        assert not list((directory / "t").glob(".t+*"))
        run(task, 0, values)
        task.time_s = 1.0
        task.put([])
        assert lines(directory) == list(values), crashes
        crashes += 1
    assert crashes > 20


class LosingDisk(CrashingDisk):
    """Forgets the names that are not on it when the power fails."""

    def __init__(self, steps: int, pending: list[tuple[Path, Path]]) -> None:
        """Take the names that are not on the disk, each with its directory."""
        super().__init__(steps)
        self.pending = pending

    def make_directory(self, path: Path) -> None:
        """Note a new name."""
        if not path.is_dir():
            self.pending.append((path.parent, path))
        super().make_directory(path)

    def create(self, path: Path) -> BinaryIO:
        """Note a new name."""
        self.pending.append((path.parent, path))
        return super().create(path)

    def rename(self, source: Path, target: Path) -> None:
        """Note a new name."""
        self.pending.append((target.parent, target))
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        """Keep the names of a directory."""
        self._count()
        self.pending[:] = [it for it in self.pending if it[0] != path]
        self._count()

    def lose_power(self) -> None:
        """Lose what is not on the disk."""
        for _, path in self.pending:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self.pending.clear()


@pytest.mark.parametrize("writes", [False, True])
def test_a_crash_and_then_a_power_failure_lose_nothing(tmp_path: Path, *, writes: bool) -> None:
    """What a second task commits is on the disk, also if the first one did not come to it."""
    values = range(5)
    is_over = False
    crashes = 0
    while not is_over:
        directory = tmp_path / str(crashes)
        directory.mkdir()
        disk = LosingDisk(crashes, [])
        committed = 0
        try:
            run(Leaving(directory, disk, flush_size=2), 0, values)
            is_over = True
        except Crash:
            pass
        for file in disk.created:
            file.close()
        second = Task(directory, LosingDisk(10_000, disk.pending), flush_size=2)
        if second.known.position is not None:  # the worker commits where the task goes on
            committed = second.pre_commit({PARTITION: second.known.position})[PARTITION]
        if writes:
            committed = run(second, committed, values)
        second.stop()
        disk.lose_power()
        third = Task(directory, QuickDisk(), flush_size=2, rotate_interval_ms=1)
        run(third, committed, values)
        third.time_s = 1.0
        third.put([])
        assert lines(directory) == list(values), crashes
        crashes += 1
    assert crashes >= 20


def test_a_task_that_was_replaced_writes_no_record_twice(tmp_path: Path) -> None:
    """The temporary file of a zombie is gone; and names are looked at before there is a new one."""
    zombie = Task(tmp_path, flush_size=2)
    zombie.put([record(0)])
    owner = Task(tmp_path, flush_size=3)
    owner.put([record(0)])
    with pytest.raises(FileNotFoundError):
        zombie.put([record(1)])
    late = Task(tmp_path, flush_size=2)
    late.put([record(0), record(1)])
    owner.stop()
    owner = Task(tmp_path, QuickDisk(), flush_size=3)
    ahead = Task(tmp_path, flush_size=1)
    owner.put([record(2)])
    # the owner's file is still there, as one that the other could not remove
    ahead.put([record(2)])
    with pytest.raises(ConnectException, match="another task"):
        owner.put([record(3), record(4)])
    assert lines(tmp_path) == [0, 1, 2]


def test_offsets_that_the_files_contradict_are_refused(tmp_path: Path) -> None:
    """An operator cannot set what would have no effect."""
    Task(tmp_path, flush_size=1).put([record(4)])
    config = {"directory": str(tmp_path)}
    connector = DirectorySinkConnector()
    assert next_offset(tmp_path, PARTITION) == 5
    assert connector.alter_offsets(config, {PARTITION: 5, TopicPartition("other", 0): 1})
    for offset in (None, 0, 9):
        with pytest.raises(ConnectException, match="before offset 5"):
            connector.alter_offsets(config, {PARTITION: offset})


def test_the_base_needs_no_pyarrow() -> None:
    """The connector is imported, described and validated without the library."""
    text = "import sys, ottla.connect.directory.sink; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)


def test_the_page_has_all_settings() -> None:
    """Each setting has a row with its default."""
    text = PAGE.read_text(encoding="utf-8")
    table = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    listed = {name.strip().strip("`"): default.strip() for name, default in table}
    assert set(listed) == set(SINK.keys)
    for name, default in listed.items():
        if name != "directory":
            assert str(SINK.keys[name].default) == default.strip("`")

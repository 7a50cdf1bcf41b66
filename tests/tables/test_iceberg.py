"""A topic kept in an Iceberg table: each record once, whatever is killed, whoever else writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ottla import tables
from ottla.cli.commands.tables import tables as tables_command
from ottla.errors import ErrorCode, KafkaError
from ottla.records.builder import encode_batch
from ottla.storage.directories.checkpoints import encode_offsets
from ottla.storage.directories.partition_metadata import encode_partition_metadata
from ottla.tables import Scan
from ottla.types import TopicPartition, Uuid

pytest.importorskip("pyiceberg")
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from ottla.tables import iceberg
from ottla.tables.iceberg import SyncOptions, TableSync, compact, progress_of
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_MS = 86_400_000
TIME = 1_767_225_600_000  # 2026-01-01

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


class Topic:
    """A topic of two partitions in a log directory, which grows."""

    def __init__(self, root: Path) -> None:
        self.path = root / "data"
        self.ends = [0, 0]
        self.sent: list[int] = []
        for number in (0, 1):
            (self.path / f"orders-{number}").mkdir(parents=True)

    def add(self, count: int, extra: str = "", amount: str = "1") -> None:
        """Append records with consecutive ids, an hour apart."""
        for _ in range(count):
            number = len(self.sent)
            self.sent.append(number)
            partition = number % 2
            value = b'{"id":%d,"amount":%s%s}' % (number, amount.encode(), extra.encode())
            rows = [(TIME + number * DAY_MS // 24, b"k", value, ())]
            batch = encode_batch(rows, base_offset=self.ends[partition])
            with (self.path / f"orders-{partition}" / f"{0:020d}.log").open("ab") as log:
                log.write(batch)
            self.ends[partition] += 1
        offsets = {TopicPartition("orders", n): end for n, end in enumerate(self.ends)}
        temporary = self.path / "checkpoint"
        temporary.write_bytes(encode_offsets(offsets))
        temporary.rename(self.path / "replication-offset-checkpoint")

    def identify(self, topic_id: Uuid) -> None:
        """Write the topic's id into its directories."""
        for number in (0, 1):
            path = self.path / f"orders-{number}" / "partition.metadata"
            path.write_bytes(encode_partition_metadata(topic_id))


class Lake:
    """A catalog in SQLite with a local warehouse, and the topic."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.topic = Topic(root)
        self.uri = f"sqlite:///{root}/catalog.db"
        self.warehouse = f"file://{root}/warehouse"

    def catalog(self) -> Any:
        """Return the catalog, loaded again."""
        return load_catalog("ottla", type="sql", uri=self.uri, warehouse=self.warehouse)

    def table(self) -> Any:
        """Return the table of now."""
        return self.catalog().load_table("lake.orders")

    def ids(self) -> list[int]:
        """Return the ids of all rows in order."""
        return sorted(self.table().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def options(self, **more: Any) -> SyncOptions:
        """Return the options of a sync."""
        where = {"data_dirs": str(self.topic.path)}
        return SyncOptions("orders", "lake.orders", where, **{"make_value": tables.Json, **more})

    def sync(self, **more: Any) -> list[int]:
        """Sync to the end; return the rows of each commit."""
        return [done.rows for done in TableSync(self.catalog(), self.options(**more)).run()]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake with ten records in the topic."""
    made = Lake(tmp_path)
    made.topic.add(10)
    return made


def test_backfill_and_then_what_is_new(lake: Lake) -> None:
    """Offsets stand in the summary of each snapshot; without new records nothing is committed."""
    assert lake.sync(rows_per_commit=4) == [4, 4, 2]
    assert lake.sync() == []
    lake.topic.add(3)
    assert lake.sync() == [3]
    assert lake.ids() == lake.topic.sent
    table = lake.table()
    summary = json.loads(table.current_snapshot().summary.additional_properties["ottla.offsets"])
    assert summary == {"topic": "orders", "partitions": {"0": 7, "1": 6}}
    assert len(table.snapshots()) == 4


def test_hidden_partitions_by_time(lake: Lake) -> None:
    """A reader's condition on the time chooses files."""
    lake.topic.add(40)
    lake.sync()
    table = lake.table()
    assert str(table.spec().fields[0].transform) == "day"
    assert len(table.inspect.files()) == 3
    chosen = table.scan(row_filter="timestamp >= '2026-01-03T00:00:00+00:00'")
    assert len(list(chosen.plan_files())) == 1
    assert chosen.to_arrow().num_rows == 2


def test_the_schema_evolves(lake: Lake) -> None:
    """A new field becomes a column, null in older rows; a number of the table stays as wide."""
    lake.topic.add(1, amount="2.5")
    lake.sync()
    lake.topic.add(2, extra=',"note":"new"')
    assert lake.sync() == [2]
    rows = lake.table().scan(selected_fields=("id", "amount", "note")).to_arrow().to_pylist()
    assert {row["id"]: row["note"] for row in rows}[12] == "new"
    assert {row["id"]: row["note"] for row in rows}[0] is None
    assert {row["id"]: row["amount"] for row in rows}[12] == 1.0
    assert lake.ids() == lake.topic.sent
    lake.topic.add(1, amount='"much"')
    with pytest.raises(KafkaError, match="give the schema of values"):
        lake.sync()


def test_two_syncs_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later commit fails, sees the offsets of the other's, and continues after them."""
    monkeypatch.setattr(iceberg, "RETRY_S", 0.0)
    lake.sync()
    lake.topic.add(6)
    slow = TableSync(lake.catalog(), lake.options())
    real, others = iceberg._widened, [lambda: lake.sync(rows_per_commit=4)]

    def overtaken(data: Any, table: Any) -> Any:
        if others:
            others.pop()()
        return real(data, table)

    monkeypatch.setattr(iceberg, "_widened", overtaken)
    assert list(slow.run()) == []
    assert lake.ids() == lake.topic.sent


def test_another_writer_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit without offsets neither hides those of an earlier one nor takes rows away."""
    monkeypatch.setattr(iceberg, "RETRY_S", 0.0)
    lake.sync()
    lake.topic.add(2)
    real, done = iceberg._widened, [False]

    def overtaken(data: Any, table: Any) -> Any:
        if not done[0]:
            done[0] = True
            other = lake.table()
            other.delete("id = 3")
        return real(data, table)

    monkeypatch.setattr(iceberg, "_widened", overtaken)
    assert lake.sync() == [2]
    assert lake.ids() == [number for number in lake.topic.sent if number != 3]


@pytest.mark.soak
def test_small_files_are_compacted(lake: Lake) -> None:
    """Rows and offsets stay, files go."""
    for _ in range(6):
        lake.topic.add(1)
        lake.sync()
    before = len(lake.table().inspect.files())
    assert compact(lake.table(), "orders") == before - 1
    assert len(lake.table().inspect.files()) == 1
    assert lake.ids() == lake.topic.sent
    assert progress_of(lake.table(), "orders").offsets == {0: 8, 1: 8}
    lake.topic.add(1)
    assert lake.sync() == [1]
    assert lake.ids() == lake.topic.sent


@pytest.mark.soak
def test_a_sync_between_two_rewrites(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one has the offsets of the snapshot that it rewrites, so none is added twice."""
    for _ in range(3):
        lake.topic.add(48)
        lake.sync()
    real = Table.refresh

    def overtaken(table: Table) -> Table:
        if len(lake.topic.sent) == 154:
            lake.topic.add(4)
            lake.sync()
        return real(table)

    monkeypatch.setattr(Table, "refresh", overtaken)
    assert compact(lake.table(), "orders", min_files=2) > 1
    assert progress_of(lake.table(), "orders").offsets == {0: 79, 1: 79}
    lake.sync()
    assert lake.ids() == lake.topic.sent


PROGRAM = """
import sys
from pyiceberg.catalog import load_catalog
from ottla import tables
from ottla.tables.iceberg import SyncOptions, TableSync
uri, warehouse, path = sys.argv[1:]
catalog = load_catalog("ottla", type="sql", uri=uri, warehouse=warehouse)
options = SyncOptions("orders", "lake.orders", {"data_dirs": path}, tables.Json, rows_per_commit=2)
print("ready", flush=True)
for done in TableSync(catalog, options).run():
    print(done.rows, flush=True)
"""


@pytest.mark.soak
def test_a_killed_sync_is_continued(lake: Lake) -> None:
    """By kill -9 at several moments of its commits: no record is missing, none is there twice."""
    lake.topic.add(190)
    for delay in (0.05, 0.11, 0.23, 0.37):
        command = [sys.executable, "-c", PROGRAM, lake.uri, lake.warehouse, str(lake.topic.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(WAIT_S)
    lake.sync()
    assert lake.ids() == lake.topic.sent


def test_tables_and_topics_that_do_not_fit(lake: Lake) -> None:
    """A table of another topic or of none, a topic that was created again, deleted offsets."""
    lake.sync()
    with pytest.raises(KafkaError, match="has the records of topic 'orders', not of 'other'"):
        progress_of(lake.table(), "other")
    (lake.topic.path / "replication-offset-checkpoint").write_bytes(
        encode_offsets({TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 5})
    )
    with pytest.raises(KafkaError, match="orders-0 ends at offset 3, before offset 5"):
        lake.sync()
    lake.topic.add(4)
    starts = encode_offsets({TopicPartition("orders", 0): 6, TopicPartition("orders", 1): 0})
    (lake.topic.path / "log-start-offset-checkpoint").write_bytes(starts)
    with pytest.raises(KafkaError, match="orders-0: offsets 5 to 5 were deleted"):
        lake.sync()
    assert lake.sync(skip_deleted=True) == [3]
    catalog = lake.catalog()
    foreign = catalog.create_table("lake.foreign", lake.table().schema())
    foreign.append(lake.table().scan().to_arrow())
    with pytest.raises(KafkaError, match="none with the offsets of a topic"):
        progress_of(foreign, "orders")
    with pytest.raises(KafkaError, match="partitioned by none, hour"):
        lake.sync(partition_by="week")


def test_a_topic_that_was_created_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id tells it from the old one, however many records it has; compaction keeps the id."""
    ids = [Uuid(bytes([number]) * 16) for number in (1, 2)]
    lake.topic.identify(ids[0])
    lake.sync(rows_per_commit=4)
    compact(lake.table(), "orders", min_files=2)
    lake.topic.identify(ids[1])
    lake.topic.add(4)
    with pytest.raises(KafkaError, match=f"created again: its id is {ids[1]}, .* of {ids[0]}"):
        lake.sync()
    lake.topic.identify(ids[0])
    real = Scan.to_arrow

    def overtaken(scan: Scan) -> Any:
        lake.topic.identify(ids[1])
        return real(scan)

    monkeypatch.setattr(Scan, "to_arrow", overtaken)
    with pytest.raises(KafkaError, match="created again"):
        lake.sync()
    assert lake.ids() == lake.topic.sent[:10]


def test_retention_during_a_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that may have gone before they were read are an error, and nothing is committed."""
    lake.sync()
    lake.topic.add(4)
    real = Scan.to_arrow

    def overtaken(scan: Scan) -> Any:
        starts = encode_offsets({TopicPartition("orders", 0): 6})
        (lake.topic.path / "log-start-offset-checkpoint").write_bytes(starts)
        return real(scan)

    monkeypatch.setattr(Scan, "to_arrow", overtaken)
    with pytest.raises(KafkaError, match="orders-0: offsets 5 to 5 were deleted"):
        lake.sync()
    assert lake.ids() == lake.topic.sent[:10]


def test_the_command_sees_all_fields_of_a_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that none of its first values has, by which SQL would go."""
    monkeypatch.setattr(tables.Json, "sample_rows", 3)
    lake.topic.add(10, extra=',"more":1')
    where = ["--table", "lake.orders", "--catalog", lake.uri, "--warehouse", lake.warehouse]
    read = ["--dir", str(lake.topic.path), "--value", "json"]
    done = CliRunner().invoke(tables_command, ["sync", "orders", *where, *read])
    assert done.exit_code == 0, done.output
    assert lake.table().scan().to_arrow()["more"].null_count == 10


def test_following_goes_on_after_what_may_pass(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that are away for a while are reported; a damaged log ends it."""
    outcomes = [
        KafkaError(ErrorCode.REQUEST_TIMED_OUT, "away"),
        None,
        KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged"),
    ]
    real = TableSync.run

    def run(sync: TableSync) -> Iterator[iceberg.SyncCommit]:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        return real(sync)

    monkeypatch.setattr(TableSync, "run", run)
    where = ["--table", "lake.orders", "--catalog", lake.uri, "--warehouse", lake.warehouse]
    read = ["--dir", str(lake.topic.path), "--follow", "--interval", "0.1"]
    done = CliRunner().invoke(tables_command, ["sync", "orders", *where, *read])
    assert (done.exit_code, done.stderr) == (1, "away\ndamaged\n")
    assert done.stdout.startswith("10 rows up to 0:5, 1:5 in snapshot ")


def test_the_command(lake: Lake) -> None:
    """Sync, sync again, compact; errors are one line."""
    where = ["--table", "lake.orders", "--catalog", lake.uri, "--warehouse", lake.warehouse]
    read = ["--dir", str(lake.topic.path), "--value", "json"]

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(tables_command, list(arguments))

    done = run("sync", "orders", *where, *read, "--rows-per-commit", "4")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].startswith("4 rows up to 0:2, 1:2 in snapshot ")
    assert run("sync", "orders", *where, *read).stdout == ""
    assert run("compact", "orders", *where, "--min-files", "2").stdout == "2 files fewer\n"
    assert lake.ids() == lake.topic.sent
    for arguments, text in (
        (["sync", "absent", "--table", "lake.x", *where[2:], *read], "there is no topic 'absent'"),
        (["sync", "../x", "--table", "lake.x", *where[2:], *read], "is no name of a topic"),
        (["sync", "orders", *where], "give --dir DIR"),
        (["compact", "other", *where], "has the records of topic 'orders'"),
        (["compact", "orders", "--table", "lake.none", *where[2:]], "there is no table lake.none"),
        (["compact", "orders", "--table", "none", *where[2:]], "needs a namespace"),
        (["compact", "orders", *where[:2], "--catalog", "nosuch"], "catalog nosuch: "),
        (
            ["compact", "orders", *where[:2], "--catalog", "nosuch://me:canary@host/lake"],
            "catalog nosuch://me:***@host/lake: ",
        ),
        (
            ["compact", "orders", *where[:2], "--catalog", "nosuch://me:canary@[host/lake"],
            "catalog nosuch://me:***@[host/lake: ",
        ),
        (
            [
                "compact",
                "orders",
                *where[:2],
                "--catalog",
                "nosuch://host/lake?password=canary&a=1",
            ],
            "catalog nosuch://host/lake?password=***&a=1: ",
        ),
    ):
        failed = run(*arguments)
        assert failed.exit_code == 1
        assert text in failed.stderr
        assert "canary" not in failed.stderr
        assert len(failed.stderr.splitlines()) == 1

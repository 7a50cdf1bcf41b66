"""The data source "ottla-table": frames straight from files, in tasks of segment ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructField, StructType

from ottla.errors import KafkaError
from ottla.records.builder import encode_batch
from ottla.spark.table_source import TableDataSource, TableReader
from ottla.storage.directories.checkpoints import encode_offsets
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TIME = 1_767_225_600_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a topic of two partitions of 100 records each, in two segments."""
    for partition in (0, 1):
        log = tmp_path / f"orders-{partition}"
        log.mkdir()
        for base in (0, 50):
            rows = [(TIME + n, b"k%d" % (n % 10), b"%d" % n, ()) for n in range(base, base + 50)]
            (log / f"{base:020d}.log").write_bytes(encode_batch(rows, base_offset=base))
    offsets = encode_offsets({TopicPartition("orders", n): 100 for n in (0, 1)})
    (tmp_path / "replication-offset-checkpoint").write_bytes(offsets)
    return tmp_path


def rows(path: Path, **options: str) -> tuple[int, int]:
    """Return the number of tasks and of their rows."""
    given = {"path": str(path), "topic": "orders", **options}
    reader = TableReader({name.lower(): value for name, value in given.items()}, ["offset"])
    tasks = reader.partitions()
    return len(tasks), sum(batch.num_rows for task in tasks for batch in reader.read(task))


def test_tasks(data: Path) -> None:
    """Ranges of offsets; the newest of each key is of a whole partition."""
    assert rows(data) == (2, 200)
    assert rows(data, recordsPerTask="30") == (8, 200)
    assert rows(data, recordsPerTask="30", latestPerKey="true") == (2, 20)
    assert rows(data, startOffset="40", endOffset="45") == (2, 10)
    assert rows(data, startTime=str(TIME + 98)) == (2, 4)
    assert rows(data, asOf=str(TIME + 9)) == (2, 20)


def test_a_worker_with_an_older_copy(data: Path) -> None:
    """Rows that the driver has planned are not left out in silence."""
    reader = TableReader({"path": str(data), "topic": "orders"}, ["offset"])
    first, second = reader.partitions()
    offsets = encode_offsets({TopicPartition("orders", 0): 90, TopicPartition("orders", 1): 100})
    (data / "replication-offset-checkpoint").write_bytes(offsets)
    assert sum(batch.num_rows for batch in reader.read(second)) == 100
    with pytest.raises(KafkaError, match="orders-0 ends at offset 90 in the worker's directories"):
        list(reader.read(first))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startOffset": "first"}, "startoffset is 'first', not a number"),
        ({"strtOffset": "1"}, "unknown option 'strtoffset'"),
        ({"recordsPerTask": "0"}, "is below 1"),
        ({"topic": ""}, "option topic is missing"),
        ({"topic": "absent"}, "there is no topic 'absent'"),
    ],
)
def test_options(data: Path, options: dict[str, str], text: str) -> None:
    """Each wrong one is an error that names it."""
    with pytest.raises(KafkaError, match=text):
        rows(data, **options)


def test_the_schema() -> None:
    """The columns of a scan; a reader gets those that the user chose."""
    source = TableDataSource({"topic": "t", "path": "/x"})
    assert source.schema().startswith("`topic` string, `partition` int, `offset` bigint")
    schema = StructType([StructField("offset", LongType())])
    reader: Any = source.reader(schema)
    assert reader._arguments["columns"] == ["offset"]


@pytest.mark.spark
@pytest.mark.soak
def test_a_frame(spark: SparkSession, data: Path) -> None:
    """Spark's own conditions and aggregates over the rows."""
    frame = (
        spark.read.format("ottla-table")
        .option("topic", "orders")
        .option("recordsPerTask", "40")
        .load(str(data))
    )
    assert frame.count() == 200
    found = frame.where("partition = 1 and offset >= 90").selectExpr("cast(value as string)")
    assert sorted(row[0] for row in found.collect()) == [str(n) for n in range(90, 100)]

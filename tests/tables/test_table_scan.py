"""Scans of log directories and of brokers: rows, limits, time travel, compaction, damage."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla import tables
from ottla.clients.range_fetcher import OffsetRange
from ottla.errors import CorruptMessage, KafkaError
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.storage.directories.checkpoints import encode_offsets
from ottla.storage.directories.partition_metadata import encode_partition_metadata
from ottla.tables import partition_files, read_only, sources
from ottla.tables.values import Json
from ottla.testing import Cluster, Kafka
from ottla.types import TopicPartition, Uuid
from tests.soaks import with_soaks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

TIME = 1_700_000_000_000
ROWS = 6000


class Written:
    """A topic that a node has written: several segments, a transaction that was aborted."""

    def __init__(self, kafka: Kafka, path: Path) -> None:
        self.kafka = kafka
        self.path = path
        self.topic = "orders"
        config = {"internal.segment.bytes": "30000"}
        orders = kafka.topic(self.topic, partitions=2, config=config, exact=True)
        for number in range(ROWS):
            kafka.producer.send(
                self.topic,
                b'{"id":%d,"name":"n%d"}' % (number, number % 7),
                key=b"%d" % (number % 50),
                partition=number % 2,
                timestamp_ms=TIME + number * 1000,
            )
            if not number % 200:
                kafka.producer.flush()
        kafka.producer.flush()
        with kafka.transaction() as producer:
            producer.send(orders, b'{"id":-1}', partition=0, timestamp_ms=TIME)
        with suppress(KeyError), kafka.transaction() as producer:
            producer.send(orders, b'{"id":-2}', partition=0, timestamp_ms=TIME)
            producer.flush()
            raise KeyError


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Yield a running node with the topic."""
    path = tmp_path_factory.mktemp("tables")
    settings = {"replica.high.watermark.checkpoint.interval.ms": "100"}
    cluster = Cluster(config=settings, data_dir=str(path))
    cluster.start()
    with Kafka(cluster) as kafka:
        made = Written(kafka, path)
        kafka.wait(lambda: ends(path) == (ROWS // 2 + 4, ROWS // 2), 30, lambda: str(ends(path)))
        yield made
        cluster.stop()


def ends(path: Path) -> tuple[int, ...]:
    """Return the high watermarks of the checkpoint."""
    found = sources.DirectorySource("orders", [path]).bounds(read_committed=False)
    return tuple(bounds.end for bounds in found.values())


def ids(scan: tables.Scan) -> list[int]:
    """Return the ids in the values, in order."""
    return sorted(row["id"] for row in scan.to_arrow()["value"].to_pylist())


@pytest.fixture(params=["directory", "brokers"])
def where(request: pytest.FixtureRequest, written: Written) -> dict[str, Any]:
    """Return the arguments that say where to read."""
    if request.param == "directory":
        return {"data_dirs": written.path}
    return {"bootstrap_servers": written.kafka.bootstrap}


def test_all_rows_of_a_running_node(where: dict[str, Any]) -> None:
    """Aborted records are left out, or not, and markers always."""
    scan = tables.scan("orders", value="json", **where)
    assert ids(scan) == [-1, *range(ROWS)]
    assert ids(scan) == [-1, *range(ROWS)]  # each pass is a new one
    everything = tables.scan("orders", value="json", isolation="read_uncommitted", **where)
    assert ids(everything) == [-2, -1, *range(ROWS)]
    assert scan.schema.names == list(tables.table_scan.COLUMNS)
    row = scan.to_arrow().slice(0, 1).to_pylist()[0]
    assert (row["topic"], row["partition"], row["offset"], row["key"]) == ("orders", 0, 0, b"0")
    assert row["value"] == {"id": 0, "name": "n0"}
    assert int(row["timestamp"].timestamp() * 1000) == TIME


def test_limits(where: dict[str, Any]) -> None:
    """Partitions, offsets, times, the number of rows, and columns."""

    def rows(**limits: Any) -> pa.Table:
        return tables.scan("orders", **limits, **where).to_arrow()

    assert rows(partitions=[1]).num_rows == ROWS // 2
    part = rows(partitions=[1], start_offset=100, end_offset={1: 110}, columns=["offset"])
    assert part.to_pydict() == {"offset": list(range(100, 110))}
    first, last = TIME + 2_000_000, TIME + 2_010_000
    assert sorted(rows(start_time=first, end_time=last, columns=["key"])["key"].to_pylist()) == [
        b"%d" % number for number in range(10)
    ]
    assert rows(limit=7).num_rows == 7
    assert rows(limit=0).num_rows == 0
    assert rows(start_offset=10**9).num_rows == 0
    assert rows(start_time=TIME * 2).num_rows == 0


def test_time_travel(where: dict[str, Any]) -> None:
    """As of a moment the log ends before the first newer record."""
    scan = tables.scan("orders", as_of=TIME + 999_000, value="json", **where)
    assert ids(scan) == list(range(1000))
    table = tables.scan(
        "orders", as_of=TIME + 999_000, value="json", latest_per_key=True, flatten=True, **where
    ).to_arrow()
    assert sorted(table["id"].to_pylist()) == list(range(950, 1000))


def test_only_the_segments_in_question_are_opened(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By offset through the names of segments, by time through their indexes."""
    opened = []
    real = partition_files.PartitionFiles.open

    def noted(self: Any, base_offset: int) -> Any:
        opened.append(base_offset)
        return real(self, base_offset)

    scans = [
        tables.scan("orders", data_dirs=written.path, partitions=[1], start_offset=ROWS // 2 - 9),
        tables.scan("orders", data_dirs=written.path, partitions=[1], end_offset=5),
        tables.scan(
            "orders", data_dirs=written.path, partitions=[1], start_time=TIME + ROWS * 1000 - 9000
        ),
    ]
    segments = len(list((written.path / "orders-1").glob("*.log")))
    assert segments > 3
    monkeypatch.setattr(partition_files.PartitionFiles, "open", noted)
    for scan, rows in zip(scans, (9, 5, 5), strict=True):
        opened.clear()
        assert scan.to_arrow().num_rows == rows
        assert len(opened) == 1


def test_frames(written: Written) -> None:
    """Pandas, Polars and DuckDB take a scan; DuckDB finds it by the name of the variable."""
    duckdb = pytest.importorskip("duckdb")
    orders = tables.scan("orders", data_dirs=written.path, value="json", flatten=True)
    assert orders.to_pandas()["id"].sum() == sum(range(ROWS)) - 1
    assert orders.to_polars().height == ROWS + 1
    found = duckdb.sql("select count(*), max(id) from orders where name = 'n3'").fetchall()
    assert found == [(857, ROWS - 5)]


def test_an_open_transaction_hides_what_follows(written: Written, tmp_path: Path) -> None:
    """The last stable offset comes from the batches after the newest snapshot of producers."""
    kafka, path = written.kafka, written.path
    kafka.topic("payments", exact=True)
    with kafka.transaction() as producer:
        producer.send("payments", b"1")
        producer.flush()
        kafka.producer.send("payments", b"2")
        kafka.producer.flush()
        kafka.wait(
            lambda: (
                sources.DirectorySource("payments", [path]).bounds(read_committed=False)[0].end == 2
            ),
            30,
            lambda: "no high watermark",
        )
        assert tables.scan("payments", data_dirs=path).to_arrow().num_rows == 0
        raw = tables.scan("payments", data_dirs=path, isolation="read_uncommitted")
        assert raw.to_arrow()["value"].to_pylist() == [b"1", b"2"]


# ------------------------------------------------------------ files made by hand


def write_log(
    root: Path, segments: dict[int, bytes], high_watermark: int | None, topic: str = "t"
) -> Path:
    """Write the segments of partition 0 without indexes."""
    partition = root / f"{topic}-0"
    partition.mkdir(parents=True)
    for base_offset, data in segments.items():
        (partition / f"{base_offset:020d}.log").write_bytes(data)
    if high_watermark is not None:
        offsets = encode_offsets({TopicPartition(topic, 0): high_watermark})
        (root / "replication-offset-checkpoint").write_bytes(offsets)
    return root


def batch(first: int, count: int = 2, codec: Compression = Compression.NONE, **more: Any) -> bytes:
    """Return a batch of records whose values are their offsets."""
    rows = [(TIME + n, b"k%d" % (n % 3), b"%d" % n, ()) for n in range(first, first + count)]
    return bytes(encode_batch(rows, base_offset=first, compression=codec, **more))


def values(path: Path, **arguments: Any) -> list[int]:
    """Return the values of the topic as numbers."""
    found = tables.scan("t", data_dirs=path, columns=["value"], **arguments).to_arrow()
    return [int(value) for value in found["value"].to_pylist()]


@pytest.mark.parametrize("codec", list(Compression))
def test_codecs(tmp_path: Path, codec: Compression) -> None:
    """Batches are decompressed."""
    root = write_log(tmp_path, {0: batch(0, 30, codec) + batch(30, 30, codec)}, 60)
    assert values(root) == list(range(60))
    assert values(root, start_offset=29, end_offset=31) == [29, 30]


def test_above_the_high_watermark_nothing_is_read(tmp_path: Path) -> None:
    """A torn tail is no error, nor are bytes after the high watermark that are no batches."""
    root = write_log(tmp_path, {0: batch(0) + batch(2) + batch(4)[:-3]}, 3)
    assert values(root) == [0, 1, 2]
    assert values(write_log(tmp_path / "zeros", {0: batch(0) + bytes(500)}, 2)) == [0, 1]


def test_a_copy_without_checkpoints_is_read_to_its_valid_end(tmp_path: Path) -> None:
    """Checksums say where."""
    damaged = bytearray(batch(4))
    damaged[-1] ^= 1
    root = write_log(tmp_path, {0: batch(0) + batch(2) + bytes(damaged)}, None)
    assert values(root) == [0, 1, 2, 3]


def test_damage_below_the_high_watermark_is_an_error(tmp_path: Path) -> None:
    """It names the partition, and the file or the offset."""
    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage, match=r"t-0 after offset -1: .*stored crc"):
        values(write_log(tmp_path / "crc", {0: batch(0) + bytes(damaged)}, 4))
    with pytest.raises(KafkaError, match=r"t-0: .*\.log is damaged: a batch at position 0 claims"):
        values(write_log(tmp_path / "zeros", {0: bytes(500)}, 4))
    sizes = struct.pack(">qi", 0, 0x7FFF_FF00)
    with pytest.raises(KafkaError, match="claims 2147483404 bytes"):
        values(write_log(tmp_path / "size", {0: sizes + batch(0)[12:]}, 4))


def test_a_log_that_ends_below_its_high_watermark_is_an_error(tmp_path: Path) -> None:
    """Its last bytes were lost, or the checkpoint is that of a deleted topic of the name."""
    for name, data in (("torn", batch(0) + batch(2)[:-3]), ("cut", batch(0)), ("empty", b"")):
        root = write_log(tmp_path / name, {0: data}, 4)
        with pytest.raises(KafkaError, match="the log ends before offset 4"):
            values(root)
        if data:
            assert values(root, end_offset=2) == [0, 1]


def test_json_takes_its_fields_from_the_rows_of_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from older ones; without rows from the topic's, so that a statement has its columns."""
    monkeypatch.setattr(Json, "sample_rows", 1)
    rows = [(TIME, None, b'{"a":1}', ()), (TIME + 9, None, b'{"b":2}', ())]
    root = write_log(tmp_path, {0: bytes(encode_batch(rows))}, 2)

    def found(**limits: Any) -> pa.Table:
        return tables.scan(
            "t", data_dirs=root, columns=["value"], value="json", flatten=True, **limits
        ).to_arrow()

    assert found(start_time=TIME + 1).to_pydict() == {"b": [2]}
    assert found(start_time=TIME + 10).to_pydict() == {"a": []}
    with pytest.raises(KafkaError, match=r"offset 1 is not JSON of struct<a: int64> as inferred"):
        found()


def test_hostile_indexes_are_not_trusted(tmp_path: Path) -> None:
    """An entry counts only if its batch is there; else a segment is read from its start."""
    root = write_log(tmp_path, {0: batch(0) + batch(2) + batch(4)}, 6)
    for entry in ((1, 7), (3, 1 << 30), (1, -5), (0, 0), (5, len(batch(0)))):
        (root / "t-0" / f"{0:020d}.index").write_bytes(struct.pack(">ii", *entry) + bytes(800))
        assert values(root, start_offset=5) == [5]
    (root / "t-0" / f"{0:020d}.timeindex").write_bytes(b"\xff" * 25)
    assert values(root, start_time=TIME + 4) == [4, 5]


def test_segments_that_go_while_they_are_read(tmp_path: Path) -> None:
    """Of a log that retention cuts the rest is read; a compacted segment replaces the old ones."""
    root = write_log(tmp_path, {0: batch(0), 2: batch(2), 4: batch(4)}, 6)
    log = root / "t-0"
    rows = iter(tables.scan("t", data_dirs=root, columns=["offset"]))
    assert next(rows)["offset"].to_pylist() == [0, 1]
    (log / f"{2:020d}.log").rename(log / f"{2:020d}.log.deleted")
    assert [offset for rest in rows for offset in rest["offset"].to_pylist()] == [4, 5]
    (log / f"{2:020d}.log.deleted").rename(log / f"{2:020d}.log")
    rows = iter(tables.scan("t", data_dirs=root, columns=["offset"]))
    assert next(rows)["offset"].to_pylist() == [0, 1]
    (log / "cleaned").write_bytes(batch(1, 1) + batch(3, 1) + batch(5, 1))
    (log / "cleaned").rename(log / f"{0:020d}.log")
    (log / f"{2:020d}.log").unlink()
    (log / f"{4:020d}.log").unlink()
    assert [offset for rest in rows for offset in rest["offset"].to_pylist()] == [3, 5]


def test_a_log_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    """As a follower's is after an election: an error, and no loop at its new end."""
    rows = [(TIME, None, bytes(100_000), ())]
    log = b"".join(bytes(encode_batch(rows, base_offset=offset)) for offset in range(60))
    root = write_log(tmp_path, {0: log}, 60)
    batches = iter(tables.scan("t", data_dirs=root, columns=["offset"]))
    assert next(batches)["offset"].to_pylist() == list(range(10))
    os.truncate(root / "t-0" / f"{0:020d}.log", 1_500_000)
    with pytest.raises(KafkaError, match="the log ends before offset 60"):
        list(batches)


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_damaged_checkpoint_is_an_error(tmp_path: Path, name: str) -> None:
    """It is no missing one, without which all valid batches are read."""
    root = write_log(tmp_path, {0: batch(0) + batch(2)}, 2)
    assert values(root) == [0, 1]
    (root / name).write_bytes(b"0\n2\nt 0 2\n")
    with pytest.raises(CorruptMessage, match=f"{name}: malformed checkpoint"):
        values(root)


def test_the_end_of_other_partitions_is_not_computed(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of Spark reads one partition of many."""
    computed = []
    real = partition_files.PartitionFiles.last_stable_offset

    def noted(files: partition_files.PartitionFiles, end: int) -> int:
        computed.append(files.partition.partition)
        return real(files, end)

    monkeypatch.setattr(partition_files.PartitionFiles, "last_stable_offset", noted)
    found = tables.scan("orders", data_dirs=written.path, partitions=[1])
    assert found.to_arrow().num_rows == ROWS // 2
    assert list(found.bounds) == computed == [1]


def test_times_before_1970(where: dict[str, Any]) -> None:
    """Kafka's requests have other meanings of -1 and -2."""
    for time in (-1, -2, -3, -86_400_000):
        assert tables.scan("orders", start_time=time, **where).to_arrow().num_rows == ROWS + 1
        assert tables.scan("orders", as_of=time, **where).to_arrow().num_rows == 0


def test_no_partitions(where: dict[str, Any]) -> None:
    """They have no rows."""
    assert tables.scan("orders", partitions=[], **where).to_arrow().num_rows == 0


class Tier:
    """One remote segment, of which the test has the bytes."""

    def __init__(self, data: bytes, last_offset: int, path: Path) -> None:
        path.write_bytes(data)
        self.path = path
        self.segments = [
            SimpleNamespace(start_offset=0, end_offset=last_offset, max_timestamp_ms=TIME)
        ]

    def open(self, _segment: object) -> read_only.ReadOnlyFile:
        """Return its batches."""
        return read_only.ReadOnlyFile(str(self.path))


def test_a_segment_that_moves_to_the_tier_meanwhile(tmp_path: Path) -> None:
    """The scan knows the remote segments of its beginning: no row is left out in silence."""
    root = write_log(tmp_path / "data", {2: batch(2), 4: batch(4)}, 6)
    part = TopicPartition("t", 0)
    files = partition_files.PartitionFiles(
        read_only.ReadOnlyDirectory(root),
        part,
        log_start_offset=0,
        high_watermark=6,
        tier=Tier(batch(0), 1, tmp_path / "remote"),  # type: ignore[arg-type]
    )
    rule = partition_files.SkipRule()
    for is_moved in (False, True):
        if is_moved:
            (root / "t-0" / f"{2:020d}.log").unlink()
        reader = partition_files.FileReader(
            files, OffsetRange(part, 0, 6), read_committed=False, skip_rule=rule
        )
        if is_moved:
            with pytest.raises(KafkaError, match="t-0: offsets 2 to 3 have left the disk since"):
                list(reader.chunks())
        else:
            assert len(list(reader.chunks())) == 3


def test_a_pipe_and_a_link_are_no_segments(tmp_path: Path) -> None:
    """Neither blocks the reader nor leads it out of the directory."""
    secret = tmp_path / "secret"
    secret.write_bytes(batch(0))
    root = write_log(tmp_path / "data", {}, 2)
    log = root / "t-0" / f"{0:020d}.log"
    log.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        values(root)
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(OSError, match="not a regular file"):
        values(root)
    with pytest.raises(CorruptMessage, match="has 10 bytes"):
        large_is_refused(tmp_path)


def large_is_refused(path: Path) -> None:
    """Read a small file over the limit."""
    limit, read_only.SMALL_FILE_MAX_BYTES = read_only.SMALL_FILE_MAX_BYTES, 9  # type: ignore[misc]
    try:
        (path / "x").write_bytes(bytes(10))
        read_only.ReadOnlyDirectory(path).read_file("x")
    finally:
        read_only.SMALL_FILE_MAX_BYTES = limit  # type: ignore[misc]


def test_the_newest_of_each_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted keys are gone, and rows without a key; memory is reduced on the way."""
    monkeypatch.setattr("ottla.tables.newest_rows.MIN_ROWS", 4)
    rows = [(TIME, b"k1", None, ()), (TIME, None, b"99", ())]
    last = bytes(encode_batch(rows, base_offset=9))
    logs = {0: b"".join(batch(n, 3) for n in (0, 3, 6)) + last}
    assert values(write_log(tmp_path, logs, 11), latest_per_key=True) == [6, 8]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topic": "../../etc"}, "is no name of a topic"),
        ({"topic": ".."}, "is no name of a topic"),
        ({"topic": "t'; drop table x"}, "is no name of a topic"),
        ({"topic": "absent"}, "there is no topic 'absent' in .*; there are t$"),
        ({"columns": ["offset", "nothing"]}, "there is no column"),
        ({"partitions": [3]}, "has no partition 3"),
        ({"isolation": "serializable"}, "isolation is read_committed or"),
        ({"value": "xml"}, "there is no format 'xml'"),
        ({"limit": -1}, "limit is -1"),
        ({"bootstrap_servers": "localhost:1"}, "either data_dirs or bootstrap_servers"),
        ({"data_dirs": "/proc"}, "is no log directory of Kafka"),
        ({"data_dirs": "/nowhere/at/all"}, "No such file or directory"),
    ],
)
def test_arguments_that_cannot_be(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    """Each is one line that says what there is."""
    root = write_log(tmp_path, {0: batch(0)}, 2)
    with pytest.raises(KafkaError, match=text) as raised:
        tables.scan(**{"topic": "t", "data_dirs": root, **arguments})
    assert "\n" not in str(raised.value)


def test_a_topic_that_brokers_do_not_have(written: Written) -> None:
    """The nearest name is proposed."""
    with pytest.raises(KafkaError, match="there is no topic 'ordres'; did you mean 'orders'"):
        tables.scan("ordres", bootstrap_servers=written.kafka.bootstrap)
    assert tables.scan("orders", data_dirs=[written.path]).ranges


def test_the_most_advanced_copy_is_read(tmp_path: Path) -> None:
    """Of the directories of several replicas."""
    short = write_log(tmp_path / "a", {0: batch(0)}, 2)
    long = write_log(tmp_path / "b", {0: batch(0) + batch(2)}, 4)
    found = tables.scan("t", data_dirs=[short, long]).to_arrow()
    assert found.num_rows == 4


def test_a_copy_of_a_deleted_topic_is_refused(tmp_path: Path) -> None:
    """It may be longer than the log of the topic that was created again by its name."""
    roots = [write_log(tmp_path / name, {0: batch(0)}, 2) for name in ("a", "b")]
    for number, root in enumerate(roots, 1):
        topic_id = encode_partition_metadata(Uuid(bytes([number]) * 16))
        (root / "t-0" / "partition.metadata").write_bytes(topic_id)
    assert tables.scan("t", data_dirs=roots[1]).topic_id == Uuid(bytes([2]) * 16)
    with pytest.raises(KafkaError, match="deleted and created again; give directories of one"):
        tables.scan("t", data_dirs=roots)


@pytest.mark.parametrize("seed", with_soaks(range(4)))
def test_random_damage_is_found_or_harmless(tmp_path: Path, seed: int) -> None:
    """Flipped bits, sizes, missing and additional bytes, indexes of noise: no wrong row."""
    rng = Random(seed)
    clean = b"".join(batch(n * 5, 5, rng.choice(list(Compression))) for n in range(10))
    root = write_log(tmp_path, {0: b""}, 50)
    log = root / "t-0" / f"{0:020d}.log"
    outcomes: dict[bool, int] = {True: 0, False: 0}
    for _ in range(150):
        data = bytearray(clean)
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + 4] = struct.pack(">i", rng.choice([-1, 0, 0x7FFF_FFFF, 61, 12]))
        elif kind == 2:
            del data[at : at + rng.randrange(1, 50)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 50))
        log.write_bytes(data)
        for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            log.with_suffix(suffix).write_bytes(rng.randbytes(rng.randrange(200)))
        limits: Any = rng.choice(
            [{}, {"start_offset": 20}, {"start_time": TIME + 20}, {"as_of": TIME}]
        )
        isolation = rng.choice(["read_committed", "read_uncommitted"])
        try:
            found = tables.scan("t", data_dirs=root, isolation=isolation, **limits).to_arrow()
        except KafkaError:
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        numbers = [int(value) for value in found["value"].to_pylist()]
        assert found["offset"].to_pylist() == numbers
    assert min(outcomes.values()) > 10

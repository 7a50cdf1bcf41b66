"""Reading and writing tasks against a node, without Spark's JVM: what a worker process does."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows  # noqa: E402
from pyspark.sql.types import StringType, StructField, StructType  # noqa: E402

from ottla.clients import cluster_reader  # noqa: E402
from ottla.clients.admin.topics import NewTopic  # noqa: E402
from ottla.clients.blocking import Admin, Consumer, Producer  # noqa: E402
from ottla.clients.cluster_reader import TopicRecreated  # noqa: E402
from ottla.errors import ErrorCode, KafkaError  # noqa: E402
from ottla.spark import batch_reader, sink, stream  # noqa: E402
from ottla.spark.batch_reader import BatchReader  # noqa: E402
from ottla.spark.cluster import open_cluster  # noqa: E402
from ottla.spark.coordination import Coordination  # noqa: E402
from ottla.spark.options import BASE_COLUMNS, ReadOptions, read_options, write_options  # noqa: E402
from ottla.spark.reading import RangePartition, read_range  # noqa: E402
from ottla.spark.sending import TaskTransaction  # noqa: E402
from ottla.spark.sink import BatchWriter, StreamWriter  # noqa: E402
from ottla.spark.stream import StreamReader  # noqa: E402
from ottla.spark.waiting import MIN_WAIT_MS, RecordWait  # noqa: E402
from ottla.spark.writing import FrameColumns, FrameWriter  # noqa: E402
from ottla.tables.arrow import LAST_MS  # noqa: E402
from ottla.testing.cluster import Cluster  # noqa: E402
from ottla.types import TopicPartition  # noqa: E402
from tests.waits import read_records  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.cluster import Cluster as Node

ALL = (*BASE_COLUMNS, "headers")
KEY_VALUE = FrameColumns(value=1, key=0, topic=None, partition=None, headers=None, timestamp=None)
FULL = FrameColumns(value=1, key=0, topic=2, partition=3, headers=4, timestamp=5)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def make_topic(node: Node, name: str, partitions: int = 2, **configs: str) -> None:
    """Create a topic; configs with underscores for dots."""
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        made = admin.create_topics([NewTopic(name, partitions, 1, dotted)])[name]
        assert not isinstance(made, KafkaError), made


def reading(
    node: Node,
    topic: str,
    more: dict[str, str] | None = None,
    *,
    streaming: bool = False,
    **options: str,
) -> ReadOptions:
    """Return read options for one topic."""
    given = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic, **options}
    given |= more or {}
    return read_options(given, streaming=streaming)


def rows_of(options: ReadOptions, columns: tuple[str, ...] = ALL) -> list[dict[str, Any]]:
    """Read a topic as a batch, task after task."""
    reader = BatchReader(options, columns)
    return [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


def write(node: Node, frame: Any, columns: FrameColumns, **options: str) -> int:
    """Write one frame as one task does."""
    given = {"kafka.bootstrap.servers": node.bootstrap, **options}
    return FrameWriter(write_options(given), columns, 0).write(iter([frame])).records


def test_what_is_written_is_read(node: Node) -> None:
    """Keys, values, nulls, headers, timestamps, topics and partitions come back as given."""
    for name in ("wide-a", "wide-b"):
        make_topic(node, name, retention_ms="-1")  # the records are of 1970
    count = 100
    frame = pa.record_batch(
        [
            pa.array([b"k%d" % i if i % 3 else None for i in range(count)], pa.binary()),
            pa.array([f"v{i}" if i % 4 else None for i in range(count)], pa.string()),
            pa.array(["wide-a" if i % 5 else "wide-b" for i in range(count)]),
            pa.array([i % 2 if i % 7 else None for i in range(count)], pa.int32()),
            pa.array(
                [[{"key": "h", "value": b"%d" % i}] if i % 2 else None for i in range(count)],
                HEADERS,
            ),
            pa.array([i * 1_000_000 for i in range(count)], pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "topic", "partition", "headers", "timestamp"],
    )
    assert write(node, frame, FULL) == count
    found = rows_of(reading(node, "wide-a,wide-b"))
    assert len(found) == count
    by_time = {int(row["timestamp"].timestamp()): row for row in found}
    for i in range(count):
        row = by_time[i]
        assert row["key"] == (b"k%d" % i if i % 3 else None)
        assert row["value"] == (f"v{i}".encode() if i % 4 else None)
        assert row["topic"] == ("wide-a" if i % 5 else "wide-b")
        assert row["headers"] == ([{"key": "h", "value": b"%d" % i}] if i % 2 else None)
        assert row["timestampType"] == 0
        if i % 7:
            assert row["partition"] == i % 2


def test_keys_go_where_the_producer_sends_them(node: Node) -> None:
    """A consumer finds each key's records of sink and producer in one partition."""
    make_topic(node, "placed", 5)
    keys = [b"key-%d" % i for i in range(200)]
    frame = pa.record_batch([pa.array(keys), pa.array(keys)], names=["key", "value"])
    write(node, frame, KEY_VALUE, topic="placed")
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for key in keys:
            producer.send("placed", key, key)
        producer.flush()
    places: dict[bytes, set[int]] = {}
    for row in rows_of(reading(node, "placed")):
        places.setdefault(row["key"], set()).add(row["partition"])
    assert len(places) == len(keys)
    assert all(len(found) == 1 for found in places.values())


@pytest.mark.parametrize("micros", [-5_000_000, -1000])
def test_times_before_1970_are_refused(node: Node, micros: int) -> None:
    """As by Kafka's producers: a record of -1 ms would be one without a time."""
    make_topic(node, f"early{micros}", 1)
    columns = FrameColumns(value=0, key=None, topic=None, partition=None, headers=None, timestamp=1)
    times = pa.array([micros, None], pa.timestamp("us", "UTC"))
    frame = pa.record_batch([pa.array([b"v", b"v"]), times], names=["value", "timestamp"])
    with pytest.raises(KafkaError, match="not before 1970"):
        write(node, frame, columns, topic=f"early{micros}")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_there_and_back(node: Node, codec: str) -> None:
    """Compressed batches hold the same rows, split into several by size."""
    make_topic(node, f"packed-{codec}")
    values = [b"value-%05d" % i * 20 for i in range(2000)]
    frame = pa.record_batch([pa.nulls(2000, pa.binary()), pa.array(values)], names=["key", "value"])
    options = {"topic": f"packed-{codec}", "kafka.compression.type": codec}
    write(node, frame, KEY_VALUE, **options, **{"kafka.batch.size": "50000"})
    found = rows_of(reading(node, f"packed-{codec}", minPartitions="7"), ("value",))
    assert sorted(row["value"] for row in found) == values


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_are_split_for_a_topic_that_takes_only_small_ones(
    node: Node, codec: str, *, exactly_once: bool
) -> None:
    """The sink's batches are of 512 KB; later ones of a task are as small as those that fit."""
    topic = f"small-{codec}-{exactly_once}".lower()
    make_topic(node, topic, 1, max_message_bytes="20000")
    rng = Random(1)
    frames = [pa.record_batch([[rng.randbytes(900) for _ in range(300)]], ["value"]) for _ in "abc"]
    columns = FrameColumns(
        value=0, key=None, topic=None, partition=None, headers=None, timestamp=None
    )
    given = {"kafka.bootstrap.servers": node.bootstrap, "topic": topic}
    options = write_options({**given, "kafka.compression.type": codec})
    transaction = TaskTransaction(topic, two_phase=False) if exactly_once else None
    writer = FrameWriter(options, columns, 0, transaction)
    done = writer.write(iter(frames))
    assert done.records == 900
    assert writer._sender.batch_bytes(topic) < 20_000
    if done.participant is not None:
        with open_cluster({"bootstrap.servers": node.bootstrap}) as opened:
            Coordination(opened).end(done.participant, committed=True)
            Coordination(opened).wait_until_complete(done.participant)
    found = rows_of(reading(node, topic, {"kafka.isolation.level": "read_committed"}))
    assert [row["value"] for row in found] == [
        one for each in frames for one in each[0].to_pylist()
    ]
    large = pa.record_batch([[rng.randbytes(30_000)]], ["value"])
    with pytest.raises(
        KafkaError, match=r"larger than 20000, which is the value of the max\.message"
    ):
        FrameWriter(options, columns, 0).write(iter([large]))


def test_offsets_and_timestamps_bound_a_batch(node: Node) -> None:
    """Ranges by offset, by partition and by time hold exactly what they should."""
    make_topic(node, "bounded", 1, retention_ms="-1")  # its records are of 1970
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for i in range(50):
            producer.send("bounded", b"%d" % i, timestamp_ms=1000 * i)
        producer.flush()

    def values(**options: str) -> list[int]:
        return [int(row["value"]) for row in rows_of(reading(node, "bounded", options), ALL)]

    assert values() == list(range(50))
    some = values(startingOffsets='{"bounded":{"0":10}}', endingOffsets='{"bounded":{"0":12}}')
    assert some == [10, 11]
    assert values(startingTimestamp="20500", endingTimestamp="22000") == [21]
    by_partition = '{"bounded":{"0":48000}}'
    assert values(startingOffsetsByTimestamp=by_partition) == [48, 49]
    with pytest.raises(KafkaError, match="has no record at or after"):
        values(startingTimestamp="99000")
    assert values(startingTimestamp="99000", startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(KafkaError, match="the log goes from 0 to 50"):
        values(startingOffsets='{"bounded":{"0":70}}')
    with pytest.raises(KafkaError, match="must name exactly the partitions"):
        values(startingOffsets='{"bounded":{"1":0}}')


def test_a_read_that_ends_before_it_starts_is_refused(node: Node) -> None:
    """However both bounds are given; a read of nothing that is there would hide the mistake."""
    make_topic(node, "reversed", 1, retention_ms="-1")  # its records are of 1970
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for i in range(50):
            producer.send("reversed", b"%d" % i, timestamp_ms=1000 * i)
        producer.flush()
    starts = {
        "startingOffsets": '{"reversed":{"0":40}}',
        "startingTimestamp": "40000",
        "startingOffsetsByTimestamp": '{"reversed":{"0":40000}}',
    }
    ends = {
        "endingOffsets": '{"reversed":{"0":10}}',
        "endingTimestamp": "10000",
        "endingOffsetsByTimestamp": '{"reversed":{"0":10000}}',
    }
    for start in starts.items():
        for end in ends.items():
            for lenient in ("true", "false"):
                options = reading(node, "reversed", dict([start, end]), failOnDataLoss=lenient)
                with pytest.raises(KafkaError, match="starts at offset 40, after its end, offset"):
                    BatchReader(options, ALL).partitions()
    same = {"startingOffsets": '{"reversed":{"0":40}}', "endingOffsets": '{"reversed":{"0":40}}'}
    assert rows_of(reading(node, "reversed", same)) == []
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_records({TopicPartition("reversed", 0): 30})
    gone = {"startingOffsets": '{"reversed":{"0":5}}', "endingOffsets": '{"reversed":{"0":10}}'}
    assert rows_of(reading(node, "reversed", gone, failOnDataLoss="false")) == []
    with pytest.raises(KafkaError, match="Records were lost"):
        rows_of(reading(node, "reversed", gone))


@pytest.mark.parametrize("time_ms", [1_700_000_000_000_000, 1_700_000_000_000_000_000, LAST_MS + 1])
def test_timestamps_in_other_units_are_no_times(node: Node, time_ms: int) -> None:
    """An error that names the record, or null; microseconds of 64 bits would be another time."""
    topic = f"units-{time_ms}"
    limits = {
        f"message_timestamp_{side}_max_ms": str((1 << 63) - 1) for side in ("after", "before")
    }
    make_topic(node, topic, 1, retention_ms="-1", **limits)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for each in (0, 1_700_000_000_123, time_ms, LAST_MS):
            producer.send(topic, b"", timestamp_ms=each)
        producer.flush()
    with pytest.raises(KafkaError, match=f"offset 2 has the timestamp {time_ms}, which is no time"):
        rows_of(reading(node, topic))
    assert len(rows_of(reading(node, topic), ("value",))) == 4
    lenient = reading(node, topic, invalidTimestamps="null")
    (task,) = BatchReader(lenient, ALL).partitions()
    times = [
        None if each is None else each // 1000
        for batch in BatchReader(lenient, ALL).read(task)
        for each in batch.column("timestamp").cast(pa.int64()).to_pylist()
    ]
    assert times == [0, 1_700_000_000_123, None, LAST_MS]


def test_a_missing_topic_is_named_with_the_nearest(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is not there is an error with a proposal, for reading and for writing."""
    monkeypatch.setattr(cluster_reader, "NEW_TOPIC_TIMEOUT_MS", 300)
    make_topic(node, "departures")
    with pytest.raises(KafkaError, match="did you mean 'departures'"):
        rows_of(reading(node, "departure"))
    frame = pa.record_batch([pa.array([b"k"]), pa.array([b"v"])], names=["key", "value"])
    no_topics = {"kafka.allow.auto.create.topics": "false"}
    with pytest.raises(KafkaError, match="did you mean 'departures'"):
        write(node, frame, KEY_VALUE, topic="depatures", **no_topics)


@pytest.mark.parametrize("is_option", [False, True])
def test_a_missing_topic_is_made_by_the_broker(node: Node, *, is_option: bool) -> None:
    """As for Kafka's producers, by the option or by rows; those that are only read are not."""
    topic = f"made-{is_option}".lower()
    values = [pa.array([b"k"]), pa.array([b"v"])]
    if is_option:
        frame = pa.record_batch(values, names=["key", "value"])
        assert write(node, frame, KEY_VALUE, topic=topic) == 1
    else:
        columns = FrameColumns(1, 0, 2, None, None, None)
        names = ["key", "value", "topic"]
        frame = pa.record_batch([*values, pa.array([topic])], names=names)
        assert write(node, frame, columns) == 1
    assert [row["value"] for row in rows_of(reading(node, topic))] == [b"v"]
    with open_cluster({"bootstrap.servers": node.bootstrap}) as opened:
        assert opened.named_topics([topic], may_create=True).keys() == {topic}
        assert opened.existing_topics(["not-made"]) == {}
        assert opened.existing_topics(["not-made"]) == {}


def test_a_limit_of_transactions_is_named() -> None:
    """The sink's default is more than some brokers allow."""
    with Cluster(config={"transaction.max.timeout.ms": "60000"}) as cluster:
        make_topic(cluster, "short", 1)
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "short"}
        schema = StructType([StructField("value", StringType())])
        frame = pa.record_batch([["v"]], names=["value"])
        longer = BatchWriter(given, schema)
        with pytest.raises(KafkaError, match=r"kafka\.transaction\.timeout\.ms is 900000"):
            longer.write(iter([frame]))
        longer.abort([])
        shorter = BatchWriter({**given, "kafka.transaction.timeout.ms": "60000"}, schema)
        assert shorter.write(iter([frame])).records == 1
        shorter.abort([])


def test_a_frame_with_an_aborted_transaction_is_not_written(node: Node) -> None:
    """One task was slower than the timeout of another one's transaction: all or nothing."""
    make_topic(node, "half", 1)
    given = {"kafka.bootstrap.servers": node.bootstrap, "topic": "half"}
    writer = BatchWriter(given, StructType([StructField("value", StringType())]))
    commits: list[Any] = []
    for number in range(2):
        name = f"{writer._task_prefix}{number}"
        frame = pa.record_batch([[f"{number}"]], names=["value"])
        commits.append(writer._write(iter([frame]), TaskTransaction(name, two_phase=False)))
    with open_cluster({"bootstrap.servers": node.bootstrap}) as opened:
        Coordination(opened).advance([commits[0].participant.transactional_id])
    with pytest.raises(KafkaError, match="nothing of the frame is written"):
        writer.commit(commits)
    assert rows_of(reading(node, "half", {"kafka.isolation.level": "read_committed"})) == []


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "--transactional-id spark- --resource-"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "needs READ on the group"),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
    ],
)
def test_what_exactly_once_needs_is_named(code: ErrorCode, text: str) -> None:
    """The connector's users have rights to topics; with exactlyOnce=false these are enough."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    advice = sink.advice_on(KafkaError(code), write_options(given), "spark-")
    assert advice is not None
    assert text in advice
    assert "exactlyOnce=false" in advice
    plain = write_options({**given, "exactlyOnce": "false"})
    assert sink.advice_on(KafkaError(code), plain, "spark-") is None


def test_a_partition_that_is_not_there_is_named(node: Node) -> None:
    """A partition column beyond the topic's partitions is an error."""
    make_topic(node, "narrow", 1)
    frame = pa.record_batch(
        [pa.array([b"v"]), pa.array([4], pa.int32())], names=["value", "partition"]
    )
    columns = FrameColumns(0, None, None, 1, None, None)
    with pytest.raises(KafkaError, match="contains 4; topic 'narrow' has 0 to 0"):
        write(node, frame, columns, topic="narrow")


def test_a_stream_follows_its_topic(node: Node) -> None:
    """Offsets advance with the log, by the limit when there is one, and new partitions count."""
    make_topic(node, "followed", 1)
    options = reading(node, "followed", streaming=True, startingOffsets="earliest")
    stream = StreamReader(options, ("value",))
    start = stream.initialOffset()
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == start
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for i in range(10):
            producer.send("followed", b"%d" % i)
        producer.flush()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    tasks = stream.partitions(start, end)
    found = [
        row["value"] for task in tasks for batch in stream.read(task) for row in batch.to_pylist()
    ]
    assert found == [b"%d" % i for i in range(10)]
    assert stream.partitions(end, end) == []
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        outcome = admin.create_partitions({"followed": 2})["followed"]
    assert outcome is None, outcome
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait("followed", b"new", partition=1)
    grown = stream.latestOffset(end, stream.getDefaultReadLimit())
    assert grown["followed"]["1"] == 1
    task = stream.partitions(end, grown)[0]
    assert [batch.to_pylist() for batch in stream.read(task)] == [[{"value": b"new"}]]
    stream.stop()


def test_what_is_available_now_ends_after_the_start(node: Node) -> None:
    """Spark asks for the goal first; the log grows before a query starts at its end."""
    make_topic(node, "available", 1)
    options = reading(node, "available", streaming=True, startingOffsets="latest")
    stream = StreamReader(options, ("value",))
    limit = stream.getDefaultReadLimit()
    stream.prepareForTriggerAvailableNow()
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait("available", b"between")
        start = stream.initialOffset()
        assert stream.latestOffset(start, limit) == start
        producer.send_and_wait("available", b"later")
        assert stream.latestOffset(start, limit) == start
    stream.stop()


def test_an_idle_stream_waits_at_the_brokers(node: Node) -> None:
    """For longer each time; a record ends the wait, and one that is there needs none."""
    make_topic(node, "idle", 2)
    options = reading(node, "idle", streaming=True, startingOffsets="earliest")
    stream = StreamReader(options, ("value",))
    start = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    began_s = time.monotonic()
    for _ in range(3):
        assert stream.latestOffset(start, limit) == start
    assert time.monotonic() - began_s > 0.001 * sum(MIN_WAIT_MS << time for time in range(3))
    wait = RecordWait(stream.cluster, 0)
    topics = stream.cluster.existing_topics(["idle"])
    positions = {TopicPartition("idle", 0): 0, TopicPartition("idle", 1): 0}
    assert not wait.wait(topics, positions)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait("idle", b"first", partition=1)
    assert any(wait.wait(topics, positions) for _ in range(10))
    assert stream.latestOffset(start, limit)["idle"]["1"] == 1
    stream.stop()


def test_a_topic_made_again_stops_a_stream(node: Node) -> None:
    """A deleted and recreated topic is an error in planning and in a task, not silence."""
    make_topic(node, "twice", 1)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait("twice", b"old")
    options = reading(node, "twice", streaming=True, startingOffsets="earliest")
    stream = StreamReader(options, ("value",))
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    tasks = stream.partitions(start, end)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_topics(["twice"])
    make_topic(node, "twice", 1)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait("twice", b"new")
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        stream.latestOffset(end, stream.getDefaultReadLimit())
    with pytest.raises(TopicRecreated):
        stream.partitions(start, end)
    with pytest.raises(TopicRecreated):
        list(read_range(options, ("value",), tasks[0]))
    stream.stop()


def test_a_topic_that_is_deleted_under_a_query(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """To create it again is no advice: that would be another topic. One never read is missing."""
    monkeypatch.setattr(cluster_reader, "NEW_TOPIC_TIMEOUT_MS", 300)
    make_topic(node, "kept", 1)
    make_topic(node, "deleted", 1)
    options = reading(node, "kept,deleted", streaming=True, startingOffsets="earliest")
    stream = StreamReader(options, ("value",))
    start = stream.initialOffset()
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_topics(["deleted"])
    with pytest.raises(KafkaError, match=r"'deleted' was deleted before .* takes a new checkpoint"):
        stream.latestOffset(start, stream.getDefaultReadLimit())
    stream.stop()
    more = StreamReader(reading(node, "kept,never", streaming=True), ("value",))
    with pytest.raises(KafkaError, match="there is no topic 'never'"):
        more.latestOffset({"kept": start["kept"]}, more.getDefaultReadLimit())
    more.stop()


def test_offsets_that_are_gone(node: Node) -> None:
    """Deleted records are an error by default, and skipped where losses are allowed."""
    make_topic(node, "trimmed", 1)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for i in range(20):
            producer.send("trimmed", b"%d" % i)
        producer.flush()
    strict = StreamReader(
        reading(node, "trimmed", streaming=True, startingOffsets="earliest"), ("value",)
    )
    start = strict.initialOffset()
    end = strict.latestOffset(start, strict.getDefaultReadLimit())
    tasks = strict.partitions(start, end)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_records({TopicPartition("trimmed", 0): 15})
    with pytest.raises(KafkaError, match="failOnDataLoss=false"):
        strict.partitions(start, end)
    with pytest.raises(KafkaError, match="the log starts at 15"):
        list(strict.read(tasks[0]))
    lenient = StreamReader(
        reading(node, "trimmed", streaming=True, failOnDataLoss="false"), ("value",)
    )
    for task in (tasks[0], lenient.partitions(start, end)[0]):
        values = [row["value"] for batch in lenient.read(task) for row in batch.to_pylist()]
        assert values == [b"%d" % i for i in range(15, 20)]
    strict.stop()
    lenient.stop()


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_first_micro_batch_is_repeated_from_where_it_started(node: Node, starting: str) -> None:
    """Spark asks again for the start of a query whose first micro-batch was not committed."""
    topic = f"first-{starting}"
    make_topic(node, topic, 1)

    def send(count: int, partition: int = 0) -> None:
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition)
            producer.flush()

    def reader() -> StreamReader:
        options = reading(node, topic, streaming=True, startingOffsets=starting)
        return StreamReader(options, ("value",))

    send(10)
    first = reader()
    start = first.initialOffset()
    send(5)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_partitions({topic: 2})
    send(2, partition=1)
    end = first.latestOffset(start, first.getDefaultReadLimit())
    parts: list[Any] = list(first.partitions(start, end))
    send(5)
    send(1, partition=1)
    again = reader()
    repeated = again.initialOffset()
    repeated_parts: list[Any] = list(again.partitions(repeated, end))
    assert [one.offset_range for one in repeated_parts] == [one.offset_range for one in parts]
    following = again.latestOffset(end, again.getDefaultReadLimit())
    assert (following[topic]["0"], following[topic]["1"]) == (20, 3)
    assert "start" not in following[topic]
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 12})
    third = reader()
    repeated = third.initialOffset()
    with pytest.raises(KafkaError, match="the log starts at 12"):
        third.partitions(repeated, end)
    for one in (first, again, third):
        one.stop()


def test_records_gone_from_a_new_partition_are_a_loss(node: Node) -> None:
    """A partition that the query has not seen starts at 0, also when a batch is planned again."""
    make_topic(node, "joined", 1)
    strict, lenient = (
        StreamReader(
            reading(
                node, "joined", streaming=True, startingOffsets="earliest", failOnDataLoss=allowed
            ),
            ("value",),
        )
        for allowed in ("true", "false")
    )
    start = strict.initialOffset()
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        assert admin.create_partitions({"joined": 2})["joined"] is None
        assert strict.latestOffset(start, strict.getDefaultReadLimit()) == start
        with Producer(bootstrap_servers=node.bootstrap) as producer:
            for i in range(5):
                producer.send("joined", b"%d" % i, partition=1)
            producer.flush()
        while (whole := strict.latestOffset(start, strict.getDefaultReadLimit())) == start:
            pass  # an idle query looks for new partitions every two seconds
        parts: list[Any] = list(strict.partitions(start, whole))
        assert [part.offset_range for part in parts] == [(TopicPartition("joined", 1), 0, 5)]
        for gone, left in ((3, [b"3", b"4"]), (5, [])):
            admin.delete_records({TopicPartition("joined", 1): gone})
            end = strict.latestOffset(start, ReadMaxRows(2))
            assert end["joined"]["1"] == 2
            for planned in (end, whole):
                with pytest.raises(KafkaError, match=f"the log starts at {gone}"):
                    strict.partitions(start, planned)
            end = lenient.latestOffset(start, lenient.getDefaultReadLimit())
            tasks = lenient.partitions(start, end)
            read = [batch.to_pylist() for task in tasks for batch in lenient.read(task)]
            assert [row["value"] for rows in read for row in rows] == left
        admin.delete_topics(["joined"])
    with pytest.raises(KafkaError, match="was deleted before offset 0"):
        strict.partitions(start, whole)
    assert lenient.partitions(start, whole) == []
    strict.stop()
    lenient.stop()


def test_a_broker_that_is_away_is_told_in_one_line() -> None:
    """Without a listener: one line with the address, after the timeout."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    limited = {**options, "kafka.default.api.timeout.ms": "200"}
    with pytest.raises(KafkaError, match=r"cannot reach 127\.0\.0\.1:1") as raised:
        rows_of(read_options(limited, streaming=False))
    assert "\n" not in str(raised.value)


def test_a_new_read_names_an_absent_broker_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch and a new query do not wait for the API timeout of 60 s."""
    monkeypatch.setattr(batch_reader, "FIRST_ANSWER_MS", 200)
    monkeypatch.setattr(stream, "FIRST_ANSWER_MS", 200)
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    with pytest.raises(KafkaError, match=r"cannot reach 127\.0\.0\.1:1"):
        rows_of(read_options(options, streaming=False))
    reader = StreamReader(read_options(options, streaming=True), BASE_COLUMNS)
    with pytest.raises(KafkaError, match=r"or correct kafka\.bootstrap\.servers"):
        reader.initialOffset()
    reader.stop()


@pytest.mark.parametrize("topic", [{"topic": "t"}, {}])
def test_a_new_write_names_an_absent_broker_early(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, topic: dict[str, str]
) -> None:
    """As a read does; others wait for `kafka.max.block.ms`: running queries, `foreachBatch`."""
    monkeypatch.setattr(sink, "FIRST_ANSWER_MS", 200)
    columns = ["value"] if topic else ["topic", "value"]
    schema = StructType([StructField(name, StringType()) for name in columns])
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", **topic}
    (tmp_path / "offsets").mkdir()
    query = {**options, "checkpointLocation": f"file:{tmp_path}"}
    with pytest.raises(KafkaError, match=r"cannot reach 127\.0\.0\.1:1"):
        StreamWriter(query, schema)
    monkeypatch.setattr(sink, "FIRST_ANSWER_MS", 600_000)
    with pytest.raises(KafkaError, match="cannot reach"):
        BatchWriter({**options, "kafka.max.block.ms": "200"}, schema)
    (tmp_path / "commits").mkdir()
    assert sink.is_new_query(query)
    (tmp_path / "commits" / "0").touch()
    assert not sink.is_new_query(query)
    assert not sink.is_new_query({"checkpointLocation": "s3://bucket/checkpoint"})


def test_a_writer_outlives_a_restart_of_the_broker(node: Node) -> None:
    """A sender that loses its broker goes on when it is back, without duplicates."""
    make_topic(node, "restarted", 1)
    frames = [
        pa.record_batch([pa.nulls(1, pa.binary()), pa.array([b"%d" % i])], names=["key", "value"])
        for i in range(6)
    ]
    given = {"kafka.bootstrap.servers": node.bootstrap, "topic": "restarted"}
    writer = FrameWriter(write_options({**given, "kafka.max.request.size": "1"}), KEY_VALUE, 0)

    def interrupted() -> Any:
        for i, frame in enumerate(frames):
            if i == 3:
                node.restart()
            yield frame

    assert writer.write(interrupted()).records == 6
    found = rows_of(reading(node, "restarted"), ("value",))
    assert [row["value"] for row in found] == [b"%d" % i for i in range(6)]


def test_a_reader_outlives_a_restart_of_the_broker(node: Node) -> None:
    """A task in the middle of its range goes on at its offset."""
    make_topic(node, "resumed", 1)
    with Producer(bootstrap_servers=node.bootstrap, batch_size=1) as producer:
        for i in range(30):
            producer.send("resumed", b"%d" % i * 50)
        producer.flush()
    options = reading(node, "resumed", {"kafka.max.partition.fetch.bytes": "400"})
    reader = BatchReader(options, ("offset",))
    found: list[int] = []
    for number, batch in enumerate(reader.read(reader.partitions()[0])):
        found += batch.column(0).to_pylist()
        if number == 2:
            node.restart()
    assert found == list(range(30))


def test_a_cluster_tells_patterns_and_assignments(node: Node) -> None:
    """Patterns match whole names; an assignment must name partitions that exist."""
    for name in ("logs-a", "logs-b", "xlogs-c"):
        make_topic(node, name)
    by_pattern = {"kafka.bootstrap.servers": node.bootstrap, "subscribePattern": "logs-.*"}
    options = read_options(by_pattern, streaming=False)
    with open_cluster(options.config) as cluster:
        assert sorted(cluster.topics(options.selection)) == ["logs-a", "logs-b"]
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for partition in (0, 1):
            producer.send_and_wait("logs-a", b"%d" % partition, partition=partition)
    assigned = {"kafka.bootstrap.servers": node.bootstrap, "assign": '{"logs-a":[1]}'}
    found = rows_of(read_options(assigned, streaming=False), ("value", "partition"))
    assert found == [{"value": b"1", "partition": 1}]
    wrong = {"kafka.bootstrap.servers": node.bootstrap, "assign": '{"logs-a":[7]}'}
    with pytest.raises(KafkaError, match="has partitions 0 to 1, not 7"):
        rows_of(read_options(wrong, streaming=False))


def test_a_pattern_takes_topics_that_only_look_internal(node: Node) -> None:
    """The cluster says which topics are its own; two underscores do not."""
    make_topic(node, "__events")
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.alter_group_offsets("makes-offsets", {TopicPartition("__events", 0): 0})
    by_pattern = {"kafka.bootstrap.servers": node.bootstrap, "subscribePattern": "__.*"}
    options = read_options(by_pattern, streaming=False)
    with open_cluster(options.config) as cluster:
        assert sorted(cluster.topics(options.selection)) == ["__events"]


def test_an_end_beyond_the_log(node: Node) -> None:
    """Planning and tasks report a shrunken log, or skip it where losses are allowed."""
    make_topic(node, "short", 1)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait("short", b"v")
    beyond = {"endingOffsets": '{"short":{"0":4000000000000000000}}', "maxRecordsPerPartition": "1"}
    short = {"kafkaConsumer.pollTimeoutMs": "700"}
    strict = reading(node, "short", {**beyond, **short})
    with pytest.raises(KafkaError, match="the log ends at 1"):
        rows_of(strict, ("value",))
    lenient = reading(node, "short", {**beyond, **short}, failOnDataLoss="false")
    assert rows_of(lenient, ("value",)) == [{"value": b"v"}]
    (task,) = BatchReader(lenient, ("value",)).partitions()
    assert isinstance(task, RangePartition)
    task.offset_range = task.offset_range._replace(until=9)  # the log has shrunk since
    with pytest.raises(KafkaError, match="the log ends at 1"):
        list(read_range(strict, ("value",), task))
    assert len(list(read_range(lenient, ("value",), task))) == 1


def test_the_first_micro_batch_does_not_wait_for_more(node: Node) -> None:
    """As in the connector: minOffsetsPerTrigger holds back later ones."""
    make_topic(node, "few", 1)
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        producer.send_and_wait("few", b"v")
        options = reading(
            node, "few", {"minOffsetsPerTrigger": "5"}, streaming=True, startingOffsets="earliest"
        )
        stream = StreamReader(options, ("value",))
        limit = stream.getDefaultReadLimit()
        first = stream.latestOffset(stream.initialOffset(), limit)
        assert first["few"]["0"] == 1
        producer.send_and_wait("few", b"v")
        assert stream.latestOffset(first, limit) == first
    stream.stop()


def test_the_sink_is_read_by_an_ordinary_consumer(node: Node) -> None:
    """What the sink wrote is what a consumer reads, in order within a partition."""
    make_topic(node, "plain", 1)
    values = [b"%d" % i for i in range(1000)]
    frame = pa.record_batch([pa.nulls(1000, pa.binary()), pa.array(values)], names=["key", "value"])
    write(node, frame, KEY_VALUE, topic="plain")
    with Consumer(bootstrap_servers=node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("plain", 0)])
        found = read_records(consumer, 1000)
    assert [record.value for record in found] == values

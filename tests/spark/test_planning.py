"""Offset ranges into tasks, limits of a trigger, and positions in a checkpoint."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from ottla.clients.cluster_reader import TopicRecreated, _is_missing, is_retriable
from ottla.clients.metadata import TopicMetadata
from ottla.clients.range_fetcher import OffsetRange, RangeFetcher
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchResponse
from ottla.spark.cluster import open_cluster
from ottla.spark.offsets import SourceOffsets, check_same_topics
from ottla.spark.options import read_options
from ottla.spark.planning import cut, limit_offsets, offsets_within, split_ranges
from ottla.spark.writing import find_columns
from ottla.types import TopicPartition, Uuid

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_empty_ranges_make_no_task() -> None:
    """A partition with nothing to read is left out."""
    assert split_ranges([OffsetRange(A, 5, 5), OffsetRange(B, 0, 2)]) == [OffsetRange(B, 0, 2)]


def test_tasks_are_shared_out_by_size() -> None:
    """A longer range gets more of the tasks."""
    ranges = split_ranges([OffsetRange(A, 0, 900), OffsetRange(B, 0, 100)], min_partitions=10)
    assert sum(one.partition == A for one in ranges) == 9
    assert sum(one.partition == B for one in ranges) == 1


def test_there_are_at_least_so_many_tasks() -> None:
    """Two and a half tasks a range are three, as in the connector."""
    ranges = [OffsetRange(A, 0, 100), OffsetRange(B, 0, 100)]
    assert len(split_ranges(ranges, min_partitions=5)) == 6


def test_a_log_that_has_shrunk_is_followed_under_a_limit() -> None:
    """What it gets next would be passed over up to where the query had been."""
    ends = limit_offsets({A: 100, B: 0}, {A: 80, B: 1000}, 10)
    assert ends == {A: 80, B: 10}


def test_tasks_have_at_most_so_many_records() -> None:
    """MaxRecordsPerPartition bounds each task."""
    assert [r.size for r in split_ranges([OffsetRange(A, 10, 35)], max_records=10)] == [8, 8, 9]


@given(st.integers(0, 1000), st.integers(1, 10_000), st.integers(1, 50))
def test_parts_of_a_range_are_the_range(start: int, size: int, parts: int) -> None:
    """Cut parts follow each other without a gap and none is empty."""
    pieces = cut(OffsetRange(A, start, start + size), parts)
    assert pieces[0].start == start
    assert pieces[-1].until == start + size
    assert all(piece.size > 0 for piece in pieces)
    assert all(a.until == b.start for a, b in pairwise(pieces))


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=8),
    st.integers(1, 5000),
)
def test_a_limited_trigger_advances_and_stays_inside(
    logs: list[tuple[int, int]], limit: int
) -> None:
    """No partition goes back or beyond its end; with something to read there is progress."""
    start = {TopicPartition("t", i): begin for i, (begin, _) in enumerate(logs)}
    latest = {TopicPartition("t", i): begin + more for i, (begin, more) in enumerate(logs)}
    ends = limit_offsets(start, latest, limit)
    assert all(start[part] <= ends[part] <= latest[part] for part in latest)
    assert (sum(ends.values()) > sum(start.values())) == (latest != start)
    assert sum(ends.values()) - sum(start.values()) <= limit + len(logs)


def test_positions_survive_the_checkpoint() -> None:
    """What Spark writes is read back as it was."""
    offsets = SourceOffsets({A: 5, B: 0}, {"t": "1bxTwBh1Q9mgz_gQdfpehA"})
    assert offsets.to_json() == {"t": {"id": "1bxTwBh1Q9mgz_gQdfpehA", "0": 5, "1": 0}}
    assert SourceOffsets.from_json(offsets.to_json()) == offsets


@pytest.mark.parametrize("document", [{"t": 5}, {"t": {"x": 1}}, {"t": {"0": None}}])
def test_a_foreign_checkpoint_is_an_error(document: dict[str, object]) -> None:
    """A checkpoint of another source is rejected, not misread."""
    with pytest.raises(KafkaError, match="no offsets of this source"):
        SourceOffsets.from_json(document)  # type: ignore[arg-type] # that is the point


def test_a_topic_made_again_is_an_error_that_does_not_pass() -> None:
    """Another id under the same name stops the query; an unknown id does not."""
    check_same_topics({"t": "a", "u": ""}, {"t": "a", "u": "b"})
    with pytest.raises(TopicRecreated, match="new checkpoint") as raised:
        check_same_topics({"t": "a"}, {"t": "b"})
    assert not is_retriable(raised.value)


NEW_CODE = 20_000
"""A code that a later version of Kafka may have."""


def test_a_code_of_a_newer_broker_is_an_error_of_kafka() -> None:
    """It was a ValueError, which nothing catches."""
    with pytest.raises(KafkaError, match="unexpected error") as raised:
        _is_missing(TopicMetadata("t", Uuid(), error=NEW_CODE, is_internal=False))
    assert raised.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    options = read_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, streaming=False
    )
    cluster = open_cluster(options.config)
    fetcher = RangeFetcher(cluster, options, OffsetRange(A, 0, 1), "", None)
    with pytest.raises(KafkaError, match=r"t-0: .*unexpected error"):
        fetcher._checked(
            PartitionData(
                partition_index=0,
                error_code=NEW_CODE,
                high_watermark=-1,
                aborted_transactions=None,
            )
        )


def test_bytes_of_a_trigger_are_offsets_of_mean_size() -> None:
    """Both logs have 100 bytes an offset; what is already read does not count."""
    sizes = {A: 100_000, B: 5_000}
    start, latest, first = {A: 500, B: 0}, {A: 1000, B: 50}, {A: 0, B: 0}
    assert offsets_within(11_000, start, latest, first, sizes) == 110
    assert offsets_within(1, start, latest, first, sizes) == 1


def test_the_start_of_a_query_is_kept_with_the_end_of_its_first_batch() -> None:
    """Spark's checkpoint has it nowhere else; it is no reset of the group's offsets."""
    ends = SourceOffsets({A: 7, B: 9}, {"t": "id"}, (), ((A, 3), (B, 0)))
    assert ends.to_json() == {"t": {"id": "id", "0": 7, "1": 9, "start": {"0": 3, "1": 0}}}
    assert SourceOffsets.from_json(ends.to_json()) == ends


def test_a_reset_is_kept_with_the_end_of_a_batch() -> None:
    """A repeated micro-batch starts where it started first."""
    ends = SourceOffsets({A: 7, B: 9}, {"t": "id"}, ((A, 3),))
    assert ends.to_json() == {"t": {"id": "id", "0": 7, "1": 9, "from": {"0": 3}}}
    assert SourceOffsets.from_json(ends.to_json()) == ends


@pytest.mark.parametrize(
    ("column", "kind", "named"),
    [
        ("timestamp", TimestampNTZType(), "write cast\\(timestamp AS timestamp\\)"),
        ("timestamp", DateType(), "is date; it must be timestamp"),
        ("timestamp", LongType(), "is bigint; it must be timestamp"),
        ("timestamp", StringType(), "is string; it must be timestamp"),
        ("value", DecimalType(10, 2), r"is decimal\(10,2\); it must be binary or string"),
        ("key", LongType(), "is bigint; it must be binary or string"),
        ("partition", LongType(), "is bigint; it must be int"),
    ],
)
def test_a_column_of_another_type_is_refused(column: str, kind: DataType, named: str) -> None:
    """What a conversion would mean is the user's to say: a zone, a unit, an encoding."""
    fields = {"value": BinaryType(), column: kind}
    schema = StructType([StructField(name, one) for name, one in fields.items()])
    with pytest.raises(
        KafkaError, match=f"column '{column}' {named}" if named[0] == "i" else named
    ):
        find_columns(schema, "topic")

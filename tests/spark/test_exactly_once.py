"""The exactly-once sink on a node: what is decided, repeated and fenced.

`scripts/conformance` runs most of them: a query takes seconds to start.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, Producer, TopicPartition
from tests.spark.pipelines import LIMIT_S, Pipeline, committed, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ottla.testing.cluster import Cluster


pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]


@pytest.fixture
def pipeline(
    spark: SparkSession, node: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Pipeline:
    """Return a query with a name of its own."""
    name = request.node.name.removeprefix("test_").translate({ord("["): "-", ord("]"): None})
    return Pipeline(spark, node.bootstrap, tmp_path, name)


def test_batches_are_committed_with_their_offsets(pipeline: Pipeline) -> None:
    """The group is an ordinary one, without lag after each run."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 100)
    pipeline.run()
    assert committed(pipeline.bootstrap, pipeline.sink) == list(range(100))
    numbers(pipeline.bootstrap, pipeline.source, 100, 150)
    pipeline.run()
    assert committed(pipeline.bootstrap, pipeline.sink) == list(range(150))
    offsets = pipeline.offsets()
    assert [one.offset for _, one in sorted(offsets.items())] == [75, 75]
    assert {json.loads(one.metadata)["batch"] for one in offsets.values()} == {1}


def test_a_repeated_batch_is_not_written_again(pipeline: Pipeline) -> None:
    """The driver died between the decision and Spark's own note of it."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 50)
    pipeline.run()
    pipeline.forget_commit(0)
    pipeline.run()
    assert committed(pipeline.bootstrap, pipeline.sink) == list(range(50))


def test_what_an_undecided_batch_left_is_aborted(pipeline: Pipeline) -> None:
    """The driver died before its decision: the tasks' transactions are still open."""
    left = f"{pipeline.name}-task-12345678-0-0-0.0"
    with Producer(
        bootstrap_servers=pipeline.bootstrap,
        transactional_id=left,
        transaction_two_phase_commit_enable=True,
    ) as lost:
        lost.init_transactions()
        lost.begin_transaction()
        lost.send(pipeline.sink, b"-1").result(60)
        numbers(pipeline.bootstrap, pipeline.source, 0, 20)
        pipeline.run()
        assert committed(pipeline.bootstrap, pipeline.sink) == list(range(20))


def test_a_failed_batch_leaves_nothing(pipeline: Pipeline) -> None:
    """A task fails after others have written; the next run writes all."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 40)
    broken = pipeline.read().selectExpr(
        "CASE WHEN CAST(CAST(value AS string) AS int) = 39 THEN CAST(raise_error('planted') AS"
        " binary) ELSE value END AS value"
    )
    with pytest.raises(Exception, match="planted"):
        pipeline.run(broken)
    assert committed(pipeline.bootstrap, pipeline.sink) == []
    pipeline.run()
    assert committed(pipeline.bootstrap, pipeline.sink) == list(range(40))


def test_a_group_without_a_decision_is_refused(pipeline: Pipeline) -> None:
    """Whether the last batch was written cannot be known; the user may take the risk."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 10)
    pipeline.run()
    with Admin(bootstrap_servers=pipeline.bootstrap) as admin:
        admin.delete_groups([pipeline.name])
    numbers(pipeline.bootstrap, pipeline.source, 10, 20)
    with pytest.raises(Exception, match="has no decision on one"):
        pipeline.run()
    pipeline.run(allowMissingDecision="true")
    assert committed(pipeline.bootstrap, pipeline.sink) == list(range(20))


def test_the_group_of_another_query_is_refused(pipeline: Pipeline) -> None:
    """Its offsets would be moved back and forth."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 10)
    pipeline.run()
    shutil.rmtree(pipeline.checkpoint)
    with pytest.raises(Exception, match="another checkpoint"):
        pipeline.run()


def test_at_least_once_needs_no_group(pipeline: Pipeline) -> None:
    """A repeated batch is written twice, as by Kafka's connector."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 10)
    pipeline.run(exactlyOnce="false")
    pipeline.forget_commit(0)
    pipeline.run(exactlyOnce="false")
    assert committed(pipeline.bootstrap, pipeline.sink) == sorted(2 * list(range(10)))
    assert pipeline.offsets() == {}


def test_a_written_frame_is_committed_as_a_whole(pipeline: Pipeline) -> None:
    """A task that fails takes the records of all others with it."""
    spark, topic = pipeline.spark, pipeline.sink
    frame = spark.range(0, 30, 1, 3).selectExpr("CAST(id AS string) AS value")

    def write(written: DataFrame) -> None:
        written.write.format("ottla").option("kafka.bootstrap.servers", pipeline.bootstrap).option(
            "topic", topic
        ).mode("append").save()

    with pytest.raises(Exception, match="planted"):
        write(frame.selectExpr("IF(value = '29', raise_error('planted'), value) AS value"))
    assert committed(pipeline.bootstrap, topic) == []
    write(frame)
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", pipeline.bootstrap)
    found = reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
    assert found.load().count() == 30
    assert committed(pipeline.bootstrap, topic) == list(range(30))


def test_a_query_is_a_group_whatever_it_writes_to(pipeline: Pipeline) -> None:
    """Without this sink, too: the offsets follow, the last batch of availableNow included."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 40)
    seen: list[int] = []

    def run(**options: str) -> None:
        reader = pipeline.spark.readStream.format("ottla").options(
            **{
                "kafka.bootstrap.servers": pipeline.bootstrap,
                "subscribe": pipeline.source,
                "kafka.group.id": pipeline.name,
                "maxOffsetsPerTrigger": "30",
                **options,
            }
        )
        rows = reader.load().selectExpr("CAST(CAST(value AS string) AS int) AS value").writeStream
        query = (
            rows.foreachBatch(lambda frame, _: seen.extend(row.value for row in frame.collect()))
            .option("checkpointLocation", f"{pipeline.checkpoint}-{len(options)}")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(LIMIT_S)

    run(startingOffsets="earliest")
    assert sorted(seen) == list(range(40))
    assert [one.offset for _, one in sorted(pipeline.offsets().items())] == [20, 20]
    numbers(pipeline.bootstrap, pipeline.source, 40, 50)
    seen.clear()
    run(startingOffsets="group", columns="value")
    assert sorted(seen) == list(range(40, 50))
    assert [one.offset for _, one in sorted(pipeline.offsets().items())] == [25, 25]


@pytest.mark.parametrize("topics", ["all", "one"])
def test_a_stopped_query_goes_on_where_its_group_was_reset(pipeline: Pipeline, topics: str) -> None:
    """As by `consumer-groups --reset-offsets`, for the group or for one of its partitions."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 40)
    frame = pipeline.read(**{"kafka.group.id": pipeline.name})
    pipeline.run(frame)
    parts = [TopicPartition(pipeline.source, 0), TopicPartition(pipeline.source, 1)]
    chosen = parts if topics == "all" else parts[:1]
    with Admin(bootstrap_servers=pipeline.bootstrap) as admin:
        admin.alter_group_offsets(pipeline.name, dict.fromkeys(chosen, 10))
    pipeline.run(frame)
    again = [one for one in range(20, 40) if topics == "all" or one % 2 == 0]
    assert committed(pipeline.bootstrap, pipeline.sink) == sorted([*range(40), *again])
    pipeline.run(frame)
    assert [one.offset for _, one in sorted(pipeline.offsets().items())] == [20, 20]
    assert committed(pipeline.bootstrap, pipeline.sink) == sorted([*range(40), *again])

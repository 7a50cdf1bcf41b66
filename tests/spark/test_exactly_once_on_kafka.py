"""The exactly-once sink with source and sink on Kafka 4.3, which has no two-phase transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import Producer
from tests.conformance.kafka import kafka_or_skip, running_kafka
from tests.spark.pipelines import Pipeline, committed, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a node of Kafka."""
    with running_kafka(kafka_or_skip(), tmp_path_factory.mktemp("kafka")) as node:
        yield node.bootstrap


@pytest.fixture
def pipeline(
    spark: SparkSession,
    bootstrap: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Pipeline:
    """Return a query between topics of Kafka."""
    return Pipeline(spark, bootstrap, tmp_path, request.node.name)


def test_batches_are_written_once(pipeline: Pipeline) -> None:
    """Also the one that Spark repeats; the group is an ordinary one of Kafka."""
    numbers(pipeline.bootstrap, pipeline.source, 0, 100)
    pipeline.run()
    pipeline.forget_commit(0)
    pipeline.run()
    numbers(pipeline.bootstrap, pipeline.source, 100, 150)
    pipeline.run()
    assert committed(pipeline.bootstrap, pipeline.sink) == list(range(150))
    assert [one.offset for _, one in sorted(pipeline.offsets().items())] == [75, 75]


def test_what_an_undecided_batch_left_is_aborted(pipeline: Pipeline) -> None:
    """Found by the prefix of its id."""
    left = f"{pipeline.name}-task-12345678-0-0-0.0"
    with Producer(bootstrap_servers=pipeline.bootstrap, transactional_id=left) as lost:
        lost.init_transactions()
        lost.begin_transaction()
        lost.send(pipeline.sink, b"-1").result(60)
        numbers(pipeline.bootstrap, pipeline.source, 0, 20)
        pipeline.run()
        assert committed(pipeline.bootstrap, pipeline.sink) == list(range(20))

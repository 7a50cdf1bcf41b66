"""Micro-batches of a topology as Spark's workers run them, on states in memory: no session.

Rows go from stage to stage as in a query: grouped by task, in any order within a task.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row

from ottla.spark.writing import sum_of_digests
from ottla.streams.plan.plan import DIGEST, FIELDS, OUTPUT, Stage, layout, plan_for
from ottla.streams.run.spark_tasks import (
    BATCH_TIME,
    StageProcessor,
    StageWork,
    StatelessStage,
)
from tests.streams.run.test_spark_tasks import SCHEMA, Handle

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ottla.streams.topology.topology import Topology
    from tests.streams.cases import Input

RowDict = dict[str, Any]
State = dict[tuple[int, int], Handle]
"""What the tasks of a query have stored, by stage and task."""


class Result:
    """What a micro-batch has made."""

    def __init__(self, rows: list[RowDict], state: State) -> None:
        self.written = [_plain(row) for row in rows if row["stage"] == OUTPUT]
        self.digest = sum_of_digests(row["offset"] for row in rows if row["stage"] == DIGEST)
        self.state = state

    @property
    def contents(self) -> dict[tuple[int, int, str], dict[Any, Any]]:
        """What each store of each task has."""
        return {
            (*place, name): found.data
            for place, handle in self.state.items()
            for name, found in handle.maps.items()
            if found.data
        }


def _plain(row: RowDict) -> tuple[Any, ...]:
    place = (row["topic"], row["partition"], row["key"], row["value"], row["timestamp"])
    return (*place, str(row["headers"]))


class MicroBatches:
    """A query of a topology whose topics have one partition."""

    def __init__(self, topology: Topology) -> None:
        matched = ["in0", "in1"] if topology.patterns() else []
        topics = [*layout(topology, matched).source_topics(), "out"]
        self.plan = plan_for(topology, dict.fromkeys(topics, 1))
        self._offsets: dict[str, int] = {}

    def source(self, inputs: Iterable[Input]) -> list[RowDict]:
        """Return the rows of records of topics, with their offsets."""
        rows = []
        for topic, key, value, timestamp in inputs:
            offset = self._offsets[topic] = self._offsets.get(topic, -1) + 1
            data = [None if one is None else one.encode() for one in (key, value)]
            rows += self.addressed((0, 0, topic, 0, offset, *data, timestamp, []))
        return rows

    def returned(self, result: Result) -> list[RowDict]:
        """Return the rows of a real topic of the query's own, for the next micro-batch."""
        names = {real: name for name, real in self.plan.real_topics.items()}
        rows = []
        for topic, _, key, value, timestamp, _ in result.written:
            if topic in names:
                offset = self._offsets[topic] = self._offsets.get(topic, -1) + 1
                rows += self.addressed((0, 0, names[topic], 0, offset, key, value, timestamp, []))
        return rows

    def addressed(self, rest: tuple[Any, ...]) -> list[RowDict]:
        """Return a row for each stage that reads its topic."""
        topic = rest[2]
        matched = {one for found in self.plan.matched.values() for one in found}
        return [
            dict(zip(FIELDS, (stage.number, *rest), strict=True))
            for stage in self.plan.stages
            if topic in stage.topics
            or topic in stage.global_topics
            or (topic in matched and stage.patterns)
        ]

    def run(self, state: State, rows: list[RowDict], time_ms: int, rng: Random) -> Result:
        """Run a micro-batch on a copy of a state; rows come to their tasks in any order."""
        state = deepcopy(state)
        for stage in self.plan.stages:
            rows = [row for part in self._tasks(stage, rows, state, time_ms, rng) for row in part]
        return Result(rows, state)

    def _tasks(
        self, stage: Stage, rows: list[RowDict], state: State, time_ms: int, rng: Random
    ) -> Iterable[list[RowDict]]:
        own = [row for row in rows if row["stage"] in stage.addresses]
        yield [row for row in rows if row["stage"] not in stage.addresses]
        if not stage.is_stateful:
            given = pa.RecordBatch.from_pylist(own, schema=SCHEMA)
            yield [
                row
                for batch in StatelessStage(StageWork(self.plan, stage))([given])
                for row in batch.to_pylist()
            ]
            return
        rng.shuffle(own)
        own.sort(key=lambda row: row["task"])
        for task, group in groupby(own, key=lambda row: row["task"]):
            processor = StageProcessor(StageWork(self.plan, stage))
            processor.init(state.setdefault((stage.number, task), Handle()))
            found = [_spark_row(row, time_ms) for row in group]
            made = processor.handleInputRows((task,), iter(found), None)
            yield [row.asDict(recursive=True) for row in made]


def _spark_row(row: RowDict, time_ms: int) -> Row:
    headers = [Row(key=one["key"], value=one["value"]) for one in row["headers"]]
    return Row(**{**row, "headers": headers, BATCH_TIME: time_ms})

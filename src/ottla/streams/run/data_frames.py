"""Compiles a plan of stages to data frames.

Kafka: org.apache.kafka.streams.processor.internals.StreamThread; Spark: the query's logical plan.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from ottla.spark.rows import STATE_DIGEST
from ottla.streams.columns.combining import Combiner
from ottla.streams.columns.path_frames import run_paths
from ottla.streams.patterns import matching
from ottla.streams.plan.layout import DIGEST, FIELDS, FLOW, OUTPUT, Stage
from ottla.streams.plan.paths import Path
from ottla.streams.run.progress import OBSERVED
from ottla.streams.run.spark_tasks import (
    BATCH_TIME,
    StageProcessor,
    StageWork,
    StatelessStage,
)
from ottla.streams.run.task import unknown_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from ottla.streams.columns.operators import TypedInput
    from ottla.streams.plan.plan import Plan
    from ottla.streams.topology import SourceNode


def compile_plan(
    plan: Plan,
    records: DataFrame,
    find_count: Callable[[str], int | None] = unknown_count,
) -> DataFrame:
    """Return the records that a topology writes, in the columns of the sink.

    `find_count` finds the partitions of a topic that a function names, in the workers.
    """
    exit_serdes = {path.number: path.serdes(plan.topology.config) for path in plan.paths}
    entry_serdes: dict[int, TypedInput] = {}
    rows = _as_flow(plan, records)
    if rows.isStreaming:
        rows = rows.observe(OBSERVED, f.max("timestamp").alias("stream_time_ms"))
    for _, group in groupby(plan.steps, _group):
        first, *others = group
        if isinstance(first, Stage):
            work = StageWork.of(plan, first, {**exit_serdes, **entry_serdes}, find_count)
            rows = _run(work, rows)
        else:
            paths = [first, *(one for one in others if isinstance(one, Path))]
            rows, serdes = run_paths(plan, paths, rows)
            entry_serdes.update(serdes)
    digests: list[Column] = []
    addresses = [OUTPUT]
    if rows.isStreaming and any(stage.is_stateful for stage in plan.stages):
        digest = f.when(f.col("stage") == DIGEST, f.col("offset"))
        digests.append(digest.alias(STATE_DIGEST))
        addresses.append(DIGEST)
    return rows.where(f.col("stage").isin(*addresses)).select(
        "key",
        "value",
        "topic",
        f.when(f.col("partition") >= 0, f.col("partition")).alias("partition"),
        f.timestamp_millis("timestamp").alias("timestamp"),
        "headers",
        *digests,
    )


def _group(step: Stage | Path) -> tuple[bool, tuple[int, int]]:
    """Return what the paths have in common that run together: sub-topology and level."""
    is_path = isinstance(step, Path)
    return is_path, (step.part, step.level) if isinstance(step, Path) else (step.number, 0)


def _as_flow(plan: Plan, records: DataFrame) -> DataFrame:
    """Address each record of the source to the tasks that read it."""
    topic: Column = f.col("topic")
    for name, real in plan.real_topics.items():
        topic = f.when(f.col("topic") == real, f.lit(name)).otherwise(topic)
    readers = [step for step in plan.steps if step.topics or step.patterns]
    shared = [stage for stage in plan.stages if stage.global_topics]
    rows = records.withColumn("topic", topic)
    if len(readers) == 1 and not shared:
        rows = rows.withColumn("target", _address(readers[0].number, f.col("partition")))
    else:
        rows = rows.withColumn("target", f.explode(_targets(plan, readers, shared)))
    return rows.select(
        f.col("target.stage").alias("stage"),
        f.col("target.task").alias("task"),
        f.col("partition").alias("origin"),
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        # null is what the source makes of an invalid one: the extractor decides on -1
        f.coalesce(f.unix_millis("timestamp"), f.lit(-1)).alias("timestamp"),
        f.coalesce("headers", f.array().cast(FLOW.rpartition("headers ")[2])).alias("headers"),
    )


def _targets(plan: Plan, readers: list[Stage | Path], shared: list[Stage]) -> Column:
    """Return an array of addresses for each record: several for a global topic."""
    named = list(plan.topology.source_topics())
    is_named = f.col("topic").isin(*named) if named else f.lit(False)
    nowhere = f.array().cast("array<struct<stage:int,task:int>>")
    found = nowhere
    for step in readers:
        own = f.array(_address(step.number, f.col("partition")))
        mine = f.col("topic").isin(*step.topics) if step.topics else f.lit(False)
        if step.patterns:
            mine = mine | (~is_named & _is_matched(plan, step))
        found = f.concat(found, f.when(mine, own).otherwise(nowhere))
    for stage in shared:
        every = f.array(
            *(_address(stage.number, f.lit(task)) for task in range(plan.task_count(stage)))
        )
        mine = f.col("topic").isin(*stage.global_topics)
        found = f.concat(found, f.when(mine, every).otherwise(nowhere))
    return found


def _is_matched(plan: Plan, step: Stage | Path) -> Column:
    """Return whether a topic that no source names is one of a step's patterns."""
    sources = plan.topology.patterns()
    if len(sources) == 1:  # all that is subscribed
        return f.lit(True)
    udf: Any = arrow_udf  # its stubs require the function's type, its code warns of it
    source = udf(source_names(sources), "string")(f.col("topic"))
    return f.coalesce(source.isin(*(one.name for one in step.patterns)), f.lit(False))


def _address(number: int, task: Column) -> Column:
    return f.struct(f.lit(number).alias("stage"), task.alias("task"))


def _run(work: StageWork, rows: DataFrame) -> DataFrame:
    stage = work.stage
    if not stage.is_stateful:
        return rows.mapInArrow(StatelessStage(work), FLOW)
    if work.inputs:
        rows = rows.mapInArrow(Combiner(work.config, work.inputs), FLOW)
    # rows of other stages pass, under keys of their own
    others = -1 - f.pmod(f.col("origin"), f.lit(64))
    own = f.col("stage").isin(*stage.addresses)
    run = f.when(own, f.col("task")).otherwise(others).alias("run")
    # Spark puts the time that its checkpoint has for the micro-batch in place of the current one
    now = f.unix_millis(f.current_timestamp()).alias(BATCH_TIME)
    keyed = rows.select(*FIELDS, now, run)
    return keyed.groupBy("run").transformWithState(StageProcessor(work), FLOW, "append", "None")


def source_names(sources: Sequence[SourceNode]) -> Callable[[pa.Array], pa.Array]:
    """Return what finds the sources that match topics, over an Arrow column of their names."""

    def find(topics: pa.Array) -> pa.Array:
        encoded = topics.dictionary_encode()
        found = [matching(topic, sources) for topic in encoded.dictionary.to_pylist()]
        names = pa.array([None if one is None else one.name for one in found], pa.string())
        return names.take(encoded.indices)

    return find

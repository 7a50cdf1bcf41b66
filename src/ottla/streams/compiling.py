"""Compiles a plan of stages to data frames.

Kafka: org.apache.kafka.streams.processor.internals.StreamThread; Spark: the query's logical plan.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from ottla.streams.columns.combining import Combiner
from ottla.streams.columns.compiling import find_serdes, run_paths
from ottla.streams.columns.inputs import find_inputs
from ottla.streams.columns.paths import Path
from ottla.streams.progress import OBSERVED
from ottla.streams.spark_tasks import FIELDS, FLOW, StageProcessor, StatelessStage
from ottla.streams.stages import OUTPUT, Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.streams.stages import StagePlan


def compile_plan(plan: StagePlan, records: DataFrame) -> DataFrame:
    """Return the records that a topology writes, in the columns of the sink."""
    find_serdes(plan)
    rows = _as_flow(plan, records)
    if rows.isStreaming:
        rows = rows.observe(OBSERVED, f.max("timestamp").alias("stream_time_ms"))
    for _, group in groupby(plan.steps, _group):
        first, *others = group
        if isinstance(first, Stage):
            rows = _run(plan, first, rows)
        else:
            paths = [first, *(one for one in others if isinstance(one, Path))]
            rows = run_paths(plan, paths, rows)
    written = rows.where(f.col("stage") == OUTPUT)
    return written.select(
        "key",
        "value",
        "topic",
        f.when(f.col("partition") >= 0, f.col("partition")).alias("partition"),
        f.timestamp_millis("timestamp").alias("timestamp"),
        "headers",
    )


def _group(step: Stage | Path) -> tuple[bool, tuple[int, int]]:
    """Return what the paths have in common that run together: sub-topology and level."""
    is_path = isinstance(step, Path)
    return is_path, (step.part, step.level) if isinstance(step, Path) else (step.number, 0)


def _as_flow(plan: StagePlan, records: DataFrame) -> DataFrame:
    """Address each record of the source to the tasks that read it."""
    topic: Column = f.col("topic")
    for name, real in plan.real_topics.items():
        topic = f.when(f.col("topic") == real, f.lit(name)).otherwise(topic)
    readers = [step for step in plan.steps if step.topics]
    shared = [stage for stage in plan.stages if stage.global_topics]
    rows = records.withColumn("topic", topic)
    if len(readers) == 1 and not shared:
        rows = rows.withColumn("target", _address(readers[0].number, f.col("partition")))
    else:
        rows = rows.withColumn("target", f.explode(_targets(readers, shared)))
    return rows.select(
        f.col("target.stage").alias("stage"),
        f.col("target.task").alias("task"),
        f.col("partition").alias("origin"),
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        f.unix_millis("timestamp").alias("timestamp"),
        f.coalesce("headers", f.array().cast(FLOW.rpartition("headers ")[2])).alias("headers"),
    )


def _targets(readers: list[Stage | Path], shared: list[Stage]) -> Column:
    """Return an array of addresses for each record: several for a global topic."""
    nowhere = f.array().cast("array<struct<stage:int,task:int>>")
    found = nowhere
    for step in readers:
        own = f.array(_address(step.number, f.col("partition")))
        found = f.concat(found, f.when(f.col("topic").isin(*step.topics), own).otherwise(nowhere))
    for stage in shared:
        every = f.array(*(_address(stage.number, f.lit(task)) for task in range(stage.tasks)))
        mine = f.col("topic").isin(*stage.global_topics)
        found = f.concat(found, f.when(mine, every).otherwise(nowhere))
    return found


def _address(number: int, task: Column) -> Column:
    return f.struct(f.lit(number).alias("stage"), task.alias("task"))


def _run(plan: StagePlan, stage: Stage, rows: DataFrame) -> DataFrame:
    if not stage.is_stateful:
        return rows.mapInArrow(StatelessStage(plan, stage), FLOW)
    stage.inputs = find_inputs(plan, stage)
    if stage.inputs:
        rows = rows.mapInArrow(Combiner(plan.topology.config, stage.inputs), FLOW)
    # rows of other stages pass, under keys of their own
    others = -1 - f.pmod(f.col("origin"), f.lit(64))
    own = f.col("stage").isin(*stage.addresses)
    keyed = rows.select(*FIELDS, f.when(own, f.col("task")).otherwise(others).alias("run"))
    return keyed.groupBy("run").transformWithState(
        StageProcessor(plan, stage), FLOW, "append", "None"
    )

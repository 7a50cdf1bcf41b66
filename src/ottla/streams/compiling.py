"""Compiles a plan of stages to data frames.

Kafka: org.apache.kafka.streams.processor.internals.StreamThread; Spark: the query's logical plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from ottla.streams.spark_tasks import FIELDS, FLOW, OUTPUT, StageProcessor, StatelessStage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.streams.stages import Stage, StagePlan


def compile_plan(plan: StagePlan, records: DataFrame) -> DataFrame:
    """Return the records that a topology writes, in the columns of the sink."""
    rows = _as_flow(plan, records)
    for stage in plan.stages:
        rows = _run(plan, stage, rows)
    written = rows.where(f.col("stage") == OUTPUT)
    return written.select(
        "key",
        "value",
        "topic",
        f.when(f.col("partition") >= 0, f.col("partition")).alias("partition"),
        f.timestamp_millis("timestamp").alias("timestamp"),
        "headers",
    )


def _as_flow(plan: StagePlan, records: DataFrame) -> DataFrame:
    """Address each record of the source to the tasks that read it."""
    names = {real: name for name, real in plan.real_topics.items()}
    topic: Column = f.col("topic")
    for real, name in names.items():
        topic = f.when(f.col("topic") == real, f.lit(name)).otherwise(topic)
    return (
        records.withColumn("topic", topic)
        .withColumn("target", f.explode(_targets(plan)))
        .select(
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
    )


def _targets(plan: StagePlan) -> Column:
    """Return an array of stage and task for each record: several for a global topic."""
    found = f.array().cast("array<struct<stage:int,task:int>>")
    for stage in plan.stages:
        number = f.lit(stage.number)
        own = f.array(f.struct(number.alias("stage"), f.col("partition").alias("task")))
        all_tasks = f.array(
            *(
                f.struct(number.alias("stage"), f.lit(task).alias("task"))
                for task in range(stage.tasks)
            )
        )
        found = f.concat(
            found,
            f.when(f.col("topic").isin(stage.topics), own)
            .when(f.col("topic").isin(stage.global_topics), all_tasks)
            .otherwise(f.array().cast("array<struct<stage:int,task:int>>")),
        )
    return found


def _run(plan: StagePlan, stage: Stage, rows: DataFrame) -> DataFrame:
    if not stage.is_stateful:
        return rows.mapInArrow(StatelessStage(plan, stage), FLOW)
    # rows of other stages pass, under keys of their own
    others = -1 - f.pmod(f.col("origin"), f.lit(64))
    own = f.col("stage") == stage.number
    keyed = rows.select(*FIELDS, f.when(own, f.col("task")).otherwise(others).alias("run"))
    return keyed.groupBy("run").transformWithState(
        StageProcessor(plan, stage), FLOW, "append", "None"
    )

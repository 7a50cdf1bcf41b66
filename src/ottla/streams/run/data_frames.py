"""Compiles a plan, its stages and its paths of columns, to data frames.

Kafka: org.apache.kafka.streams.processor.internals.StreamThread; Spark: the query's logical plan.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from ottla.spark.writing import STATE_DIGEST, data_and_offsets, partitions_for_keys
from ottla.streams.columns.combining import Combiner
from ottla.streams.columns.failures import FAILED, FailedRows, after_attempt, attempt
from ottla.streams.columns.frames import INVALID, encoded, run_step, serdes_of, typed
from ottla.streams.columns.operators import ColumnOperator, TypedInput
from ottla.streams.config import PREFIX, log_and_continue, log_and_fail
from ottla.streams.plan.paths import PICKLED, Entry, Path, is_key_filter
from ottla.streams.plan.plan import DIGEST, FIELDS, FLOW, OUTPUT, Stage
from ottla.streams.run.progress import OBSERVED
from ottla.streams.run.spark_tasks import BATCH_TIME, StageProcessor, StageWork, StatelessStage
from ottla.streams.run.task import unknown_count
from ottla.streams.topology.topology import matching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from ottla.streams.config import StreamsConfig
    from ottla.streams.plan.plan import Plan
    from ottla.streams.topology.topology import ProcessorNode, SinkNode, SourceNode


_CHANGED: Final = ("stage", "origin", "topic", "partition", "key", "value", "headers")
"""What a path changes of a row."""
_BY_KEY: Final = -2
"""The partition of rows whose key decides on it."""


def run_paths(
    plan: Plan, paths: list[Path], rows: DataFrame
) -> tuple[DataFrame, dict[int, TypedInput]]:
    """Return the rows with those of paths processed, and addressed to where they lead.

    With them the serdes of what enters stages, by port: Spark's analysis finds the types.

    The paths do not lead to each other. All read the same columns and write others, so that
    expressions grow with the number of paths, not with its power.
    """
    raw = {"key": "_raw_key", "value": "_raw_value"}
    frame = rows.select(
        *(f.col(name).alias(raw.get(name, name)) for name in FIELDS),
        *(f.col(name).alias(_out(name)) for name in _CHANGED),
    )
    entry_serdes: dict[int, TypedInput] = {}
    for path in paths:
        frame, serdes = _run_path(plan, path, frame)
        if isinstance(path.end, Entry):
            entry_serdes[path.end.port] = serdes
    found = frame.select(
        *(f.col(_out(one) if one in _CHANGED else one).alias(one) for one in FIELDS)
    )
    config = plan.topology.config
    if config.processing_exception_handler is not log_and_fail:
        found = found.mapInArrow(FailedRows(config, list(plan.topology.nodes)), found.schema)
    for path in paths:
        found = _with_partitions(plan, path, found)
    return found, entry_serdes


def _out(name: str) -> str:
    return f"_out_{name}"


def _run_path(plan: Plan, path: Path, frame: DataFrame) -> tuple[DataFrame, TypedInput]:
    """Return the frame with a path's rows at its end, and the serdes that they have there."""
    mine = f.col("stage") == path.number
    config = plan.topology.config
    serdes = path.serdes(config)
    if serdes.key is PICKLED:
        assert isinstance(path.end, Entry)
        return _changed(frame, {"stage": f.lit(path.end.port)}, mine), serdes
    frame, mine = _checked(path, _decoded(frame, serdes, mine), mine, config)
    for node in path.nodes:
        if isinstance(node.supplier, ColumnOperator):
            frame, mine = _run_operator(plan, path, node, frame, mine)
        elif is_key_filter(node.supplier):
            frame = frame.where(~mine | f.col("key").isNotNull())
    if isinstance(path.end, Entry):
        serdes = serdes_of(frame)
        changes = {**encoded(frame, *serdes, path.end.child), "stage": f.lit(path.end.port)}
    else:
        changes = _to_sink(plan, path.end, frame)
    return _changed(frame, changes, mine), serdes


def _run_operator(
    plan: Plan, path: Path, node: ProcessorNode, frame: DataFrame, mine: Column
) -> tuple[DataFrame, Column]:
    """Return the frame after an operator, and which rows are still the path's.

    Rows that it cannot process are addressed to the handler, by one of the paths that share it.
    """
    step = node.supplier.step
    is_handled = plan.topology.config.processing_exception_handler is not log_and_fail
    tried = attempt(step) if is_handled else None
    if tried is None:
        return run_step(frame, step, mine), mine
    number = list(plan.topology.nodes).index(node.name)
    name = f"_tried_{path.number}_{number}"
    frame = frame.withColumn(name, f.when(mine, tried))
    has_failed = mine & f.col(name).isNull()
    if node.name in path.reported:
        frame = _changed(frame, {"stage": f.lit(FAILED - number)}, has_failed)
    else:
        frame = frame.where(~has_failed)
    mine = mine & f.col(name).isNotNull()
    return run_step(frame, after_attempt(step, name), mine), mine


def _decoded(frame: DataFrame, serdes: TypedInput, mine: Column) -> DataFrame:
    """Return a frame with typed keys and values.

    Conditions on them are not pushed below `explode`: there they would be parsed another time.
    """
    raw = (f.when(mine, f.col("_raw_key")), f.when(mine, f.col("_raw_value")))
    columns = typed(*raw, serdes)
    one = f.struct(*(column.alias(name) for name, column in columns.items()))
    frame = frame.withColumn("_typed", f.explode(f.array(one)))
    return frame.withColumns({name: f.col("_typed").getField(name) for name in columns})


def _changed(frame: DataFrame, changes: Mapping[str, Column], mine: Column) -> DataFrame:
    """Return the frame with changes in the rows of a path."""
    return frame.withColumns(
        {
            _out(name): f.when(mine, column).otherwise(f.col(_out(name)))
            for name, column in changes.items()
        }
    )


def _to_sink(plan: Plan, sink: SinkNode, frame: DataFrame) -> dict[str, Column]:
    config, topic = plan.topology.config, str(sink.topic)
    key, value = sink.key or config.default_key_serde, sink.value or config.default_value_serde
    readers = plan.readers(topic)
    is_within = readers != [OUTPUT]
    return {
        **encoded(frame, key, value, sink.name),
        "topic": f.lit(plan.real_topics.get(topic, topic)),
        "partition": f.lit(_BY_KEY if is_within or topic in plan.real_topics else -1),
        "origin": f.col("task"),
        # rows for several readers are multiplied once their partition is known
        "stage": f.lit(readers[0]),
    }


def _checked(
    path: Path, frame: DataFrame, mine: Column, config: StreamsConfig
) -> tuple[DataFrame, Column]:
    """Apply the deserialization handler to what the columns' types do not fit."""
    if path.source is None:
        return frame, mine
    taken = f.col("timestamp") >= 0
    if config.deserialization_exception_handler is not log_and_continue:
        text = f.format_string(
            "StreamsException: a record does not have the form of its serdes: "
            "topic=%s, partition=%s, offset=%s",
            "topic",
            "partition",
            "offset",
        )
        failed = f.raise_error(text).cast("boolean")
        return frame.where(~mine | f.when(f.col(INVALID), failed).otherwise(taken)), mine
    topic = config.errors_dead_letter_queue_topic_name
    if topic is None or not path.reports_errors:
        return frame.where(~mine | (~f.col(INVALID) & taken)), mine
    letters = {
        "headers": f.concat(f.col("headers"), _reasons()),
        "topic": f.lit(topic),
        "partition": f.lit(-1),
        "stage": f.lit(OUTPUT),
    }
    kept = frame.where(~mine | f.col(INVALID) | taken)
    return _changed(kept, letters, mine & f.col(INVALID)), mine & ~f.col(INVALID)


def _reasons() -> Column:
    """Return the headers of a dead letter."""
    reasons: dict[str, Any] = {
        "exception": f.lit("ottla.streams.errors.SerializationException"),
        "stacktrace": f.lit(""),
        "message": f.lit("a record does not have its serdes' form"),
        "topic": f.col("topic"),
        "partition": f.col("partition").cast("string"),
        "offset": f.col("offset").cast("string"),
    }
    return f.array(
        *(
            f.struct(f.lit(PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in reasons.items()
        )
    )


# ---------------------------------------------------------------- partitions of internal topics


def _with_partitions(plan: Plan, path: Path, rows: DataFrame) -> DataFrame:
    """Return the rows with partitions by key, where a path writes to an internal topic."""
    if isinstance(path.end, Entry):
        return rows
    topic = str(path.end.topic)
    if topic not in plan.topology.internal_topics:
        return rows
    rows = rows.mapInArrow(KeyPartitions(plan.partitions[topic]), rows.schema)
    readers = plan.readers(topic)
    if len(readers) == 1:
        return rows
    mine = f.col("topic") == topic
    own = f.when(mine, f.array(*map(f.lit, readers))).otherwise(f.array("stage"))
    return rows.withColumn("stage", f.explode(own))


class KeyPartitions:
    """Finds Kafka's partitions of keys, over Arrow batches."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Set the partition, and the task, of rows whose key decides."""
        for batch in batches:
            places = np.asarray(batch.column("partition").fill_null(-1)).copy()
            tasks = np.asarray(batch.column("task")).copy()
            mine = places == _BY_KEY
            keys = batch.column("key")
            found = partitions_for_keys(*data_and_offsets(keys), self._count)
            has_key = np.asarray(keys.is_valid())
            places[mine] = np.where(has_key, found, -1)[mine]
            tasks[mine] = np.where(has_key, found, 0)[mine]
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns["partition"] = pa.array(places, pa.int32())
            columns["task"] = pa.array(tasks, pa.int32())
            yield pa.RecordBatch.from_arrays(
                [columns[field.name].cast(field.type) for field in batch.schema],
                schema=batch.schema,
            )


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
    return f.coalesce(source.isin(*(pattern.name for pattern in step.patterns)), f.lit(False))


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

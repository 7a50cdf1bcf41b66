"""Combines the records of a micro-batch by task, key and window before they reach their stage.

Kafka: org.apache.kafka.streams.state.internals.{CachingKeyValueStore, CachingWindowStore}.
Hot path: benchmarks/streams.py. Arrow and numpy do the work; Python sees keys, not records.

A stage takes part if all that comes in goes to counts, or to aggregates of columns: then the order
of its records matters only by their timestamps.

What comes out is a part: the counts, sums and extremes of some records of a key, and their latest
timestamp. Late records are left out, as in Kafka record by record: a task takes the records of its
queues by their timestamps, so that the stream time at a record is that of its own queue so far, or
the one before the micro-batch, by which the stage checks the parts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyspark.sql import types as t

from ottla.spark.processes import note_use
from ottla.streams.columns.failures import raw_record, rows_of_letters
from ottla.streams.columns.operators import TypedInput
from ottla.streams.config import handled
from ottla.streams.data.windows import TimeWindows
from ottla.streams.errors import SerializationException
from ottla.streams.plan.paths import PICKLED
from ottla.streams.processors.aggregates import StreamAggregate
from ottla.streams.processors.windowed import TimeWindowAggregate
from ottla.streams.topology.topology import ProcessorNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ottla.streams.config import StreamsConfig
    from ottla.streams.data.records import RawRecord
    from ottla.streams.data.serdes import Serde
    from ottla.streams.plan.plan import Stage
    from ottla.streams.processors.aggregates import Fold
    from ottla.streams.topology.topology import Node, Topology


_KEYS: Final = ["task", "key", "start"]
_OPERAND: Final = "operand_"
_NO_WINDOW: Final = -1


class CombiningTarget(NamedTuple):
    """An aggregation that records go to."""

    node: str
    fold: Fold
    windows: TimeWindows | None
    kinds: tuple[tuple[str, Any], ...]
    """The names and types of the operands."""


class Input(NamedTuple):
    """Where records come in: a topic, or a port without a topic."""

    stage: int
    topic: str
    source: str
    key: Serde
    value: Serde
    is_checked: bool
    """Whether its bytes may be of another form."""
    targets: tuple[CombiningTarget, ...]


class Combiner:
    """Combines the rows of one Spark task; rows of other stages pass through."""

    def __init__(self, config: StreamsConfig, inputs: Sequence[Input]) -> None:
        self._config, self._inputs = config, inputs

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what passes, then the parts; earlier if they are larger than the cache."""
        note_use()
        schema = None
        parts = Parts(self._inputs)
        for batch in batches:
            schema = batch.schema
            mine = np.isin(batch.column("stage"), [input_.stage for input_ in self._inputs])
            if not mine.all():
                yield batch.filter(pa.array(~mine))
                batch = _where(batch, mine)  # noqa: PLW2901 - what is left of it
            letters = self._add(parts, batch)
            if letters:
                yield rows_of_letters(letters, schema)
            if parts.size_bytes > self._config.statestore_cache_max_bytes:
                yield from parts.taken(schema)
        if schema is not None:
            yield from parts.taken(schema)

    def _add(self, parts: Parts, batch: pa.RecordBatch) -> list[RawRecord]:
        letters: list[RawRecord] = []
        for number, one in enumerate(self._inputs):
            rows = batch
            if len(self._inputs) > 1:
                mine = np.asarray(pc.equal(batch.column("stage"), one.stage))
                if one.topic:
                    mine &= np.asarray(pc.equal(batch.column("topic"), one.topic))
                rows = _where(batch, mine)
            if one.is_checked:
                rows, found = self._checked(one, rows)
                letters += found
            has_key = np.asarray(rows.column("key").is_valid())
            parts.add(number, _where(rows, has_key & (np.asarray(rows.column("timestamp")) >= 0)))
        return letters

    def _checked(self, one: Input, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[RawRecord]]:
        """Return the rows that the serdes can read, and the dead letters of the others."""
        errors = {
            **_unreadable(one.value, rows.column("value")),
            **_unreadable(one.key, rows.column("key")),
        }
        if not errors:
            return rows, []
        letters = []
        for row in sorted(errors):
            handler = self._config.deserialization_exception_handler
            raw = raw_record(rows, row)
            letter = handled(self._config, handler, one.source, raw, errors[row])
            if letter is not None:
                letters.append(letter)
        kept = np.ones(rows.num_rows, np.bool_)
        kept[list(errors)] = False
        return _where(rows, kept), letters


class Parts:
    """What the rows so far make, for each input and target."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._tables: dict[tuple[int, int], list[pa.Table]] = {}
        self._latest: dict[tuple[int, int, int], int] = {}
        """The highest timestamp of each queue: input, task, origin."""
        self._count = 0
        self.size_bytes = 0

    def add(self, number: int, rows: pa.RecordBatch) -> None:
        """Add rows of an input, which have keys."""
        if not rows.num_rows:
            return
        times = self._stream_times(number, rows)
        order = np.arange(self._count, self._count + rows.num_rows)
        self._count += rows.num_rows
        for index, target in enumerate(self._inputs[number].targets):
            table = _grouped(target, _expanded(target, rows, times, order))
            self._tables.setdefault((number, index), []).append(table)
            self.size_bytes += table.nbytes

    def taken(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield all parts as rows, and forget them."""
        for (number, index), tables in sorted(self._tables.items()):
            source = self._inputs[number]
            target = source.targets[index]
            table = _as_parts(number, source, target, _merged(target, tables), schema)
            yield from table.combine_chunks().to_batches()
        self._tables.clear()
        self.size_bytes = 0

    def _stream_times(self, number: int, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the highest timestamp of each row's queue up to it."""
        times = np.asarray(rows.column("timestamp"))
        tasks, origins = np.asarray(rows.column("task")), np.asarray(rows.column("origin"))
        queues = tasks.astype(np.int64) << 32 | origins.astype(np.int64)
        found = np.empty_like(times)
        for queue in np.unique(queues):
            mine = np.flatnonzero(queues == queue)
            key = (number, int(tasks[mine[0]]), int(origins[mine[0]]))
            risen = np.maximum.accumulate(times[mine])
            found[mine] = np.maximum(risen, self._latest.get(key, -1))
            self._latest[key] = int(found[mine[-1]])
        return found


def _expanded(
    target: CombiningTarget,
    rows: pa.RecordBatch,
    times: NDArray[np.int64],
    order: NDArray[np.int64],
) -> pa.Table:
    """Return a row for each record and window that it is not late for."""
    stamps = np.asarray(rows.column("timestamp"))
    columns = {
        "task": rows.column("task"),
        "key": rows.column("key"),
        "timestamp": rows.column("timestamp"),
        "row": pa.array(order),
        "headers": rows.column("headers"),
        **_operands(target, rows.column("value")),
    }
    if target.windows is None:
        starts = np.full(len(stamps), _NO_WINDOW)
        found = pa.table({**columns, "start": pa.array(starts)})
        return found.filter(rows.column("value").is_valid())
    size, advance = target.windows.size_ms, target.windows.advance_ms
    tables = []
    for back in reversed(range(-(-size // advance))):
        starts = (stamps // advance - back) * advance
        ends = starts + size
        is_in = (starts >= 0) & (ends > stamps) & (ends > times - target.windows.grace_ms)
        made = pa.table({**columns, "start": pa.array(starts)})
        tables.append(made if is_in.all() else made.filter(pa.array(is_in)))
    return pa.concat_tables(tables)


def _operands(target: CombiningTarget, values: pa.Array) -> dict[str, pa.Array]:
    """Return the operands that values hold as JSON."""
    if not target.kinds:
        return {}
    schema = pa.schema(list(target.kinds))
    lines = b"\n".join(one or b"{}" for one in values.to_pylist())
    try:
        table = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(block_size=len(lines) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:  # NaN and infinities, which Spark writes as text
        rows = [_floats(target, json.loads(line)) for line in lines.split(b"\n")]
        table = pa.Table.from_pylist(rows, schema=schema)
    return {_OPERAND + name: table.column(name).combine_chunks() for name, _ in target.kinds}


def _floats(target: CombiningTarget, row: dict[str, Any]) -> dict[str, Any]:
    for name, kind in target.kinds:
        if isinstance(row.get(name), str) and pa.types.is_floating(kind):
            row[name] = float(row[name])
    return row


def _grouped(target: CombiningTarget, table: pa.Table) -> pa.Table:
    """Return a row for each task, key and window."""
    functions = [(_OPERAND + name, target.fold.functions[name]) for name, _ in target.kinds]
    found = table.group_by(_KEYS, use_threads=False).aggregate(
        [("timestamp", "max"), ("row", "max"), ([], "count_all"), *functions]
    )
    return _renamed(found, table, functions)


def _merged(target: CombiningTarget, tables: list[pa.Table]) -> pa.Table:
    """Return the parts of several batches as one for each task, key and window."""
    table = pa.concat_tables(tables)
    if len(tables) == 1:
        return table
    functions = [(_OPERAND + name, target.fold.functions[name]) for name, _ in target.kinds]
    found = table.group_by(_KEYS, use_threads=False).aggregate(
        [("timestamp", "max"), ("row", "max"), ("count_all", "sum"), *functions]
    )
    return _renamed(found, table, functions)


def _renamed(found: pa.Table, rows: pa.Table, functions: list[tuple[str, str]]) -> pa.Table:
    """Return aggregated rows under the names of their input, with the last record's headers."""
    counts = found.column("count_all_sum" if "count_all_sum" in found.column_names else "count_all")
    numbers = np.asarray(rows.column("row"))
    order = np.argsort(numbers, kind="stable")
    last = order[np.searchsorted(numbers, np.asarray(found.column("row_max")), sorter=order)]
    return pa.table(
        {
            **{name: found.column(name) for name in _KEYS},
            "timestamp": found.column("timestamp_max"),
            "row": found.column("row_max"),
            "count_all": counts,
            "headers": rows.column("headers").take(pa.array(last)),
            **{name: found.column(f"{name}_{function}") for name, function in functions},
        }
    )


def _as_parts(
    number: int, source: Input, target: CombiningTarget, table: pa.Table, schema: pa.Schema
) -> pa.Table:
    """Return parts as rows: the input's number is their partition, the node their topic."""
    names = [
        "count_all" if function == "count" else _OPERAND + name
        for name, function in target.fold.functions.items()
    ]
    columns = [table.column(name).to_pylist() for name in ("start", *names)]
    values = [json.dumps(row).encode() for row in zip(*columns, strict=True)]
    count = table.num_rows
    made = {
        "stage": pa.array(np.full(count, source.stage)),
        "task": table.column("task"),
        "origin": pa.array(np.zeros(count, np.int32)),
        "topic": pa.array([target.node] * count, pa.string()),
        "partition": pa.array(np.full(count, number)),
        "offset": table.column("row"),
        "key": table.column("key"),
        "value": pa.array(values, pa.binary()),
        "timestamp": table.column("timestamp"),
        "headers": table.column("headers"),
    }
    columns = [made[field.name].cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _unreadable(serde: Serde, data: pa.Array) -> dict[int, SerializationException]:
    """Return the errors of the rows that a serde cannot read."""
    if serde.name == "bytes":
        return {}
    if serde.name == "string":
        try:
            data.cast(pa.string())
        except pa.ArrowInvalid:
            pass  # found below, row by row
        else:
            return {}
    found: dict[int, SerializationException] = {}
    for row, one in enumerate(data.to_pylist()):
        try:
            serde.deserialize(one)
        except SerializationException as error:
            found[row] = error
    return found


def _where(rows: pa.RecordBatch, mask: NDArray[np.bool_]) -> pa.RecordBatch:
    return rows if mask.all() else rows.filter(pa.array(mask))


_KINDS: Final[dict[type, Any]] = {
    t.ByteType: pa.int64(),
    t.ShortType: pa.int64(),
    t.IntegerType: pa.int64(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float64(),
    t.DoubleType: pa.float64(),
    t.StringType: pa.string(),
}


def combined_inputs(
    topology: Topology, stage: Stage, serdes_of: Mapping[int, TypedInput]
) -> tuple[Input, ...]:
    """Return a stage's inputs by source topic and port; none if one cannot be combined.

    `serdes_of` has the serdes of its entries by port.
    """
    config = topology.config
    if not config.statestore_cache_max_bytes or stage.global_topics or stage.has_users:
        return ()
    if stage.patterns:  # a queue is that of a topic's partition: topics must be known
        return ()
    found: list[Input | None] = []
    sources = [node for node in stage.nodes if isinstance(node, SourceNode)]
    for source in sources:
        children = [one for one in topology.children(source.name) if one in stage.nodes]
        serdes = TypedInput(
            source.key or config.default_key_serde, source.value or config.default_value_serde
        )
        for topic in source.topics:
            is_own = topic in topology.internal_topics
            place = (stage.number, topic, source.name)
            made = _input(topology, place, serdes, children, is_checked=not is_own)
            found.append(None if source.timestamp_extractor is not None else made)
    for port, entry in stage.entries.items():
        child = topology.nodes[entry.child]
        place = (port, "", entry.parent)
        found.append(_input(topology, place, serdes_of[port], [child], is_checked=False))
    complete = tuple(item for item in found if item is not None)
    return complete if len(complete) == len(found) else ()


def _input(
    topology: Topology,
    place: tuple[int, str, str],
    serdes: TypedInput,
    children: list[Node],
    *,
    is_checked: bool,
) -> Input | None:
    targets = [_target(topology, child, serdes) for child in children]
    complete = tuple(target for target in targets if target is not None)
    if not complete or len(complete) < len(targets):
        return None
    return Input(*place, serdes.key, serdes.value, is_checked, complete)


def _target(topology: Topology, node: Node, serdes: TypedInput) -> CombiningTarget | None:
    if not isinstance(node, ProcessorNode):
        return None
    processor = node.supplier
    if not isinstance(processor, (StreamAggregate, TimeWindowAggregate)) or processor.fold is None:
        return None
    stores = [topology.stores[name] for name in node.stores]
    if any(store.kind == "versioned" or store.max_entries is not None for store in stores):
        return None  # its history has each update, or its order each use
    windows = None
    if isinstance(processor, TimeWindowAggregate):
        if not isinstance(processor.windows, TimeWindows):
            return None
        windows = processor.windows
    kinds = _kinds(processor.fold)
    if kinds is None or (kinds and serdes.value is PICKLED):
        return None
    return CombiningTarget(node.name, processor.fold, windows, kinds)


def _kinds(fold: Fold) -> tuple[tuple[str, pa.DataType], ...] | None:
    """Return the types of the operands; None where there is one that is not combined."""
    if fold.operator is None:
        return ()
    schema = fold.operator.outputs.value.schema
    found = tuple((field.name, _KINDS.get(type(field.dataType))) for field in schema.fields)
    return None if any(kind is None for _, kind in found) else found

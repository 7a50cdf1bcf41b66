"""The processor of an operator with columns.

Kafka: kstream.internals.{KStreamFilter, KStreamMap, KStreamMapValues, KStreamFlatMapValues}.

Spark runs its step over whole micro-batches (`frames`); the pipeline driver, record by record, over
frames of one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.streams.data.records import RawRecord, Record
from ottla.streams.processors.processor import Processor

if TYPE_CHECKING:
    from ottla.streams.data.serdes import Serde


class TypedInput(NamedTuple):
    """The serdes of a key and a value that Spark knows the types of."""

    key: Serde
    value: Serde


@dataclass(frozen=True)
class Step:
    """What a processor does with a record: conditions, then new columns, then several records."""

    conditions: tuple[tuple[Any, bool], ...] = ()
    """Columns, and whether each has to be false."""
    key: Any = None
    value: Any = None
    values: Any = None
    """An array: a record for each of its values."""
    pairs: Any = None
    """An array of structs of a key and a value: a record for each."""


class ColumnOperator(Processor):
    """Runs a step; the input's types come from serdes, or from the operator before."""

    def __init__(
        self, step: Step, serdes: TypedInput | None, parent: ColumnOperator | None
    ) -> None:
        self.step = step
        self._serdes, self._parent = serdes, parent
        self._outputs: TypedInput | None = None

    def __copy__(self) -> ColumnOperator:
        """Return a processor of its own for a task of the driver."""
        made = ColumnOperator(self.step, self._serdes, self._parent)
        made._outputs = self._outputs
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return what workers get: they never run columns."""
        return {"step": None, "_serdes": None, "_parent": None, "_outputs": None}

    @property
    def serdes(self) -> TypedInput:
        """The serdes of the input."""
        if self._parent is not None:
            return self._parent.outputs
        assert self._serdes is not None
        return self._serdes

    @property
    def outputs(self) -> TypedInput:
        """The serdes of the output, which Spark's analysis finds."""
        if self._outputs is None:
            from ottla.streams.columns.frames import output_serdes

            self._outputs = output_serdes(self.step, self.serdes)
        return self._outputs

    def process(self, record: Record) -> None:
        """Process a record in a frame of its own."""
        from ottla.streams.columns.frames import run_one

        place = self.context.record_metadata()
        raw = RawRecord(
            "" if place is None else place.topic,
            self.serdes.key.serialize(record.key),
            self.serdes.value.serialize(record.value),
            record.timestamp,
            record.headers,
            None if place is None else place.partition,
            0 if place is None else place.offset,
        )
        key_serde, value_serde = self.outputs
        for key, value in run_one(self.step, self.serdes, raw):
            made = (key_serde.deserialize(key), value_serde.deserialize(value))
            self.context.forward(Record(*made, record.timestamp, record.headers))

"""Processors and transformers of users that must leave keys, or records, as they are.

Kafka: kstream.internals.{KTableTransformValues, KStreamProcessValues},
processor.internals.ForwardingDisabledProcessorContext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.errors import StreamsException
from ottla.streams.processor import Processor
from ottla.streams.processors.tables import ComputedView, TableMap, TableProcessor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.processor import ProcessorContext, ValueTransformer
    from ottla.streams.processors.tables import TableView
    from ottla.streams.records import Record, ValueAndTimestamp


class _Context:
    """A context without some of its methods."""

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _WithoutForward(_Context):
    def forward(self, record: Record, child: str | None = None) -> None:  # noqa: ARG002 - a context's
        raise StreamsException("a transformer of values cannot forward: it returns the value")


class _WithFixedKey(_Context):
    current: Record | None = None

    def forward(self, record: Record, child: str | None = None) -> None:
        if self.current is not None and record.key != self.current.key:
            raise StreamsException(
                f"process_values has changed the key {self.current.key!r} to {record.key!r}: its "
                "partition would be another one; process may change keys"
            )
        self._context.forward(record, child)


class FixedKeyProcessor(Processor):
    """Runs a processor of a user that leaves keys as they are."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def init(self, context: ProcessorContext) -> None:
        """Start the processor."""
        self._fixed = _WithFixedKey(context)
        self._processor.init(self._fixed)

    def process(self, record: Record) -> None:
        """Process a record."""
        self._fixed.current = record
        self._processor.process(record)
        self._fixed.current = None

    def close(self) -> None:
        """End the processor."""
        self._processor.close()


class FixedKeySupplier:
    """Makes processors of a user that leave keys as they are."""

    def __init__(self, supplier: Callable[[], Processor]) -> None:
        self._supplier = supplier
        self.stores = getattr(supplier, "stores", tuple)
        """Returns the stores that come with the processors."""

    def __call__(self) -> FixedKeyProcessor:
        """Return a new processor."""
        return FixedKeyProcessor(self._supplier())


def _made(supplier: Callable[[], ValueTransformer], context: ProcessorContext) -> ValueTransformer:
    made = supplier()
    made.init(_WithoutForward(context))
    return made


class TableTransform(TableMap):
    """Computes each row's value by a transformer, also that of a deleted row."""

    is_of_user = True

    def __init__(self, supplier: Callable[[], ValueTransformer], store: str | None) -> None:
        TableProcessor.__init__(self, store)
        self._supplier = supplier
        self._transformer: ValueTransformer | None = None

    def init(self, context: ProcessorContext) -> None:
        """Make the transformer."""
        super().init(context)
        self._transformer = _made(self._supplier, context)

    def close(self) -> None:
        """End the transformer."""
        if self._transformer is not None:
            self._transformer.close()

    def _value(self, key: Any, value: Any) -> Any:
        assert self._transformer is not None
        return self._transformer.transform(key, value)


class TransformedView(ComputedView):
    """The rows of another view, each value computed by a transformer of the reading task."""

    def __init__(self, parent: TableView, supplier: Callable[[], ValueTransformer]) -> None:
        self._parent, self._supplier = parent, supplier
        self._made: tuple[ProcessorContext, ValueTransformer] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def _value(self, context: ProcessorContext, key: Any, row: ValueAndTimestamp | None) -> Any:
        if self._made is None or self._made[0] is not context:
            self._made = (context, _made(self._supplier, context))
        return self._made[1].transform(key, None if row is None else row.value)

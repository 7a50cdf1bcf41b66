"""Processors of tables, and the processors and transformers of users that must leave keys.

Kafka: kstream.internals.{KTableSource, KTableFilter, KTableMapValues, KTableRepartitionMap,
KTableAggregate, KTableReduce, KTableValueGetter, KTableTransformValues, KStreamProcessValues},
processor.internals.ForwardingDisabledProcessorContext.

A table whose readers need old values has `sends_old_values`; the DSL sets it on the prototype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.streams.data.records import Change, Record, ValueAndTimestamp
from ottla.streams.errors import StreamsException
from ottla.streams.processors.processor import Processor
from ottla.streams.stores.key_value import VersionedStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.processors.processor import ProcessorContext, ValueTransformer


OUT_OF_ORDER: Final = "out-of-order row of a versioned table"


class TableView(Protocol):
    """How a processor reads a table: from a store, or computed from another view."""

    def stores(self) -> list[str]:
        """Return the names of the stores that are read."""

    def get(
        self, context: ProcessorContext, key: Any, as_of: int | None = None
    ) -> ValueAndTimestamp | None:
        """Return the row of a key; from a versioned store as of a time."""


class StoreView:
    """The rows of a store."""

    def __init__(self, name: str) -> None:
        self._name = name

    def stores(self) -> list[str]:
        """Return the names of the stores that are read."""
        return [self._name]

    def get(
        self, context: ProcessorContext, key: Any, as_of: int | None = None
    ) -> ValueAndTimestamp | None:
        """Return the row of a key; from a versioned store as of a time."""
        store = context.get_state_store(self._name)
        found: ValueAndTimestamp | None = (
            store.get(key, as_of) if isinstance(store, VersionedStore) else store.get(key)
        )
        return found


class WindowStoreView(StoreView):
    """The rows of a window store, by windowed key."""

    def get(
        self,
        context: ProcessorContext,
        key: Any,
        as_of: int | None = None,  # noqa: ARG002 - windows have no versions
    ) -> ValueAndTimestamp | None:
        """Return the row of a windowed key."""
        store = context.get_state_store(self._name)
        found: ValueAndTimestamp | None = store.get(key.key, key.window.start)
        return found


class SessionStoreView(StoreView):
    """The rows of a session store, by windowed key."""

    def get(
        self,
        context: ProcessorContext,
        key: Any,
        as_of: int | None = None,  # noqa: ARG002 - sessions have no versions
    ) -> ValueAndTimestamp | None:
        """Return the row of a windowed key."""
        store = context.get_state_store(self._name)
        found = store.fetch_session(key.key, key.window.start, key.window.end)
        return None if found is None else ValueAndTimestamp(found, key.window.end)


class ComputedView:
    """The rows of another view, each value computed by a function of key and value."""

    def __init__(self, parent: TableView, compute: Callable[[Any, Any], Any]) -> None:
        self._parent, self._compute = parent, compute

    def stores(self) -> list[str]:
        """Return the names of the stores that are read."""
        return self._parent.stores()

    def get(
        self, context: ProcessorContext, key: Any, as_of: int | None = None
    ) -> ValueAndTimestamp | None:
        """Return the computed row of a key."""
        found = self._parent.get(context, key, as_of)
        value = self._value(context, key, found)
        if value is None:
            return None
        return ValueAndTimestamp(value, -1 if found is None else found.timestamp)

    def _value(self, context: ProcessorContext, key: Any, row: ValueAndTimestamp | None) -> Any:  # noqa: ARG002 - a transformer's
        return None if row is None else self._compute(key, row.value)


class TableProcessor(Processor):
    """Base of processors that forward a table's changes, through a store if they have one."""

    sends_old_values = False

    def __init__(self, store: str | None) -> None:
        self.store_name = store
        self._store: Any = None

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        if self.store_name is not None:
            self._store = context.get_state_store(self.store_name)

    def update(self, record: Record, new: Any, old: Any, *, is_latest: bool | None = True) -> None:
        """Store a row, if it is to be stored, and forward the change."""
        if self._store is not None:
            is_latest = self._store.put_value(record.key, new, record.timestamp)
        if is_latest is not None:
            change = Change(new, old if self.sends_old_values else None, is_latest)
            self.context.forward(record.with_value(change))

    def stored(self, key: Any) -> Any:
        """Return the stored value of a key."""
        found = None if self._store is None else self._store.get(key)
        return None if found is None else found.value


class TableSource(TableProcessor):
    """Turns the records of a topic into rows."""

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is None:
            self.context.drop("null key of a table")
            return
        self.update(record, record.value, self.stored(record.key))


class TableMap(TableProcessor):
    """Computes each row's value by a function of key and value."""

    skips_nothing = False
    """Whether a change from nothing to nothing ends here."""

    def __init__(self, compute: Callable[[Any, Any], Any], store: str | None) -> None:
        super().__init__(store)
        self._compute = compute

    def process(self, record: Record) -> None:
        """Process a change."""
        change: Change = record.value
        new = self._value(record.key, change.new)
        old = None
        if self.sends_old_values:
            old = (
                self._value(record.key, change.old)
                if self._store is None
                else self.stored(record.key)
            )
        if self.skips_nothing and self.sends_old_values and old is None and new is None:
            return
        self.update(record, new, old, is_latest=change.is_latest)

    def _value(self, key: Any, value: Any) -> Any:
        return self._compute(key, value)


class TableFilter(TableMap):
    """Keeps rows that a function accepts."""

    def __init__(
        self, compute: Callable[[Any, Any], Any], store: str | None, *, is_versioned: bool = False
    ) -> None:
        super().__init__(compute, store)
        self.skips_nothing = not is_versioned


def filtering(predicate: Callable[[Any, Any], Any], *, negated: bool) -> Callable[[Any, Any], Any]:
    """Return a function that keeps the value of accepted rows."""

    def compute(key: Any, value: Any) -> Any:
        if value is None or bool(predicate(key, value)) == negated:
            return None
        return value

    return compute


def mapping(mapper: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function that maps values and leaves deletions."""
    return lambda key, value: None if value is None else mapper(key, value)


class Regroup(Processor):
    """Gives rows new keys: the old row leaves its group, the new one joins another."""

    def __init__(
        self, mapper: Callable[[Any, Any], tuple[Any, Any]], *, is_versioned: bool = False
    ) -> None:
        self._mapper, self._is_versioned = mapper, is_versioned

    def process(self, record: Record) -> None:
        """Process a change."""
        if self._is_versioned and not record.value.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        new = self._pair(record.key, record.value.new)
        old = self._pair(record.key, record.value.old)
        if old is not None and new is not None and old[0] == new[0]:
            self._send(record, old[0], Change(new[1], old[1]))
            return
        if old is not None:
            self._send(record, old[0], Change(None, old[1]))
        if new is not None:
            self._send(record, new[0], Change(new[1], None))

    def _pair(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        pair = None if value is None else self._mapper(key, value)
        return None if pair is None or pair[0] is None or pair[1] is None else pair

    def _send(self, record: Record, key: Any, change: Change) -> None:
        self.context.forward(record.with_key(key).with_value(change))


class TableAggregate(TableProcessor):
    """Aggregates regrouped rows: subtracts the old value, adds the new one.

    Without an initializer the first value is the aggregate (reduce).
    """

    def __init__(
        self,
        store: str,
        initializer: Callable[[], Any] | None,
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store)
        self._initializer, self._adder, self._subtractor = initializer, adder, subtractor

    def process(self, record: Record) -> None:
        """Process a change of a group's member."""
        if record.key is None:
            text = f"Record key for KTable operator with state {self.store_name} should not be null"
            raise StreamsException(text)
        found = self._store.get(record.key)
        old = None if found is None else found.value
        timestamp = record.timestamp
        change: Change = record.value
        aggregate = old
        if change.old is not None and old is not None:
            aggregate = self._subtractor(record.key, change.old, old)
            timestamp = max(timestamp, found.timestamp)
        if change.new is not None:
            aggregate = self._add(record.key, change.new, aggregate)
            if found is not None:
                timestamp = max(timestamp, found.timestamp)
        self.update(record.with_timestamp(timestamp), aggregate, old)

    def _add(self, key: Any, value: Any, aggregate: Any) -> Any:
        if aggregate is None:
            if self._initializer is None:
                return value
            aggregate = self._initializer()
        return self._adder(key, value, aggregate)


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

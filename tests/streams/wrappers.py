"""A wrapper for tests: counts the records of each processor in a store of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams import (
    Processor,
    ProcessorContext,
    ProcessorWrapper,
    Record,
    Serdes,
    Stores,
    WrappedProcessor,
)

if TYPE_CHECKING:
    from ottla.streams.stores.specs import StoreSpec


class Tally(ProcessorWrapper):
    """Adds a store to each processor."""

    application_id = ""

    def configure(self, configs: dict[str, Any]) -> None:
        """Take the application's id."""
        self.application_id = configs["application.id"]

    def wrap(self, name: str, processor: Processor) -> Processor:
        """Return what counts."""
        return Tallied(processor, f"seen-{name}", self.application_id)

    def stores(self, name: str) -> list[StoreSpec]:
        """Return the store of a processor."""
        return [Stores.key_value(f"seen-{name}", Serdes.string(), Serdes.long())]


class Tallied(WrappedProcessor):
    """Counts records under the application's id."""

    def __init__(self, wrapped: Processor, store: str, application_id: str) -> None:
        super().__init__(wrapped)
        self.name, self.application_id = store, application_id

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self.seen = context.get_state_store(self.name)

    def process(self, record: Record) -> None:
        """Count a record."""
        self.seen.put(self.application_id, (self.seen.get(self.application_id) or 0) + 1)
        super().process(record)

"""The Processor API: what a processor is, and what its context offers.

Kafka: org.apache.kafka.streams.processor.api.{Processor, ProcessorContext,
ProcessorWrapper}, Punctuator.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.streams.data.records import Record, RecordMetadata, TaskId
    from ottla.streams.data.serdes import Serde
    from ottla.streams.stores.specs import StoreSpec


class PunctuationType(Enum):
    """The clock of a punctuation."""

    STREAM_TIME = 0
    WALL_CLOCK_TIME = 1


class Cancellable(Protocol):
    """A punctuation that can be ended."""

    def cancel(self) -> None:
        """End the punctuation."""


class ProcessorContext(Protocol):
    """What a processor may use."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Send a record to all successors, or to one."""

    def get_state_store(self, name: str) -> Any:
        """Return a store that is connected to the processor."""

    def schedule(
        self,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        *,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Call a function with the time in regular intervals.

        Without a start they are aligned to 0 of stream time, or begin an interval from now by the
        wall clock. With one (KIP-1146) the first call is at that time, in ms since the epoch; if it
        is over, at the next time that is whole intervals later.
        """

    def application_id(self) -> str:
        """Return the application's id."""

    def task_id(self) -> TaskId:
        """Return the numbers of the sub-topology and of the partition."""

    def key_serde(self) -> Serde:
        """Return the application's default serde for keys."""

    def value_serde(self) -> Serde:
        """Return the application's default serde for values."""

    def app_configs(self) -> dict[str, Any]:
        """Return the settings of the application by Kafka's names."""

    def app_configs_with_prefix(self, prefix: str) -> dict[str, Any]:
        """Return the settings whose names start with a prefix, by the rest of their names."""

    def record_metadata(self) -> RecordMetadata | None:
        """Return where the current record came from; None in a punctuation."""

    def current_stream_time_ms(self) -> int:
        """Return the highest timestamp of the task's records."""

    def current_system_time_ms(self) -> int:
        """Return the wall clock's time; with Spark that of the micro-batch, repeated or not."""

    def memory(self) -> dict[str, int]:
        """Return numbers that last as long as the processor's stores.

        On Spark a stage without stores and without processors of users starts each time without
        them; the pipeline driver keeps them.
        """

    def shared_memory(self, name: str) -> dict[str, int]:
        """Return numbers that several processors of the task share."""

    def commit(self) -> None:
        """Do nothing: what is processed is committed with its micro-batch."""

    def drop(self, reason: str) -> None:
        """Count a record that is not processed, and log why."""


class ValueTransformer:
    """Computes the rows of a table (`KTable.transform_values`), with access to stores.

    One is made for each task, and on Spark for each micro-batch of a task.
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Take the context, which cannot forward; called once before the first row."""
        self.context = context

    def transform(self, key: Any, value: Any) -> Any:
        """Return the new value of a row; None deletes it. A deleted row's value is None."""
        raise NotImplementedError

    def close(self) -> None:
        """End; called once after the last row."""


class Processor:
    """Processes records one at a time.

    A new one is made for each task, and on Spark for each micro-batch of a task: what has to last
    belongs into stores.
    """

    context: ProcessorContext
    is_of_user = False
    """Of a prototype: whether it runs a class of a user."""

    def init(self, context: ProcessorContext) -> None:
        """Take the context; called once before the first record."""
        self.context = context

    def process(self, record: Record) -> None:
        """Process a record."""
        raise NotImplementedError

    def close(self) -> None:
        """End; called once after the last record."""


class ProcessorWrapper:
    """Wraps the processors of a topology, those of the DSL as well (KIP-1112).

    `StreamsConfig(processor_wrapper_class=)` names a class of this kind. One is made for each
    topology, and goes to the workers with it.
    """

    def configure(self, configs: dict[str, Any]) -> None:
        """Take the settings of the application by Kafka's names; called once."""

    def wrap(self, name: str, processor: Processor) -> Processor:  # noqa: ARG002 - for subclasses
        """Return what processes the records of a node: the processor, or one around it."""
        return processor

    def stores(self, name: str) -> Iterable[StoreSpec]:  # noqa: ARG002 - for subclasses
        """Return the stores that the wrapped processor of a node has besides its own."""
        return ()


class WrappedProcessor(Processor):
    """A processor around another one, to which it passes all: a base for those of wrappers."""

    def __init__(self, wrapped: Processor) -> None:
        self.wrapped = wrapped

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        super().init(context)
        self.wrapped.init(context)

    def process(self, record: Record) -> None:
        """Process a record."""
        self.wrapped.process(record)

    def close(self) -> None:
        """End."""
        self.wrapped.close()

"""The contract of connectors: Kafka's own, which runtimes call.

A connector divides its work into the settings of tasks; tasks move records. Calls of one task come
from one thread. Kafka: org.apache.kafka.connect.{connector, source, sink}.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ottla.config.definition import ConfigDefinitions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from ottla.config.definition import ConfigValue
    from ottla.connect.metrics import MBean
    from ottla.connect.records import SinkRecord, SourceRecord
    from ottla.types import TopicPartition


class ConnectorContext(Protocol):
    """The worker, as a connector sees it; calls may come from any thread."""

    def request_task_reconfiguration(self) -> None:
        """Ask for new settings of tasks, as a source has more or fewer parts than before."""

    def raise_error(self, error: Exception) -> None:
        """End the connector, which is FAILED then."""


class SourceConnectorContext(ConnectorContext, Protocol):
    """The worker, as a source connector sees it."""

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the stored offset of a part of the source, None without one."""


class Connector(ABC):
    """Divides the work of one configuration into tasks; an instance runs once."""

    version: ClassVar[str] = "0"
    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()
    """The settings beyond those of every connector."""
    task_class: ClassVar[type[Task]]
    runtime: ClassVar[str] = "process"
    """Where it runs unless `ottla.runtime` is set; `thread` is for code that cannot crash."""
    context: ConnectorContext
    """Set before `start`."""

    @abstractmethod
    def start(self, config: Mapping[str, str]) -> None:
        """Begin with a configuration whose settings were validated."""

    @abstractmethod
    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return the settings of each task, of at most so many."""

    def stop(self) -> None:  # noqa: B027 - many have nothing to release
        """Release what `start` took."""

    def validate(self, config: Mapping[str, str]) -> list[ConfigValue]:
        """Return value, errors and recommended values of each setting; may look at the source."""
        return self.definitions.validate(config)


class ExactlyOnceSupport(Enum):
    """Whether a source writes each record once, given its configuration."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"


class SourceConnector(Connector):
    """A connector that reads a source and writes topics."""

    context: SourceConnectorContext

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport | None:
        """Say whether records come once with this configuration; None says nothing."""
        del config
        return None

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> bool:
        """Whether tasks may commit and abort by `TransactionContext`."""
        del config
        return False

    def alter_offsets(
        self,
        config: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    ) -> bool:
        """Check offsets that an operator sets; raise for invalid ones, True if they were looked at.

        Parts of the source are sets of name and value; None forgets an offset.
        """
        del config, offsets
        return False


class SinkConnector(Connector):
    """A connector that reads topics and writes a sink."""

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Check offsets that an operator sets, as `SourceConnector.alter_offsets` does."""
        del config, offsets
        return False


class UniformSinkConnector(SinkConnector):
    """A sink whose tasks all have its own settings: their group divides the partitions."""

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings."""
        self._config = config

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return the connector's settings for each task."""
        return [self._config] * tasks_max

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Accept all: the sink's data say nothing about offsets."""
        del config, offsets
        return True


class Task(ABC):
    """One thread's share of a connector."""

    @abstractmethod
    def start(self, config: Mapping[str, str]) -> None:
        """Begin with the settings of this task."""

    def metrics(self) -> Sequence[MBean]:
        """Return metrics of the task's own for /metrics, from any thread, without waiting."""
        return ()

    def stop(self) -> None:  # noqa: B027 - many have nothing to release
        """Release what `start` took; comes once.

        Of sources it may come from another thread, during `poll`, which it ends.
        """


class TransactionContext(Protocol):
    """The transaction of a task whose connector sets the boundaries (`transaction.boundary`)."""

    def commit(self, record: SourceRecord | None = None) -> None:
        """Commit after this record of the next batch, or after the whole batch."""

    def abort(self, record: SourceRecord | None = None) -> None:
        """Abort after this record of the next batch, or after the whole batch."""


class SourceTaskContext(Protocol):
    """The worker, as a source task sees it."""

    config: Mapping[str, str]
    transaction: TransactionContext | None
    """None unless the connector sets the boundaries of transactions."""

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the stored offset of a part of the source, None without one."""

    def offsets(self, partitions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
        """Return the stored offsets of several parts, in their order."""


class SourceTask(Task):
    """Reads its parts of a source."""

    context: SourceTaskContext

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next records; waits for some time at most, and returns None without any."""

    def commit(self) -> None:
        """Hear that the offsets of all records returned so far may be stored by now."""

    def commit_record(self, record: SourceRecord, offset: int | None) -> None:
        """Hear that a record was written at an offset, None if a transform has dropped it."""


class SinkTaskContext(Protocol):
    """The worker, as a sink task sees it."""

    config: Mapping[str, str]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset, before the next `put`."""

    def set_timeout_ms(self, timeout_ms: int) -> None:
        """Wait so long before records that `put` has refused are given again."""

    def assignment(self) -> Collection[TopicPartition]:
        """Return the partitions of the task."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch no more of some partitions."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch again."""

    def request_commit(self) -> None:
        """Ask for a commit before its interval has passed."""

    def report_errant(self, record: SinkRecord, error: Exception) -> Future[None]:
        """Give a record to the dead letters, if the connector tolerates errors.

        Raises ConnectException where no error is tolerated.
        """


class SinkTask(Task):
    """Writes the records of its partitions to a sink."""

    context: SinkTaskContext

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write records, or keep them until `flush`; RetriableException has them given again."""

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write all that was given, before these offsets are committed."""
        del offsets

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets to commit; an empty result commits none."""
        self.flush(offsets)
        return offsets

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Begin with partitions that were assigned."""

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """End with partitions that are taken away, after their last commit."""

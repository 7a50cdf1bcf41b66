"""The result of a shard's operation: records to write, and the response sent after their commit.

Kafka: org.apache.kafka.coordinator.common.runtime.{CoordinatorRecord, CoordinatorResult}.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.errors import KafkaError

T = TypeVar("T")


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic; without a value it is a tombstone.

    Key and value are messages, or what the shard keeps in their place.
    """

    key: Any
    value: Any = None
    value_version: int = 0


class Bulk(Protocol):
    """Many records of one kind, encoded and replayed together: cheaper than one by one."""

    count: int

    def encode(self) -> bytes:
        """Return the records as the payload of a batch of the present time."""

    def replay(self, first_offset: int) -> None:
        """Apply all of them."""


@dataclass(slots=True)
class Result(Generic[T]):
    """Records, the response that is sent when they are committed, and a completion callback.

    `on_append` runs once: with None when the records are committed, before the response is
    released, or with the error that prevented it. It may change soft state only. After a timeout
    the records may still be committed: `on_commit` runs when they are, before or after the
    timeout, and never where they are lost. It receives the offset of the last record: what is done
    later, such as with the answer of another broker, names by it the state that it was meant for.
    Records that are not `atomic` may be split into several batches, some of which may be written
    while others are refused.
    """

    response: T
    records: list[CoordinatorRecord] = field(default_factory=list)
    on_append: Callable[[KafkaError | None], None] | None = None
    atomic: bool = True
    on_commit: Callable[[int], None] | None = None
    bulk: Bulk | None = None
    """Written in place of `records`, of which there are none then."""


class TransactionalProducer(NamedTuple):
    """The transactional producer of the records."""

    producer_id: int
    producer_epoch: int
    verification: object = None
    """The log's token for the verification of this transaction (KIP-890)."""


class EndTransaction(NamedTuple):
    """The decision on a transaction, to be written as a marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int


def replace_response(result: Result[Any], response: T) -> Result[T]:
    """Return a result with another response."""
    return replace(result, response=response)


def empty_result() -> Result[None]:
    """Return a result without records and without a response."""
    return Result(None)

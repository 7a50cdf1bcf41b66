"""Queries of a store by partition, with the position that the answers are of.

Kafka: org.apache.kafka.streams.query (KIP-796, KIP-805, KIP-806, KIP-960, KIP-968, KIP-985,
KIP-992).

A query that a kind of store does not have is a failed result, not an error, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from ottla.streams.data.records import ValueAndTimestamp, VersionedRecord
from ottla.streams.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ottla.streams.stores.specs import StoreSpec
    from ottla.types import TopicPartition


class FailureReason(Enum):
    """Why a partition has no answer, with Kafka's names."""

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    NOT_PRESENT = "NOT_PRESENT"
    STORE_EXCEPTION = "STORE_EXCEPTION"


class UnknownQueryError(Exception):
    """A query that a store of its kind does not have."""


class StoreQuery(Protocol):
    """A query of the store of one task."""

    def answer(self, store: Any, spec: StoreSpec) -> Any:
        """Return the answer of a store; UnknownQueryError if it has none of its kind."""


def _require(is_known: bool) -> None:  # noqa: FBT001 - a condition
    if not is_known:
        raise UnknownQueryError


def _known(value: Any, spec: StoreSpec) -> Any:
    """Return a value of a store without its headers, which no query finds, as in Kafka."""
    if not spec.has_headers or value is None:
        return value
    if spec.kind == "session":
        return value.aggregation
    return ValueAndTimestamp(value.value, value.timestamp)


def _plain(value: Any, spec: StoreSpec) -> Any:
    """Return a value without its timestamp."""
    return value.value if spec.has_timestamps and value is not None else value


@dataclass(frozen=True)
class KeyQuery:
    """The value of a key in a key-value store."""

    key: Any

    def answer(self, store: Any, spec: StoreSpec) -> Any:
        """Return the value, None without one."""
        _require(spec.kind == "key-value")
        return _plain(store.get(self.key), spec)


@dataclass(frozen=True)
class TimestampedKeyQuery(KeyQuery):
    """The value of a key in a key-value store, with its timestamp, as tables have it."""

    def answer(self, store: Any, spec: StoreSpec) -> Any:
        """Return the value and its timestamp, None without one."""
        _require(spec.kind == "key-value" and spec.has_timestamps)
        return _known(store.get(self.key), spec)


@dataclass(frozen=True)
class RangeQuery:
    """The entries between two keys of a key-value store, both included; None is no limit."""

    first: Any = None
    last: Any = None
    is_descending: bool = False

    def answer(self, store: Any, spec: StoreSpec) -> list[tuple[Any, Any]]:
        """Return keys and values, by the bytes of the keys."""
        _require(spec.kind == "key-value")
        return [(key, _plain(value, spec)) for key, value in self.entries(store)]

    def entries(self, store: Any) -> Iterator[tuple[Any, Any]]:
        """Yield what the store has between the keys."""
        method = store.reverse_range if self.is_descending else store.range
        yield from method(self.first, self.last)


@dataclass(frozen=True)
class TimestampedRangeQuery(RangeQuery):
    """What `RangeQuery` does, with the timestamps of the values, as tables have them."""

    def answer(self, store: Any, spec: StoreSpec) -> list[tuple[Any, Any]]:
        """Return keys and values with timestamps, by the bytes of the keys."""
        _require(spec.kind == "key-value" and spec.has_timestamps)
        return [(key, _known(value, spec)) for key, value in self.entries(store)]


@dataclass(frozen=True)
class WindowKeyQuery:
    """The windows of a key that start between two times, both included."""

    key: Any
    first_ms: int
    last_ms: int

    def answer(self, store: Any, spec: StoreSpec) -> list[tuple[int, Any]]:
        """Return starts and values, by time."""
        _require(spec.kind == "window")
        found = store.fetch(self.key, self.first_ms, self.last_ms)
        return [(start, _known(value, spec)) for start, value in found]


@dataclass(frozen=True)
class WindowRangeQuery:
    """The sessions of a key, or the windows of all keys that start between two times."""

    key: Any = None
    first_ms: int | None = None
    last_ms: int | None = None

    @classmethod
    def with_key(cls, key: Any) -> WindowRangeQuery:
        """Return the query of a session store."""
        return cls(key)

    @classmethod
    def with_window_start_range(cls, first_ms: int, last_ms: int) -> WindowRangeQuery:
        """Return the query of a window store."""
        return cls(None, first_ms, last_ms)

    def answer(self, store: Any, spec: StoreSpec) -> list[tuple[Any, Any]]:
        """Return windowed keys and values."""
        has_key = self.key is not None
        _require(spec.kind == ("session" if has_key else "window"))
        found = store.fetch(self.key) if has_key else store.fetch_all(self.first_ms, self.last_ms)
        return [(windowed, _known(value, spec)) for windowed, value in found]


@dataclass(frozen=True)
class VersionedKeyQuery:
    """The version of a key that is valid at a time; without one, the latest."""

    key: Any
    as_of_ms: int | None = None

    def answer(self, store: Any, spec: StoreSpec) -> VersionedRecord | None:
        """Return the version, None without one."""
        _require(spec.kind == "versioned")
        found = store.get(self.key, self.as_of_ms)
        if found is None:
            return None
        ends = {version.timestamp: version.valid_to for version in store.versions(self.key)}
        return VersionedRecord(found.value, found.timestamp, ends.get(found.timestamp))


@dataclass(frozen=True)
class MultiVersionedKeyQuery:
    """The versions of a key that are valid within a span; None is no limit."""

    key: Any
    first_ms: int | None = None
    last_ms: int | None = None
    is_descending: bool = False

    def answer(self, store: Any, spec: StoreSpec) -> list[VersionedRecord]:
        """Return the versions, by time."""
        _require(spec.kind == "versioned")
        found = list(store.versions(self.key, self.first_ms, self.last_ms))
        return found[::-1] if self.is_descending else found


@dataclass(frozen=True)
class StateQueryRequest:
    """A query of a store: of all partitions, or of some.

    `position_bound` has the offsets that the state must have at least.
    """

    store: str
    query: StoreQuery
    partitions: Collection[int] | None = None
    position_bound: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class QueryResult:
    """The answer of a partition, or why there is none."""

    value: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str = ""

    @property
    def is_success(self) -> bool:
        """Whether there is an answer, which may be None."""
        return self.failure_reason is None

    @property
    def result(self) -> Any:
        """The answer; StreamsException if there is none."""
        if self.failure_reason is not None:
            raise StreamsException(
                f"Cannot get result for failed query: {self.failure_reason.name}: "
                f"{self.failure_message}"
            )
        return self.value


@dataclass(frozen=True)
class StateQueryResult:
    """The answers by partition, or the one of a global store.

    `position` has, for each partition of the topics that the application reads, the last offset
    that the state has: all answers are of one micro-batch.
    """

    position: Mapping[TopicPartition, int]
    partition_results: dict[int, QueryResult] = field(default_factory=dict)
    global_result: QueryResult | None = None

    def only_partition_result(self) -> QueryResult | None:
        """Return the only answer that is not None; StreamsException for several, or a failed one.

        None if all are None: no partition has the key.
        """
        found = [result for result in self.partition_results.values() if result.result is not None]
        if len(found) > 1:
            raise StreamsException(
                f"The query did not return exactly one partition result: {self.partition_results}"
            )
        return found[0] if found else None


def answer_all(
    request: StateQueryRequest,
    spec: StoreSpec,
    tasks: Mapping[int, Any],
    position: Mapping[TopicPartition, int],
    *,
    is_global: bool = False,
) -> StateQueryResult:
    """Return the answers of the stores of all tasks."""
    if is_global:
        result = _answer(request, spec, next(iter(tasks.values())), position)
        return StateQueryResult(position, global_result=result)
    missing = QueryResult(
        None,
        FailureReason.NOT_PRESENT,
        "The requested partition was not present at the time of the query.",
    )
    numbers = sorted(tasks if request.partitions is None else request.partitions)
    results = {
        number: _answer(request, spec, tasks[number], position) if number in tasks else missing
        for number in numbers
    }
    return StateQueryResult(position, results)


def _answer(
    request: StateQueryRequest,
    spec: StoreSpec,
    store: Any,
    position: Mapping[TopicPartition, int],
) -> QueryResult:
    for place, offset in request.position_bound.items():
        if position.get(place, -1) < offset:
            text = f"{place} is at offset {position.get(place, -1)}, not yet up to {offset}"
            return QueryResult(None, FailureReason.NOT_UP_TO_BOUND, text)
    try:
        return QueryResult(request.query.answer(store, spec))
    except UnknownQueryError:
        text = f"a {_kind(spec)} does not have {request.query}"
        return QueryResult(None, FailureReason.UNKNOWN_QUERY_TYPE, text)
    except (StreamsException, ValueError) as error:
        return QueryResult(None, FailureReason.STORE_EXCEPTION, str(error))


def _kind(spec: StoreSpec) -> str:
    is_plain = spec.kind == "key-value" and not spec.has_timestamps
    return f"{spec.kind} store without timestamps" if is_plain else f"{spec.kind} store"

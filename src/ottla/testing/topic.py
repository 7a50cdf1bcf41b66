"""A topic of a test: a name that any client accepts, with methods to produce and read.

Kafka: the helpers that every test suite writes around its clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

from ottla.testing.errors import raised_at_the_call
from ottla.testing.expectation import Criteria, Data, Expectation, Reader, as_bytes
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import EllipsisType
    from typing import Self

    from ottla.clients.blocking import Producer
    from ottla.clients.consumer.record_decoder import ConsumerRecord


class TopicClients(Protocol):
    """The parts of the `kafka` fixture that a topic uses."""

    sent: dict[tuple[str, int, int], tuple[bytes | None, Any]]
    unchecked: list[Expectation]

    @property
    def client_settings(self) -> dict[str, str]:
        """The `config` of native clients."""

    @property
    def producer(self) -> Producer:
        """A producer without lingering."""

    def offsets(self, topic: str, partition: int, *, earliest: bool) -> int:
        """Return one end of a partition."""


class TestTopic(str):
    """The topic's name; `kafka.topic("orders")` creates it."""

    __slots__ = ("_kafka",)
    __test__ = False
    _kafka: TopicClients

    def __new__(cls, name: str, kafka: TopicClients) -> Self:
        """Bind a name to the fixture that knows the broker."""
        self = super().__new__(cls, name)
        self._kafka = kafka
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Copy and pickle as the plain name: the broker stays in this process."""
        return str, (str(self),)

    # Fill

    @raised_at_the_call
    def produce(
        self,
        values: Data | Iterable[Data],
        *,
        key: Data = None,
        keys: Iterable[Data] | None = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Self:
        """Produce one value or many, and wait for all.

        Parameters:
            values: bytes, str or None (null) are one value; other iterables are many.
            key: the key of each; `keys` has one for each value.
            headers, partition: of each record.
            timestamp_ms: the time of each, in ms since 1970; by default now.

        Raises ValueError unless there are as many keys as values, KafkaError for what a broker
        refuses.
        """
        listed = _listed(values, "produce")
        named = [key] * len(listed) if keys is None else _listed(keys, "produce(keys=…)")
        if len(named) != len(listed):
            raise ValueError(f"produce() got {len(listed)} values, but {len(named)} keys")
        for one in (*listed, *named):
            _check(one)
        return self._send(
            listed, listed, named, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    @raised_at_the_call
    def produce_json(
        self,
        values: object,
        *,
        key: str | None = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Self:
        """Produce one document or many as JSON, and wait for all.

        A dict, str, number, bool or None is one document; other iterables are many, so a list that
        is one document is written `[[…]]`. `key` names the field whose text becomes the key.
        """
        single = values is None or isinstance(values, Mapping | str | int | float)
        rows = deepcopy([values] if single else list(_iterable(values, "produce_json")))
        texts = [_json(row) for row in rows]
        keys: list[Data] = [None if key is None else _field(row, key) for row in rows]
        return self._send(
            rows, texts, keys, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    def _send(
        self,
        given: list[Any],
        values: list[Any],
        keys: list[Data],
        *,
        headers: Mapping[str, bytes | str | None] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Self:
        producer = self._kafka.producer
        sent = [
            producer.send(
                str(self),
                value,
                key,
                headers=headers or (),
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
            for value, key in zip(values, keys, strict=True)
        ]
        producer.flush(30)
        for original, value, delivery in zip(given, values, sent, strict=True):
            place = delivery.result(0)
            self._kafka.sent[place.topic, place.partition, place.offset] = (
                as_bytes(value),
                original,
            )
        return self

    # Read

    def partitions(self) -> list[TopicPartition]:
        """Return the topic's partitions."""
        found = self._kafka.producer.partitions_for(str(self))
        return [TopicPartition(str(self), partition.partition) for partition in found]

    def start_offset(self, partition: int) -> int:
        """Return the partition's first offset."""
        return self._kafka.offsets(str(self), partition, earliest=True)

    def end_offset(self, partition: int) -> int:
        """Return the offset after the partition's last record."""
        return self._kafka.offsets(str(self), partition, earliest=False)

    def reader(self, *, read_committed: bool = False) -> Reader:
        """Return a reader from the start of the topic; close it, or use it in `with`."""
        return Reader(self._kafka.client_settings, self.partitions(), read_committed=read_committed)

    def records(self, *, read_committed: bool = False) -> list[ConsumerRecord]:
        """Return all current records, by partition and offset."""
        with self.reader(read_committed=read_committed) as reader:
            reader.catch_up()
            return reader.records

    def values(self, *, read_committed: bool = False) -> list[Any]:
        """Return the values as they were given to `produce` and `produce_json`.

        Values that other clients sent are bytes, as they were sent.
        """
        return [self._as_given(record) for record in self.records(read_committed=read_committed)]

    def _as_given(self, record: ConsumerRecord) -> Any:
        encoded, original = self._kafka.sent.get(record[:3], (None, None))
        return original if encoded == record.value else record.value

    def values_text(self, *, read_committed: bool = False) -> list[str | None]:
        """Return the values as text; null is None."""
        records = self.records(read_committed=read_committed)
        return [None if record.value is None else record.value.decode() for record in records]

    @raised_at_the_call
    def values_json(self, *, read_committed: bool = False) -> list[Any]:
        """Return the values as the JSON documents that they are; null is None."""
        return [_parsed(record) for record in self.records(read_committed=read_committed)]

    @raised_at_the_call
    def expect(
        self,
        *,
        key: bytes | str | int | EllipsisType | None = ...,
        value: object = ...,
        headers: Mapping[str, bytes | str | None] | None = None,
        where: Callable[[ConsumerRecord], bool] | None = None,
        read_committed: bool = False,
    ) -> Expectation:
        """Expect records that match: `.within(seconds)`, then `.exactly(n)` or `.at_least(n)`.

        None is null. Values other than bytes, str and None are compared as JSON documents.
        """
        criteria = Criteria(key=key, value=value, headers=headers, where=where)
        expected = Expectation(self, criteria, read_committed=read_committed)
        self._kafka.unchecked.append(expected)
        return expected

    def checked(self, expected: Expectation) -> None:
        """Note that an expectation was checked: one that was not fails the test at its end."""
        if expected in self._kafka.unchecked:
            self._kafka.unchecked.remove(expected)


def _listed(values: Data | Iterable[Data], called: str) -> list[Data]:
    if values is None or isinstance(values, bytes | bytearray | memoryview | str):
        return [values]
    if isinstance(values, Mapping):
        raise TypeError(f"{called}() takes bytes, str or None, not a mapping; use produce_json()")
    return list(_iterable(values, called))


def _iterable(values: object, called: str) -> Iterable[Any]:
    if isinstance(values, Iterable) and not isinstance(values, bytes | bytearray | memoryview):
        return values
    raise TypeError(f"{called}() does not take {type(values).__name__}: {values!r}")


def _check(one: object) -> None:
    if one is not None and not isinstance(one, bytes | bytearray | memoryview | str):
        raise TypeError(
            f"produce() takes bytes, str or None, not {type(one).__name__}: {one!r}; "
            "use produce_json() for JSON documents"
        )


def _json(row: object) -> str:
    try:
        return json.dumps(row)
    except (TypeError, ValueError) as error:
        text = f"produce_json() cannot write {row!r}: {error}"
        raise TypeError(text) from None


def _field(row: object, name: str) -> str:
    if not isinstance(row, Mapping) or name not in row:
        raise ValueError(f"produce_json(key={name!r}): {row!r} has no field {name!r}")
    return str(row[name])


def _parsed(record: ConsumerRecord) -> Any:
    if record.value is None:
        return None
    try:
        return json.loads(record.value)
    except ValueError as error:
        place = f"{record.topic}-{record.partition} at offset {record.offset}"
        raise ValueError(f"{place} is no JSON document: {record.value!r} ({error})") from None

"""A topic as tests use it: a name that any client takes, with shortcuts to fill and read it.

Kafka: the helpers that every test-suite writes around its clients.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol

from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from ottla.clients.blocking import Producer
    from ottla.clients.consumer.record_decoder import ConsumerRecord

_POLL_S = 0.02


class TopicClients(Protocol):
    """What a topic needs of the `kafka` fixture."""

    @property
    def producer(self) -> Producer:
        """A producer without lingering."""

    def offsets(self, topic: str, partition: int, *, earliest: bool) -> int:
        """Return one end of a partition."""

    def read_all(self, topic: TestTopic, *, read_committed: bool = False) -> list[ConsumerRecord]:
        """Return all records of a topic that are there now."""


class TestTopic(str):
    """The topic's name; `kafka.topic("orders")` makes it."""

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

    def produce(self, values: Iterable[Any], *, keys: Iterable[Any] | None = None) -> Self:
        """Produce values (bytes, str or None), with as many keys or none; wait for all."""
        producer = self._kafka.producer
        listed = [as_bytes(value) for value in values]
        named = [None] * len(listed) if keys is None else [as_bytes(key) for key in keys]
        sent = [
            producer.send(str(self), value, key) for value, key in zip(listed, named, strict=True)
        ]
        producer.flush(30)
        for delivery in sent:
            delivery.result(0)
        return self

    def produce_json(self, rows: Iterable[Mapping[str, Any]], *, key: str | None = None) -> Self:
        """Produce dictionaries as JSON; `key` names the field whose text becomes the key."""
        listed = list(rows)
        keys = None if key is None else [str(row[key]) for row in listed]
        return self.produce([json.dumps(row) for row in listed], keys=keys)

    def partitions(self) -> list[TopicPartition]:
        """Return the topic's partitions."""
        found = self._kafka.producer.partitions_for(str(self))
        return [TopicPartition(str(self), one.partition) for one in found]

    def start_offset(self, partition: int) -> int:
        """Return the partition's first offset."""
        return self._kafka.offsets(str(self), partition, earliest=True)

    def end_offset(self, partition: int) -> int:
        """Return the offset behind the partition's last record."""
        return self._kafka.offsets(str(self), partition, earliest=False)

    def records(self, *, read_committed: bool = False) -> list[ConsumerRecord]:
        """Return all records that are there now, by partition and offset."""
        return self._kafka.read_all(self, read_committed=read_committed)

    def values(self) -> list[Any]:
        """Return the values: parsed where they are JSON, else text, else bytes."""
        return [_readable(record.value) for record in self.records()]

    def expect(
        self,
        *,
        key: Any = None,
        value: Any = None,
        headers: Mapping[str, bytes] | None = None,
        where: Callable[[ConsumerRecord], bool] | None = None,
    ) -> Expectation:
        """Expect records that match: `.within(seconds)`, then `.exactly(n)` or `.at_least(n)`."""

        def matches(record: ConsumerRecord) -> bool:
            found = dict(record.headers)
            return (
                (key is None or record.key == as_bytes(key))
                and (value is None or record.value == as_bytes(value))
                and all(found.get(name) == data for name, data in (headers or {}).items())
                and (where is None or where(record))
            )

        return Expectation(self, matches)


class Expectation:
    """Counts matching records, waiting for them up to a limit."""

    def __init__(self, topic: TestTopic, matches: Callable[[ConsumerRecord], bool]) -> None:
        self._topic = topic
        self._matches = matches
        self._timeout_s = 0.0

    def within(self, seconds: float) -> Self:
        """Wait up to this long for records that are not there yet."""
        self._timeout_s = seconds
        return self

    def at_least(self, count: int) -> list[ConsumerRecord]:
        """Return the matching records once there are enough; AssertionError with a table."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            every = self._topic.records()
            found = [record for record in every if self._matches(record)]
            if len(found) >= count:
                return found
            if time.monotonic() >= deadline:
                raise AssertionError(self._text(count, found, every))
            time.sleep(_POLL_S)

    def exactly(self, count: int) -> list[ConsumerRecord]:
        """As at_least, and no more than count."""
        found = self.at_least(count)
        if len(found) != count:
            raise AssertionError(self._text(count, found, self._topic.records()))
        return found

    def _text(self, count: int, found: list[ConsumerRecord], every: list[ConsumerRecord]) -> str:
        head = f"expected {count} matching record(s) in {self._topic!s}, found {len(found)}"
        return f"{head}; the topic holds:\n{table(every)}"


def as_bytes(value: Any) -> bytes | None:
    """Return what goes over the wire for bytes, text or None."""
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def _readable(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value
    try:
        return json.loads(text)
    except ValueError:
        return text


def table(records: list[ConsumerRecord], limit: int = 50) -> str:
    """Show records by partition and offset, the first `limit` of them."""
    lines = [f"{'partition':>9} {'offset':>8}  {'key':<20} value  headers"]
    for record in records[:limit]:
        headers = dict(record.headers) or ""
        lines.append(
            f"{record.partition:>9} {record.offset:>8}  "
            f"{_short(record.key, 20):<20} {_short(record.value, 60)}  {headers}"
        )
    if len(records) > limit:
        lines.append(f"… and {len(records) - limit} more")
    return "\n".join(lines)


def _short(value: bytes | None, width: int) -> str:
    text = "null" if value is None else value.decode("utf-8", "backslashreplace")
    return text if len(text) <= width else text[: width - 1] + "…"

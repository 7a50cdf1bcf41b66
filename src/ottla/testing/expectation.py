"""Expectations about a topic: criteria of records, their number, and a time limit.

Kafka: none.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ottla.clients.blocking import Consumer
from ottla.testing.errors import raised_at_the_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import EllipsisType
    from typing import Self

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.types import TopicPartition


Data: TypeAlias = bytes | bytearray | memoryview | str | None
"""A key or a value; None is null."""


class Criteria:
    """Criteria of a record; `...` matches any. Values other than bytes, str and None are JSON."""

    def __init__(
        self,
        *,
        key: bytes | str | int | EllipsisType | None,
        value: object,
        headers: Mapping[str, bytes | str | None] | None,
        where: Callable[[ConsumerRecord], bool] | None,
    ) -> None:
        self._key = str(key) if isinstance(key, int) else key
        self._value = value
        self._headers = headers or {}
        self._where = where

    def match(self, record: ConsumerRecord) -> bool:
        """Whether a record meets all criteria."""
        return (
            _equal(self._key, record.key)
            and _equal(self._value, record.value)
            and all(
                (name, as_bytes(data)) in record.headers for name, data in self._headers.items()
            )
            and (self._where is None or self._where(record))
        )

    def __str__(self) -> str:
        shown = [
            f"{name} {given!r}"
            for name, given in (("key", self._key), ("value", self._value))
            if given is not ...
        ]
        shown += [f"header {name!r}: {data!r}" for name, data in self._headers.items()]
        if self._where is not None:
            shown.append(f"`where` {getattr(self._where, '__name__', self._where)}")
        return f" with {', '.join(shown)}" if shown else ""


def as_bytes(value: Data) -> bytes | None:
    """Return the bytes that are sent."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else bytes(value)


def _equal(expected: object, found: bytes | None) -> bool:
    if expected is ... or expected == found:
        return True
    if expected is None or isinstance(expected, bytes) or found is None:
        return False
    if isinstance(expected, str):
        return expected.encode() == found
    try:
        return bool(json.loads(found) == expected)
    except ValueError:
        return False


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


class Reader:
    """The records of some partitions; a context manager."""

    def __init__(
        self,
        settings: Mapping[str, str],
        partitions: list[TopicPartition],
        *,
        read_committed: bool,
    ) -> None:
        self._partitions = partitions
        self._records: list[ConsumerRecord] = []
        self._consumer = Consumer(
            config=settings,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if read_committed else "read_uncommitted",
        )
        self._consumer.assign(partitions)
        self._consumer.seek_to_beginning()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._consumer.close()

    @property
    def records(self) -> list[ConsumerRecord]:
        """The records read, by partition and offset."""
        return sorted(self._records, key=lambda record: (record.partition, record.offset))

    def catch_up(self) -> None:
        """Read to the current end."""
        ends = self._consumer.end_offsets(self._partitions)
        while any(
            self._consumer.position(partition) < ends[partition] for partition in self._partitions
        ):
            self.wait(1.0)

    def wait(self, seconds: float) -> bool:
        """Read additional records; False if there are none within the time."""
        added = self._consumer.poll(seconds)
        self._records += added
        return bool(added)


class ReadableTopic(Protocol):
    """The methods of a topic that an expectation uses."""

    def reader(self, *, read_committed: bool) -> Reader:
        """Return a reader from the start of the topic."""

    def checked(self, expected: Expectation, /) -> None:
        """Note that the expectation was checked."""


class Expectation:
    """Counts the records of a topic that match; `exactly` and `at_least` check it."""

    def __init__(self, topic: ReadableTopic, criteria: Criteria, *, read_committed: bool) -> None:
        self._topic = topic
        self._criteria = criteria
        self._read_committed = read_committed
        self._timeout_s = 0.0
        self._started_s = 0.0

    def __repr__(self) -> str:
        return f"{self._topic!s}.expect(){self._criteria}"

    @raised_at_the_call
    def within(self, seconds: float) -> Self:
        """Set the time limit; 0, the default, checks the existing records only."""
        if not isinstance(seconds, int | float):
            self._topic.checked(self)  # one error is enough
            raise TypeError(f"within(seconds) takes a number of seconds, not {seconds!r}")
        self._timeout_s = seconds
        return self

    @raised_at_the_call
    def at_least(self, count: int) -> list[ConsumerRecord]:
        """Return the matching records once there are `count`; AssertionError at the limit."""
        self._check_count("at_least", count)
        with self._reader() as reader:
            for found in self._readings(reader):
                if len(found) >= count:
                    return found
            raise AssertionError(self._text(f"at least {_records(count)}", reader))

    @raised_at_the_call
    def exactly(self, count: int) -> list[ConsumerRecord]:
        """Return the matching records at the limit if there are exactly `count`.

        Waits until the limit to detect additional records; AssertionError as soon as one arrives.
        """
        self._check_count("exactly", count)
        with self._reader() as reader:
            for found in self._readings(reader):
                if len(found) > count:
                    break
            found = self._matching(reader)
            if len(found) != count:
                raise AssertionError(self._text(f"exactly {_records(count)}", reader))
            return found

    def _check_count(self, called: str, count: object) -> None:
        self._topic.checked(self)
        if not isinstance(count, int):
            raise TypeError(f"{called}(count) takes a number of records, not {count!r}")

    def _reader(self) -> Reader:
        self._started_s = time.monotonic()
        return self._topic.reader(read_committed=self._read_committed)

    def _readings(self, reader: Reader) -> Iterator[list[ConsumerRecord]]:
        """Yield the matching records after each addition, for the last time at the limit."""
        reader.catch_up()
        yield self._matching(reader)
        deadline_s = self._started_s + self._timeout_s
        while (remaining_s := deadline_s - time.monotonic()) > 0:
            if not reader.wait(remaining_s):
                reader.catch_up()  # a record that arrives at the limit counts
            yield self._matching(reader)

    def _matching(self, reader: Reader) -> list[ConsumerRecord]:
        return [record for record in reader.records if self._criteria.match(record)]

    def _text(self, expected: str, reader: Reader) -> str:
        found = len(self._matching(reader))
        limit = f" within {self._timeout_s:g} s" if self._timeout_s else ""
        after = time.monotonic() - self._started_s
        when = f" after {after:.1f} s" if self._timeout_s else ""
        return (
            f"expected {expected}{self._criteria} in {self._topic!s}{limit}, found {found}{when}; "
            f"the topic holds:\n{table(reader.records)}"
        )


def _records(count: int) -> str:
    return f"{count} record" if count == 1 else f"{count} records"

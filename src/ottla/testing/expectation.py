"""Expectations about a topic: a number of records and a time limit.

Kafka: none.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from ottla.testing.table import table
from ottla.testing.tracebacks import raised_at_the_call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.testing.criteria import Criteria
    from ottla.testing.reader import Reader


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

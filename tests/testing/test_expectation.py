"""Tests of `expect`: when it waits, when it returns, what it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla import ConsumerRecord
from ottla.testing import expectation
from ottla.testing.expectation import Criteria, Expectation

if TYPE_CHECKING:
    from typing import Self


def record(offset: int, value: bytes | None = b"v", key: bytes | None = None) -> ConsumerRecord:
    """Return a record of the topic."""
    return ConsumerRecord("orders", 0, offset, 0, key, value, (("h", b"1"),))


class Topic:
    """A topic that gets records at given times; also its own reader."""

    def __init__(self, *arrivals: tuple[float, ConsumerRecord]) -> None:
        self.now_s = 100.0
        self.arrivals = [(100.0 + after_s, one) for after_s, one in arrivals]
        self.records: list[ConsumerRecord] = []
        self.unchecked = 1

    def __str__(self) -> str:
        return "orders"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        return

    def reader(self, *, read_committed: bool) -> Self:
        return self

    def checked(self, _expected: object) -> None:
        self.unchecked -= 1

    def catch_up(self) -> None:
        self.records = [one for at_s, one in self.arrivals if at_s <= self.now_s]

    def wait(self, seconds: float) -> bool:
        later = [at_s for at_s, _ in self.arrivals if self.now_s < at_s < self.now_s + seconds]
        self.now_s = min([*later, self.now_s + seconds])
        self.catch_up()
        return bool(later)


@pytest.fixture
def expecting(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that makes an expectation of a topic with arrivals."""

    def make(*arrivals: tuple[float, ConsumerRecord], **criteria: Any) -> tuple[Any, Topic]:
        topic: Any = Topic(*arrivals)
        monkeypatch.setattr(
            expectation, "time", SimpleNamespace(monotonic=lambda: topic.now_s), raising=True
        )
        fields = {"key": ..., "value": ..., "headers": None, "where": None, **criteria}
        return Expectation(topic, Criteria(**fields), read_committed=False), topic

    return make


def test_exactly_waits_until_the_limit_to_prove_that_no_more_come(expecting: Any) -> None:
    """A duplicate after half a second is found within a second."""
    expected, topic = expecting((0.1, record(0)), (0.5, record(1)))
    with pytest.raises(AssertionError) as caught:
        expected.within(1).exactly(1)
    assert topic.now_s == 100.5
    assert str(caught.value) == (
        "expected exactly 1 record in orders within 1 s, found 2 after 0.5 s; the topic holds:\n"
        "partition   offset  key                  value  headers\n"
        "        0        0  null                 v  {'h': b'1'}\n"
        "        0        1  null                 v  {'h': b'1'}"
    )


def test_exactly_returns_at_the_limit(expecting: Any) -> None:
    """What comes afterwards is not its matter."""
    expected, topic = expecting((0.1, record(0)), (1.5, record(1)))
    assert expected.within(1).exactly(1) == [record(0)]
    assert topic.now_s == 101


def test_at_least_returns_at_once_when_there_are_enough(expecting: Any) -> None:
    """The limit is for records that do not come."""
    expected, topic = expecting((0.0, record(0)), (0.25, record(1)), (3.0, record(2)))
    assert len(expected.within(10).at_least(2)) == 2
    assert topic.now_s == 100.25


def test_too_few_records_are_reported_at_the_limit(expecting: Any) -> None:
    """With the criteria and what there was."""
    expected, topic = expecting((0.0, record(0)), key="7", headers={"h": "1"})
    with pytest.raises(AssertionError) as caught:
        expected.within(2).at_least(2)
    assert topic.now_s == 102
    assert str(caught.value).splitlines()[0] == (
        "expected at least 2 records with key '7', header 'h': '1' in orders within 2 s, "
        "found 0 after 2.0 s; the topic holds:"
    )


def test_without_a_limit_it_looks_at_what_is_there_now(expecting: Any) -> None:
    """Both checks; no record is what `exactly(0)` proves."""
    expected, topic = expecting((0.5, record(0)))
    assert expected.exactly(0) == []
    expected, topic = expecting((0.5, record(0)))
    with pytest.raises(AssertionError, match="expected at least 1 record in orders, found 0; the"):
        expected.at_least(1)
    assert topic.now_s == 100
    assert topic.unchecked == 0


@pytest.mark.parametrize(
    ("criteria", "matches"),
    [
        ({}, True),
        ({"value": b'{"id": 1}'}, True),
        ({"value": '{"id": 1}'}, True),
        ({"value": {"id": 1}}, True),
        ({"value": {"id": 2}}, False),
        ({"value": None}, False),
        ({"key": "7"}, True),
        ({"key": 7}, True),
        ({"key": None}, False),
        ({"headers": {"h": "1"}}, True),
        ({"headers": {"h": None}}, False),
        ({"headers": {"x": None}}, False),
        ({"where": lambda one: one.offset == 3}, True),
        ({"key": "7", "where": lambda one: one.offset == 4}, False),
    ],
)
def test_all_criteria_must_match(criteria: dict[str, Any], *, matches: bool) -> None:
    """Text is compared as UTF-8, None is null, and other values are JSON documents."""
    fields = {"key": ..., "value": ..., "headers": None, "where": None, **criteria}
    assert Criteria(**fields).match(record(3, b'{"id": 1}', b"7")) is matches


def test_null_is_expected_by_none() -> None:
    """Tombstones can be counted; a value that is no JSON document equals none."""
    criteria = Criteria(key=..., value=None, headers=None, where=None)
    assert criteria.match(record(0, None))
    document = Criteria(key=..., value={"id": 1}, headers=None, where=None)
    assert not document.match(record(0, b"{"))
    assert not document.match(record(0, None))

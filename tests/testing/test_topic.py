"""Tests of topics as tests use them: what `produce` takes and what `values` returns."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing import Kafka, TestTopic


@pytest.fixture(scope="module")
def topic(kafka_module: Kafka) -> TestTopic:
    """Give a topic that nothing is written to."""
    return kafka_module.topic("refusing")


def test_one_value_is_never_split(kafka: Kafka) -> None:
    """bytes, str and null are one value; lists and generators are many."""
    orders = kafka.topic("orders")
    orders.produce(b"abc").produce("def").produce(None, key="k").produce(bytearray(b"ghi"))
    orders.produce([b"j", "k", None]).produce(str(n) for n in range(2))
    assert [one.value for one in orders.records()] == [
        *(b"abc", b"def", None, b"ghi"),
        *(b"j", b"k", None),
        *(b"0", b"1"),
    ]
    assert orders.records()[2].key == b"k"


def test_one_document_is_never_split(kafka: Kafka) -> None:
    """A dict, a text and a number are one document, a list is many."""
    orders = kafka.topic("orders")
    orders.produce_json({"id": 1}, key="id").produce_json("two").produce_json(3)
    orders.produce_json([{"id": 4}, [5]]).produce_json([[6, 7]]).produce_json(None)
    assert orders.values() == [{"id": 1}, "two", 3, {"id": 4}, [5], [6, 7], None]
    assert orders.values_json() == orders.values()
    assert orders.records()[0].key == b"1"


def test_values_returns_what_was_sent(kafka: Kafka) -> None:
    """With its type: text that looks like a number stays text, bytes stay bytes."""
    orders = kafka.topic("orders")
    orders.produce(["1", b"2", "true", None, b"\xff"]).produce_json([{"3": 4}, "5"])
    kafka.producer.send(orders, "6")  # any client: what was sent is bytes
    kafka.producer.flush()
    assert orders.values() == ["1", b"2", "true", None, b"\xff", {"3": 4}, "5", b"6"]


def test_values_are_decoded_on_request(kafka: Kafka) -> None:
    """As text or as JSON documents, whoever sent them."""
    orders = kafka.topic("orders")
    orders.produce([b'{"id": 1}', "2", None])
    assert orders.values_text() == ['{"id": 1}', "2", None]
    assert orders.values_json() == [{"id": 1}, 2, None]
    orders.produce("{")
    with pytest.raises(ValueError, match=r"orders-.*-0 at offset 3 is no JSON document: b'{'"):
        orders.values_json()


def test_keys_headers_and_places_are_given_with_the_values(kafka: Kafka) -> None:
    """One key for all, or one for each."""
    orders = kafka.topic("orders", partitions=2)
    orders.produce(["a", "b"], keys=["1", None], headers={"h": "x"}, partition=1, timestamp_ms=5)
    orders.produce(["c", "d"], key=b"2", partition=1)
    found = orders.records()
    assert [one.key for one in found] == [b"1", None, b"2", b"2"]
    assert {one.partition for one in found} == {1}
    assert (found[0].headers, found[0].timestamp) == ((("h", b"x"),), 5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t: t.produce({"id": 1}), "takes bytes, str or None, not a mapping; use produce_js"),
        (lambda t: t.produce([1]), "takes bytes, str or None, not int: 1; use produce_json()"),
        (lambda t: t.produce(7), "produce() does not take int: 7"),
        (lambda t: t.produce(["a", "b"], keys=["k"]), "produce() got 2 values, but 1 keys"),
        (lambda t: t.produce_json(b"{}"), "produce_json() does not take bytes: b'{}'"),
        (lambda t: t.produce_json([{1, 2}]), "produce_json() cannot write {1, 2}: Object of type"),
        (lambda t: t.produce_json({"a": 1}, key="id"), "{'a': 1} has no field 'id'"),
        (lambda t: t.produce_json([7], key="id"), "produce_json(key='id'): 7 has no field 'id'"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_sent(
    topic: TestTopic, call: Any, text: str
) -> None:
    """With a text that names the value and the way."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call(topic)
    assert text in str(caught.value)
    assert topic.values() == []


def test_a_record_that_comes_later_is_waited_for(kafka: Kafka) -> None:
    """As soon as it is there; `exactly` finds the duplicate that follows."""
    orders = kafka.topic("orders")
    timers = [threading.Timer(after_s, orders.produce, ["x"]) for after_s in (0.1, 0.3)]
    for timer in timers:
        timer.start()
    orders.expect(value="x").within(30).at_least(1)
    with pytest.raises(AssertionError, match="expected exactly 1 record with value 'x' in orders"):
        orders.expect(value="x").within(30).exactly(1)
    for timer in timers:
        timer.join()


def test_only_committed_records_count_on_request(kafka: Kafka) -> None:
    """Without transactions both are the same."""
    orders = kafka.topic("orders").produce("a")
    assert len(orders.records(read_committed=True)) == 1
    orders.expect(read_committed=True).exactly(1)

"""Queries of a store by partition: which partitions, up to which offsets, failures."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.streams import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    RangeQuery,
    Serdes,
    StateQueryRequest,
    StateQueryResult,
    Stores,
    StreamsConfig,
    StreamsException,
    VersionedKeyQuery,
)
from ottla.streams.query.state_queries import answer_all
from ottla.streams.stores.backend import MemoryBackend
from ottla.streams.stores.opening import open_store
from ottla.types import TopicPartition

TEXT = Serdes.string()
SPEC = Stores.key_value("s", TEXT, TEXT)
POSITION = {TopicPartition("in", 0): 7, TopicPartition("in", 1): 3}


def ask(query: Any, *, is_global: bool = False, **given: Any) -> StateQueryResult:
    """Return the answers of two tasks."""
    tasks = {}
    for number, entries in enumerate(({"a": "1", "b": "2"}, {"c": "3"})):
        tasks[number] = open_store(SPEC, MemoryBackend(), StreamsConfig())
        tasks[number].put_all(entries.items())
    request = StateQueryRequest("s", query, **given)
    return answer_all(request, SPEC, tasks, POSITION, is_global=is_global)


def test_each_partition_answers() -> None:
    """A key is in one of them; the position is that of the application."""
    found = ask(KeyQuery("c"))
    assert [one.result for one in found.partition_results.values()] == [None, "3"]
    only = found.only_partition_result()
    assert only is not None
    assert (only.result, only.is_success, found.position) == ("3", True, POSITION)
    assert ask(KeyQuery("x")).only_partition_result() is None
    several = ask(RangeQuery())
    assert several.partition_results[0].result == [("a", "1"), ("b", "2")]
    with pytest.raises(StreamsException, match="did not return exactly one partition result"):
        several.only_partition_result()


def test_a_partition_that_is_not_there_is_a_failure() -> None:
    """Others that are requested answer."""
    found = ask(KeyQuery("c"), partitions={1, 5}).partition_results
    assert (found[1].result, found[5].failure_reason) == ("3", FailureReason.NOT_PRESENT)
    with pytest.raises(StreamsException, match=r"NOT_PRESENT: The requested partition was not"):
        _ = found[5].result


def test_an_answer_may_be_bound_to_offsets() -> None:
    """State of before is a failure, also of a topic that the application does not read."""
    for bound, is_success in (
        ({TopicPartition("in", 0): 7}, True),
        ({TopicPartition("in", 1): 4}, False),
        ({TopicPartition("other", 0): 0}, False),
    ):
        found = ask(KeyQuery("a"), position_bound=bound).partition_results[0]
        assert found.is_success is is_success
        assert is_success or found.failure_reason is FailureReason.NOT_UP_TO_BOUND
    assert found.failure_message == "other-0 is at offset -1, not yet up to 0"


def test_a_query_of_another_kind_of_store_is_a_failure() -> None:
    """And so is what a store cannot look up."""
    found = ask(VersionedKeyQuery("a")).partition_results[0]
    assert found.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    assert found.failure_message == (
        "a key-value store without timestamps does not have "
        "VersionedKeyQuery(key='a', as_of_ms=None)"
    )
    found = ask(KeyQuery(None)).partition_results[0]
    assert found.failure_reason is FailureReason.STORE_EXCEPTION
    assert found.failure_message == "a store takes no null key"
    spec = Stores.versioned_key_value("s", TEXT, TEXT, history=10)
    store = open_store(spec, MemoryBackend(), StreamsConfig())
    request = StateQueryRequest("s", MultiVersionedKeyQuery("a", 2, 1))
    result = answer_all(request, spec, {0: store}, {}).partition_results[0]
    assert "ends before it begins" in result.failure_message
    request = StateQueryRequest("s", VersionedKeyQuery("a"))
    assert answer_all(request, spec, {0: store}, {}).only_partition_result() is None


def test_a_global_store_has_one_answer() -> None:
    """Kafka refuses the query."""
    found = ask(KeyQuery("a"), is_global=True)
    assert found.global_result is not None
    assert (found.global_result.result, found.partition_results) == ("1", {})

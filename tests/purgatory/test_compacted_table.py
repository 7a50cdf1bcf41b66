"""The core of a table over a compacted topic: values, positions, waits, restarts."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.compacted_table import CompactedTable


def test_the_newest_value_of_each_key_is_kept() -> None:
    """A tombstone deletes; a record without a key is none of a table."""
    changes: list[tuple[bytes, bytes | None]] = []
    table = CompactedTable(lambda key, value: changes.append((key, value)))
    for key, value in [(b"a", b"1"), (b"b", b"2"), (None, b"x"), (b"a", b"3"), (b"b", None)]:
        table.apply(key, value)
    table.apply(b"unknown", None)
    assert table.values == {b"a": b"3"}
    assert changes == [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)]


def test_waits_end_when_every_partition_is_read() -> None:
    """Positions may jump over what compaction removed."""
    table = CompactedTable()
    both, one = table.wait_until({0: 5, 1: 2}), table.wait_until({1: 2})
    table.advance({0: 9})
    assert not both.done
    table.advance({1: 2})
    assert both.done
    assert one.done
    assert table.wait_until({0: 9}).done
    assert table.wait_until({2: 0}).done  # an empty partition


def test_a_failure_ends_all_waits() -> None:
    """With its error."""
    table = CompactedTable()
    wait = table.wait_until({0: 1})
    table.fail(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaError):
        wait.value  # noqa: B018 - raises


def test_a_restart_reports_what_differs() -> None:
    """Lost keys as deleted; waits go on at the new positions."""
    changes: list[tuple[bytes, bytes | None]] = []
    table = CompactedTable(lambda key, value: changes.append((key, value)))
    for key in (b"a", b"b", b"c"):
        table.apply(key, b"1")
    table.advance({0: 3})
    wait = table.wait_until({0: 4})
    changes.clear()
    table.restart({b"a": b"1", b"b": b"2"}, {0: 2})
    assert changes == [(b"c", None), (b"b", b"2")]
    assert not wait.done
    table.advance({0: 4})
    assert wait.done

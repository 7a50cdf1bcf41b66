"""Tests of replication.delayed_fetch: what a fetch waits for, by what it may read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.replication.delayed_fetch import DelayedFetch
from ottla.storage.log.append_info import FetchIsolation


class _Partition:
    """A partition that is led here; it can be a key."""

    is_leader = True

    def __init__(self, log: SimpleNamespace) -> None:
        self.log = log


def partition(stable: int, watermark: int, end: int) -> Any:
    """Return a partition that is led here, with these ends and one segment."""
    log = SimpleNamespace(
        failure=None,
        last_stable_offset=stable,
        high_watermark=watermark,
        log_end_offset=end,
        size_bytes=100 * end,
        segments=SimpleNamespace(active=SimpleNamespace(base_offset=0)),
    )
    return _Partition(log)


@pytest.mark.parametrize(
    ("isolation", "readable"),
    [
        (FetchIsolation.TXN_COMMITTED, 3),
        (FetchIsolation.HIGH_WATERMARK, 5),
        (FetchIsolation.LOG_END, 7),
    ],
)
def test_a_fetch_waits_at_the_end_that_it_may_read(
    isolation: FetchIsolation, readable: int
) -> None:
    """A read_committed fetch waits while a transaction is open; it would read nothing."""
    replica = partition(3, 5, 7)
    answers: list[str] = []
    for offset in (readable - 1, readable):
        answer = DelayedFetch(
            0, {replica: offset}, 1, lambda: answers.append("read"), isolation=isolation
        )
        assert answer.try_complete() is (offset < readable)
    assert answers == ["read"]


def test_a_committed_read_is_woken_when_the_transaction_ends() -> None:
    """The last stable offset moves then."""
    replica = partition(3, 5, 5)
    isolation = FetchIsolation.TXN_COMMITTED
    waiting = DelayedFetch(0, {replica: 3}, 1, lambda: None, isolation=isolation)
    assert not waiting.try_complete()
    replica.log.last_stable_offset = 5
    assert waiting.try_complete()

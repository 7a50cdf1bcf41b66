"""Expiry of producers over all logs, in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.log.config import LogConfig
from ottla.storage.log_set.retention_check import ProducerExpiry
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import NOW_MS, end, flush, new_log, put, send
from tests.storage.sets import make, open_set

if TYPE_CHECKING:
    import pytest

CONFIG = LogConfig(producer_id_expiration_ms=1000)


def test_producers_are_checked_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of 100,000 producers takes several slices; other logs follow."""
    monkeypatch.setattr("ottla.storage.log_set.retention_check.STEP_PRODUCERS", 4)
    logs = open_set(SimulatedDisk(), config=CONFIG)
    small, large = (make(logs, TopicPartition("t", number)) for number in range(2))
    for producer_id in range(10):
        send(large, producer_id, 0)
    send(small, 0, 0)
    expiry = ProducerExpiry(logs)
    left = []
    while expiry.step(NOW_MS + 1010):
        left.append((len(large.producer_state.producers), len(small.producer_state.producers)))
    assert left == [(6, 1), (2, 1)]
    assert not small.producer_state.producers


def test_producers_that_are_not_silent_remain() -> None:
    """For producer.id.expiration.ms after their last batch."""
    logs = open_set(SimulatedDisk(), config=CONFIG)
    log = make(logs)
    send(log, 7, 0)
    assert not ProducerExpiry(logs).step(NOW_MS + 990)
    assert list(log.producer_state.producers) == [7]


def test_a_truncation_forgets_the_transactions_of_expired_producers() -> None:
    """A marker may be cut that was not replicated before its producer expired."""
    log = new_log(config=CONFIG)
    put(log)
    log.update_high_watermark(1)
    send(log, 7, 0, transactional=True)
    end(log, 7, commit=False)
    put(log)
    log.producer_state.remove_expired(NOW_MS + 5000)
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    flush(log)
    assert log.first_unstable_offset is None
    send(log, 8, 0, transactional=True)
    end(log, 8, commit=False)
    put(log)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4

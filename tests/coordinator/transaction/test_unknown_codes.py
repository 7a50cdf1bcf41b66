"""Answers with error codes of newer brokers: nothing is forgotten on the way."""

from __future__ import annotations

import pytest

from ottla.coordinator.transaction.decisions import EndRequest, ProducerKey
from ottla.coordinator.transaction.markers import RETRY_MS
from ottla.coordinator.transaction.state import TransactionState
from ottla.errors import ErrorCode
from ottla.types import TopicPartition
from tests.coordinator.transaction.world import World

NEWER_CODE = 999


def test_markers_that_cannot_be_sent_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the channel ends neither this broker's markers nor those decided later."""
    world = World().elect()
    send_markers = world.send_markers

    def fail(*_arguments: object) -> None:
        raise OSError("planted")

    monkeypatch.setattr(world, "send_markers", fail)
    for name in "tu":
        found = world.coordinator.init_producer_id(name, 60_000, None).value
        producer = ProducerKey(found.producer_id, found.producer_epoch)
        world.coordinator.add_partitions(name, producer, [TopicPartition("a", 0)], 2)
        world.coordinator.end_transaction(name, EndRequest(producer, True, 2))
    assert world.sent == []
    monkeypatch.setattr(world, "send_markers", send_markers)
    world.advance(RETRY_MS + 10)
    world.write_markers()
    world.advance(RETRY_MS + 10)
    world.write_markers()
    states = {one.state for one in world.coordinator.runtime.shard(0).transactions.values()}
    assert states == {TransactionState.COMPLETE_COMMIT}


@pytest.mark.parametrize("code", [NEWER_CODE, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_marker_that_is_refused_with_an_unknown_code_is_sent_again(code: int) -> None:
    """As after any other error; the next transaction of the broker has its markers, too."""
    world = World().elect()
    found = world.coordinator.init_producer_id("t", 60_000, None).value
    producer = ProducerKey(found.producer_id, found.producer_epoch)
    world.coordinator.add_partitions("t", producer, [TopicPartition("a", 0)], 2)
    world.coordinator.end_transaction("t", EndRequest(producer, True, 2))
    world.write_markers(code)
    assert world.sent == []
    world.advance(RETRY_MS + 10)
    assert len(world.sent) == 1
    world.write_markers()
    shard = world.coordinator.runtime.shard(0)
    assert shard.transactions["t"].state is TransactionState.COMPLETE_COMMIT

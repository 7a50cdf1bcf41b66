"""Answers with error codes of newer brokers: nothing is forgotten on the way."""

from __future__ import annotations

import pytest

from ottla.coordinator.transaction.decisions import EndRequest, ProducerKey
from ottla.coordinator.transaction.markers import RETRY_MS
from ottla.coordinator.transaction.state import TransactionState
from ottla.errors import ErrorCode
from ottla.types import TopicPartition
from tests.transactions.world import World

NEWER_CODE = 999


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

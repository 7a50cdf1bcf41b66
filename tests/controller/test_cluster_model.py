"""A controller under random operations of its brokers keeps its invariants, in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ottla.metadata.framing import encode_record
from ottla.types import OffsetAndEpoch
from tests.controller.cluster_model import (
    ClusterModel,
    check_index,
    check_replay,
    partitions_of,
)

STEPS = 150


@pytest.mark.parametrize("seed", range(6))
def test_invariants_hold_after_each_operation(seed: int) -> None:
    """With and without eligible leader replicas; a replayed image equals the state."""
    model = ClusterModel(seed, elr=seed % 3 != 2)
    for _ in range(STEPS):
        model.step()
    check_replay(model)


def test_an_operation_that_is_not_committed_leaves_no_trace() -> None:
    """State and index are those of the last commit when the controller stops leading."""
    model = ClusterModel(7)
    for _ in range(60):
        model.step()
    brokers = model.brokers
    for broker_id in (1, 2, 3, 4, 5):
        if broker_id in brokers.epochs and broker_id in brokers.image.cluster.brokers:
            brokers.send(brokers.heartbeat_of(broker_id, fence=True))
    brokers.node._runtime.resigned(1)
    check_replay(model)
    model._check()


def test_a_controller_continues_from_anothers_snapshot() -> None:
    """What it had is replaced: state and index are the other's."""
    one, other = ClusterModel(4), ClusterModel(5)
    for _ in range(80):
        one.step()
        other.step()
    replayed = one.brokers.node._runtime._replayed
    replayed.end_epoch()
    values = [encode_record(record) for record in other.brokers.image.records()]
    for _ in replayed.load_snapshot(values, OffsetAndEpoch(replayed.committed_offset + 500, 9)):
        pass
    check_index(one.controller, partitions_of(other.brokers.image))
    # brokers that both have keep their place in the order of the one that goes on
    assert sorted(one.encoded()) == sorted(other.encoded())


def test_decisions_do_not_depend_on_hashes() -> None:
    """A process with another PYTHONHASHSEED writes the same records."""
    model = ClusterModel(3)
    for _ in range(STEPS):
        model.step()
    other = subprocess.run(
        [sys.executable, "-m", "tests.controller.cluster_model", "3", str(STEPS)],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert other.stdout == model.digest()

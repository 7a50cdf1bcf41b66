"""Timeline structures against plain copies taken at each snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.timeline import (
    LATEST_EPOCH,
    SnapshotRegistry,
    TimelineDict,
    TimelineObject,
    TimelineSet,
)

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers()),
        st.tuples(st.just("delete"), KEYS, st.just(0)),
        st.tuples(st.just("clear"), KEYS, st.just(0)),
        st.tuples(st.just("snapshot"), KEYS, st.just(0)),
        st.tuples(st.just("revert"), KEYS, st.just(0)),
        st.tuples(st.just("forget"), KEYS, st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_dict_agrees_with_copies(steps: list[tuple[str, int, int]]) -> None:
    """Each snapshot reads as the copy made when it was taken."""
    registry = SnapshotRegistry()
    timeline: TimelineDict[int, int] = TimelineDict(registry)
    total = TimelineObject(registry, 0)
    model: dict[int, int] = {}
    copies: dict[int, tuple[dict[int, int], int]] = {}
    next_epoch = 0
    for action, key, value in steps:
        epochs = registry.epochs
        if action == "set":
            timeline[key] = model[key] = value
            total.value += 1
        elif action == "delete" and key in model:
            del timeline[key], model[key]
        elif action == "clear" and key == 0:
            timeline.clear()
            model.clear()
        elif action == "snapshot":
            registry.snapshot(next_epoch)
            copies[next_epoch] = (dict(model), total.value)
            next_epoch += 1
        elif action == "revert" and epochs:
            epoch = epochs[key % len(epochs)]
            registry.revert_to(epoch)
            model = dict(copies[epoch][0])
            next_epoch = epoch + 1
        elif action == "forget" and epochs:
            registry.delete_up_to(epochs[key % len(epochs)])
        assert timeline == model
        for epoch in registry.epochs:
            content = timeline.at(epoch)
            assert dict(content) == copies[epoch][0]
            assert len(content) == len(copies[epoch][0])
            assert [timeline.get_at(one, epoch) for one in range(6)] == [
                copies[epoch][0].get(one) for one in range(6)
            ]
            assert total.at(epoch) == copies[epoch][1]
        assert timeline.at(LATEST_EPOCH) == model


def test_the_snapshots_before_the_last_committed_one_go() -> None:
    """The last one that is not above an offset stays, whether it is that offset or not."""
    registry = SnapshotRegistry()
    for epoch in (2, 5, 9):
        registry.snapshot(epoch)
    for offset, left in ((1, (2, 5, 9)), (2, (2, 5, 9)), (4, (2, 5, 9)), (8, (5, 9)), (20, (9,))):
        registry.delete_before_last_at(offset)
        assert registry.epochs == left
        assert registry.oldest_epoch == left[0]


def test_set_and_object_revert() -> None:
    """Sets keep insertion order and are reverted with the others."""
    registry = SnapshotRegistry()
    members: TimelineSet[str] = TimelineSet(registry)
    state = TimelineObject(registry, "Empty")
    members.add("a")
    registry.snapshot(1)
    members.add("b")
    members.discard("a")
    members.discard("absent")
    state.value = "Stable"
    assert (list(members.at(1)), list(members), state.at(1)) == (["a"], ["b"], "Empty")
    registry.revert_to(1)
    assert (list(members), state.value) == (["a"], "Empty")
    members.clear()
    assert not members


@pytest.mark.parametrize("call", ["revert_to", "at"])
def test_unknown_epoch(call: str) -> None:
    """Reading at or reverting to an epoch without a snapshot is an error."""
    registry = SnapshotRegistry()
    registry.snapshot(5)
    target: Any = registry if call == "revert_to" else TimelineDict(registry)
    with pytest.raises(KeyError):
        getattr(target, call)(4)


def test_epochs_rise() -> None:
    """A snapshot of the past cannot be made, one of the same epoch is the same."""
    registry = SnapshotRegistry()
    registry.snapshot(5)
    registry.snapshot(5)
    assert registry.epochs == (5,)
    with pytest.raises(ValueError, match="older"):
        registry.snapshot(4)


def _changes(registry: SnapshotRegistry) -> int:
    """Return the number of old values in the undo logs: the memory that snapshots cost."""
    return sum(len(changes) for log in registry._undo_logs for changes in log.values())


def test_memory_is_bounded() -> None:
    """When old snapshots are deleted on commit, undo logs do not grow with time."""
    registry = SnapshotRegistry()
    timeline: TimelineDict[int, int] = TimelineDict(registry)
    for epoch in range(100_000):
        timeline[epoch % 10] = epoch
        registry.snapshot(epoch)
        registry.delete_up_to(epoch - 3)
    assert _changes(registry) <= 4
    registry.reset()
    for value in range(1000):
        timeline[value % 10] = value
    assert _changes(registry) == 0

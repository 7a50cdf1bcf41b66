"""Waiters of a log's commits: their order, what is added meanwhile, and the end of all."""

from ottla.purgatory.pending import OffsetQueue


def test_takes_those_whose_offset_is_reached_in_order() -> None:
    """Offsets decide, and among equal ones who came first."""
    queue: OffsetQueue[str] = OffsetQueue()
    for offset, name in ((3, "a"), (3, "b"), (5, "c")):
        queue.add(offset, name)
    assert list(queue.take(2)) == []
    assert list(queue.take(4)) == ["a", "b"]
    assert len(queue) == 1
    assert queue.take_all() == ["c"]


def test_what_is_added_meanwhile_is_taken_too() -> None:
    """A response that is released may lead to the next write."""
    queue: OffsetQueue[int] = OffsetQueue()
    queue.add(1, 1)
    taken = []
    for one in queue.take(2):
        taken.append(one)
        if one == 1:
            queue.add(2, 2)
    assert taken == [1, 2]


def test_all_are_taken_while_some_are_being_released() -> None:
    """A released response may end the leadership: the others fail then."""
    queue: OffsetQueue[int] = OffsetQueue()
    queue.add(1, 1)
    queue.add(1, 2)
    taken = queue.take(1)
    assert next(taken) == 1
    assert queue.take_all() == [2]
    assert list(taken) == []

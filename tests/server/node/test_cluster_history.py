"""The checks of `scripts/kill_cluster.py` find wrong histories that are planted."""

from __future__ import annotations

import pytest

from ottla.records.builder import encode_batch
from tests.conformance.clusters import history as script
from tests.conformance.clusters.chain import check_copy
from tests.conformance.clusters.registers import Operation, check_registers, is_linearizable


def sent(*offsets: int | None, producer: int = 1, floor: int = -1) -> list[script.Sent]:
    """Return a history of one partition: the offset of each record, None for unknown."""
    history = []
    for offset in offsets:
        one = script.Sent(0, producer, floor)
        one.offset = offset
        history.append(one)
    return history


def test_a_right_history_passes() -> None:
    """A record whose outcome is unknown may be there or not."""
    history = sent(0, None, 1, None, 3)
    logs = {0: [0, 2, 3, 4]}
    script.check_acknowledged(history, logs)
    script.check_order(history, logs)
    script.check_consumer([script.Seen(0, 0, 0), script.Seen(0, 1, 2)], logs)


@pytest.mark.parametrize("log", [[0], [0, 2], [1, 0]])
def test_an_acknowledged_record_that_is_lost_or_elsewhere_is_found(log: list[int]) -> None:
    """The log is too short, holds another record, or both records in the other order."""
    with pytest.raises(script.Lost, match="was acknowledged at 0/"):
        script.check_acknowledged(sent(0, 1, None), {0: log})


def test_a_record_before_one_that_was_acknowledged_earlier_is_found() -> None:
    """Offset 1 was acknowledged before the record was sent, which then got offset 0."""
    history = sent(1) + sent(0, floor=1)
    with pytest.raises(script.Lost, match="1 was acknowledged before"):
        script.check_acknowledged(history, {0: [1, 0]})


@pytest.mark.parametrize(
    ("log", "text"),
    [([0, 1, 1], "exists twice"), ([1, 0], "comes after 1"), ([0, 7], "was not sent there")],
)
def test_records_that_exist_twice_or_out_of_order_are_found(log: list[int], text: str) -> None:
    """Also those that were not acknowledged."""
    with pytest.raises(script.Lost, match=text):
        script.check_order(sent(None, None), {0: log})


def test_records_of_two_producers_have_no_order() -> None:
    """A request of the earlier producer may arrive after those of the later one."""
    history = sent(None) + sent(0, producer=2)
    script.check_order(history, {0: [1, 0]})


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ([(0, 0), (2, 2)], "saw 0/2, expected 1"),
        ([(0, 0), (0, 0)], "saw 0/0, expected 1"),
        ([(0, 5)], "saw record 5 at 0/0, where it is not"),
        ([(0, 0), (1, 1), (2, 2), (3, 3)], "saw record 3 at 0/3"),
    ],
)
def test_a_consumer_that_saw_what_is_not_there_is_found(
    seen: list[tuple[int, int]], text: str
) -> None:
    """A gap, a repetition, another record, a record above the end."""
    with pytest.raises(script.Lost, match=text):
        script.check_consumer([script.Seen(0, *one) for one in seen], {0: [0, 1, 2]})


def batch(offset: int, value: bytes) -> bytes:
    """Return a batch of one record."""
    return bytes(encode_batch([(0, None, value, ())], base_offset=offset))


def test_replicas_are_compared_below_the_high_watermark() -> None:
    """Above it they may differ."""
    log = batch(0, b"a") + batch(1, b"b")
    assert script.check_replicas(0, {1: log, 2: log + batch(2, b"x"), 3: log}, 2) == 2
    assert script.check_replicas(0, {1: log, 2: batch(0, b"a") + batch(1, b"x")}, 1) == 1
    with pytest.raises(script.Lost, match="nodes 1 and 2 differ"):
        script.check_replicas(0, {1: log, 2: batch(0, b"a") + batch(1, b"x")}, 2)
    with pytest.raises(script.Lost, match="node 3 ends at 1"):
        script.check_replicas(0, {1: log, 2: log, 3: batch(0, b"a")}, 2)


@pytest.mark.parametrize(
    ("copy", "text"),
    [
        ([4, 4, 5, 6], "records exist twice: .4"),
        ([4, 6], "records are missing: .5"),
        ([5, 4, 6], "place 0 has 5, not 4"),
        ([4, 5, 6, 7], "7 is not of the source"),
    ],
)
def test_a_copy_that_is_not_exact_is_found(copy: list[int], text: str) -> None:
    """Records twice, left out, in another order, and from elsewhere."""
    check_copy("copy", {0: [4, 5, 6]}, {0: [4, 5, 6]})
    with pytest.raises(script.Lost, match=text):
        check_copy("copy", {0: [4, 5, 6]}, {0: copy})


def register(
    *calls: tuple[float, float | None, str, int | None, int | bool | None],
) -> list[Operation]:
    """Return a history: start, end, "read", "write" or "compare 1", what is written, the result."""
    history = []
    for begin_s, end_s, words, value, result in calls:
        kind, *expected = words.split()
        one = Operation("0", kind, value)
        one.expected = int(expected[0]) if expected else None
        one.invoked_s, one.answered_s, one.result = begin_s, end_s, result
        history.append(one)
    return history


LINEARIZABLE = (
    register((0, 1, "read", None, None), (2, 3, "write", 4, None), (4, 5, "read", None, 4)),
    # Concurrent reads see the write or not.
    register((0, 9, "write", 1, None), (1, 2, "read", None, None), (3, 4, "read", None, 1)),
    # Of two concurrent comparisons one writes.
    register(
        (0, 1, "write", 1, None),
        (2, 5, "compare 1", 2, True),
        (3, 4, "compare 1", 3, False),
        (6, 7, "read", None, 2),
    ),
    # Without an answer: happens late, or never.
    register(
        (0, 1, "write", 1, None),
        (2, None, "write", 2, None),
        (3, 4, "read", None, 1),
        (5, 6, "read", None, 2),
    ),
    register((0, 1, "write", 1, None), (2, None, "compare 1", 2, None), (3, 4, "read", None, 1)),
    register((0, None, "read", None, None), (1, None, "write", 2, None)),
)
IMPOSSIBLE = {
    "stale read": register(
        (0, 1, "write", 1, None), (2, 3, "write", 2, None), (4, 5, "read", None, 1)
    ),
    "lost write": register((0, 1, "write", 1, None), (2, 3, "read", None, None)),
    "read that is taken back": register(
        (0, 9, "write", 1, None), (1, 2, "read", None, 1), (3, 4, "read", None, None)
    ),
    "two comparisons that both write": register(
        (0, 1, "write", 1, None), (2, 5, "compare 1", 2, True), (3, 4, "compare 1", 3, True)
    ),
    "value from nowhere": register((0, 1, "read", None, 7)),
    "write before its start": register((0, 1, "read", None, 2), (2, None, "write", 2, None)),
}


@pytest.mark.parametrize("history", LINEARIZABLE)
def test_a_linearizable_history_of_a_register_passes(history: list[Operation]) -> None:
    """Operations that overlap may have any order."""
    assert is_linearizable(history)


@pytest.mark.parametrize("history", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_history_that_no_order_explains_is_found(history: list[Operation]) -> None:
    """Each register is checked alone."""
    with pytest.raises(script.Lost, match="register 0"):
        check_registers(history)


def test_a_long_history_is_checked_in_little_time() -> None:
    """States are entered once: four clients, hundreds of operations, one of them wrong."""
    history = register(*((n, n + 3.5, "write", n % 5, None) for n in range(300)))
    assert is_linearizable(history)
    assert not is_linearizable([*history, *register((400, 401, "read", None, 7))])

"""The bytes of the group protocol, and rounds of the cooperative assignor."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ottla.connect.distributed.assignor import Cooperative, divide_eagerly
from ottla.connect.distributed.protocol import (
    NO_WORK,
    Assignment,
    Work,
    WorkerState,
    decode_assignment,
    decode_state,
    encode_assignment,
    encode_state,
)
from ottla.connect.runtime.state import ConnectorTaskId
from ottla.errors import CorruptMessage


def work(connectors: str = "", *tasks: str) -> Work:
    """Return work: a letter for each connector, `a0` for a task."""
    return Work(
        frozenset(connectors), frozenset(ConnectorTaskId(it[0], int(it[1:])) for it in tasks)
    )


class Rounds:
    """A leader and the work that members go on with."""

    def __init__(self, max_delay_ms: int = 1000) -> None:
        self.assignor = Cooperative(max_delay_ms)
        self.members: dict[str, Work] = {}
        self.generation, self.now_ms, self.delay_ms = 0, 0, 0

    def round(self, configured: Work) -> dict[str, Work]:
        """Carry out a round; return what was assigned."""
        made = self.assignor.divide(
            configured,
            self.members,
            generation=self.generation + 1,
            last_generation=self.generation or -1,
            now_ms=self.now_ms,
        )
        self.generation += 1
        self.delay_ms = made.delay_ms
        for name in self.members:
            self.members[name] = (self.members[name] - made.revoked[name]) | made.assigned[name]
        return made.assigned


ALL = work("ab", "a0", "a1", "b0", "b1")


def test_known_bytes() -> None:
    """Kafka's bytes, written by hand from its schemas."""
    url, offset = b"\x00\x01u", b"\x00" * 7 + b"\x07"
    one = Assignment("m", "u", 7, work("a", "a0"), NO_WORK, 5)
    entry = b"\x00\x01a\x00\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00"
    head = b"\x00\x00" + b"\x00\x01m" + url + offset
    eager = b"\x00\x00" + head + b"\x00\x00\x00\x01" + entry
    assert encode_assignment(one, 0) == eager
    tail = b"\x00\x00\x00\x01" + entry + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x05"
    assert encode_assignment(one, 1) == b"\x00\x01" + head + tail
    none = b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00"
    assert encode_assignment(Assignment("m", "u", 7), 2) == b"\x00\x02" + head + none
    state = WorkerState("u", 7)
    assert encode_state(state, 0) == b"\x00\x00" + url + offset
    assert encode_state(state, 2) == b"\x00\x02" + url + offset + b"\xff\xff\xff\xff"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_bytes_are_read_back(version: int) -> None:
    """What a version can say comes back; other bytes are CorruptMessage."""
    made = Assignment("m", "http://h:1/", 3, ALL, work("c") if version else NO_WORK, 9 * version)
    assert decode_assignment(encode_assignment(made, version)) == made
    state = WorkerState("http://h:1/", 3, ALL if version else NO_WORK)
    assert decode_state(encode_state(state, version, made)) == state
    data = encode_assignment(made, version)
    for end in range(len(data)):
        with pytest.raises(CorruptMessage):
            decode_assignment(data[:end])


def test_a_new_worker_gets_its_share_in_two_rounds() -> None:
    """The first round revokes, the second assigns; nothing runs twice in between."""
    rounds = Rounds()
    rounds.members = {"m1": NO_WORK}
    assert rounds.round(ALL) == {"m1": ALL}
    rounds.members["m2"] = NO_WORK
    assert not any(rounds.round(ALL).values())
    assert [len(it.tasks) for it in rounds.members.values()] == [2, 0]
    assert len(rounds.round(ALL)["m2"].tasks) == 2
    assert rounds.members["m1"] | rounds.members["m2"] == ALL
    assert not rounds.members["m1"] & rounds.members["m2"]


def test_lost_work_waits_for_its_worker() -> None:
    """New work is assigned at once; lost work after the delay, to those without work first."""
    rounds = Rounds()
    rounds.members = {"m1": NO_WORK, "m2": NO_WORK}
    rounds.round(ALL)
    lost = rounds.members.pop("m2")
    rounds.now_ms = 10
    assert rounds.round(ALL | work("c", "c0")) == {"m1": work("c", "c0")}
    assert rounds.delay_ms == 1000
    rounds.now_ms, rounds.members["m3"] = 400, NO_WORK
    assert not any(rounds.round(ALL | work("c", "c0")).values())
    assert rounds.delay_ms == 610
    rounds.now_ms = 1010
    assert rounds.round(ALL | work("c", "c0"))["m3"] == lost
    assert rounds.delay_ms == 0


def test_without_a_delay_lost_work_is_assigned_at_once() -> None:
    """`scheduled.rebalance.max.delay.ms=0`."""
    rounds = Rounds(0)
    rounds.members = {"m1": NO_WORK, "m2": NO_WORK}
    rounds.round(ALL)
    lost = rounds.members.pop("m2")
    assert rounds.round(ALL) == {"m1": lost}


def test_deleted_and_duplicated_work_is_revoked() -> None:
    """A zombie's copy goes, too: the next round assigns it to one of them."""
    rounds = Rounds()
    rounds.members = {"m1": NO_WORK, "m2": NO_WORK}
    rounds.round(ALL)
    rounds.round(work("b", "b0", "b1"))
    assert rounds.members["m1"] | rounds.members["m2"] == work("b", "b0", "b1")
    rounds.members = {"m1": work("b", "b0"), "m2": work("", "b0", "b1")}
    rounds.round(work("b", "b0", "b1"))
    assert rounds.members == {"m1": work("b"), "m2": work("", "b1")}
    rounds.round(work("b", "b0", "b1"))
    assert rounds.members["m1"] | rounds.members["m2"] == work("b", "b0", "b1")


def test_eager_rounds_deal_everything_in_turn() -> None:
    """Connectors first, then tasks."""
    dealt = divide_eagerly(ALL, ["m2", "m1"])
    assert dealt == {"m1": work("a", "a0", "b0"), "m2": work("b", "a1", "b1")}


@pytest.mark.parametrize("seed", range(30))
def test_any_changes_settle_in_balance(seed: int) -> None:
    """Members and connectors come and go; then each piece has one owner, shares differ by one."""
    rng = random.Random(seed)
    rounds = Rounds(rng.choice([0, 500]))
    configured = NO_WORK
    for number in range(40):
        rounds.now_ms += rng.randrange(400)
        letter = rng.choice("abcdef")
        mine = Work(frozenset(letter), frozenset(it for it in configured.tasks if it[0] == letter))
        configured -= mine
        if rng.random() < 0.6:
            count = rng.randrange(4)
            configured |= work(letter, *(f"{letter}{it}" for it in range(count)))
        if rng.random() < 0.3 or not rounds.members:
            rounds.members[f"m{number}"] = NO_WORK
        elif rng.random() < 0.2 and len(rounds.members) > 1:
            del rounds.members[rng.choice(sorted(rounds.members))]
        rounds.round(configured)
        for one, other in pairwise(rounds.members.values()):
            assert not one & other
    for _ in range(8):
        rounds.now_ms += 1000
        rounds.round(configured)
    total = NO_WORK
    for one in rounds.members.values():
        assert not total & one
        total |= one
    assert total == configured
    for kind in (0, 1):
        sizes = [len(it[kind]) for it in rounds.members.values()]
        assert max(sizes) - min(sizes) <= 1

"""The checks of `scripts/kill_cluster.py` find wrong histories that are planted."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.records.builder import encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parents[3] / "scripts" / "cluster_history.py"


@pytest.fixture(scope="module", name="script")
def load_script() -> Iterator[Any]:
    """Provide the script as a module."""
    spec = importlib.util.spec_from_file_location("cluster_history", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def sent(script: Any, *offsets: int | None, producer: int = 1, floor: int = -1) -> list[Any]:
    """Return a history of one partition: the offset of each record, None for unknown."""
    history = []
    for offset in offsets:
        one = script.Sent(0, producer, floor)
        one.offset = offset
        history.append(one)
    return history


def test_a_right_history_passes(script: Any) -> None:
    """A record whose outcome is unknown may be there or not."""
    history = sent(script, 0, None, 1, None, 3)
    logs = {0: [0, 2, 3, 4]}
    script.check_acknowledged(history, logs)
    script.check_order(history, logs)
    script.check_consumer([script.Seen(0, 0, 0), script.Seen(0, 1, 2)], logs)


@pytest.mark.parametrize("log", [[0], [0, 2], [1, 0]])
def test_an_acknowledged_record_that_is_lost_or_elsewhere_is_found(
    script: Any, log: list[int]
) -> None:
    """The log is too short, holds another record, or both records in the other order."""
    with pytest.raises(script.Lost, match="was acknowledged at 0/"):
        script.check_acknowledged(sent(script, 0, 1, None), {0: log})


def test_a_record_before_one_that_was_acknowledged_earlier_is_found(script: Any) -> None:
    """Offset 1 was acknowledged before the record was sent, which then got offset 0."""
    history = sent(script, 1) + sent(script, 0, floor=1)
    with pytest.raises(script.Lost, match="1 was acknowledged before"):
        script.check_acknowledged(history, {0: [1, 0]})


@pytest.mark.parametrize(
    ("log", "text"),
    [([0, 1, 1], "exists twice"), ([1, 0], "comes after 1"), ([0, 7], "was not sent there")],
)
def test_records_that_exist_twice_or_out_of_order_are_found(
    script: Any, log: list[int], text: str
) -> None:
    """Also those that were not acknowledged."""
    with pytest.raises(script.Lost, match=text):
        script.check_order(sent(script, None, None), {0: log})


def test_records_of_two_producers_have_no_order(script: Any) -> None:
    """A request of the earlier producer may arrive after those of the later one."""
    history = sent(script, None) + sent(script, 0, producer=2)
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
    script: Any, seen: list[tuple[int, int]], text: str
) -> None:
    """A gap, a repetition, another record, a record above the end."""
    with pytest.raises(script.Lost, match=text):
        script.check_consumer([script.Seen(0, *one) for one in seen], {0: [0, 1, 2]})


def batch(offset: int, value: bytes) -> bytes:
    """Return a batch of one record."""
    return bytes(encode_batch([(0, None, value, ())], base_offset=offset))


def test_replicas_are_compared_below_the_high_watermark(script: Any) -> None:
    """Above it they may differ."""
    log = batch(0, b"a") + batch(1, b"b")
    assert script.check_replicas(0, {1: log, 2: log + batch(2, b"x"), 3: log}, 2) == 2
    assert script.check_replicas(0, {1: log, 2: batch(0, b"a") + batch(1, b"x")}, 1) == 1
    with pytest.raises(script.Lost, match="nodes 1 and 2 differ"):
        script.check_replicas(0, {1: log, 2: batch(0, b"a") + batch(1, b"x")}, 2)
    with pytest.raises(script.Lost, match="node 3 ends at 1"):
        script.check_replicas(0, {1: log, 2: log, 3: batch(0, b"a")}, 2)

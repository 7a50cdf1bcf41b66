"""Log lines about clients: one of a kind a second, then a count, in bounded memory."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Any

import pytest

from ottla.server.logging.lines import (
    MAX_NODE_LINES,
    JsonFormatter,
    KeyValueFormatter,
    LimitedHandler,
    LineKind,
    LineLimit,
    configure_logging,
)
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ms = 50_000

    def __call__(self) -> int:
        """Return the time."""
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    """Give a clock."""
    return Clock()


def kind(client: str = "1.2.3.4", text: str = "closing: %s") -> LineKind:
    """Return a kind of lines."""
    return LineKind(client, "ottla.dispatch", logging.INFO, text)


def test_one_a_second_and_a_count(clock: Clock) -> None:
    """What is left out within a second is told with the first line behind it."""
    limit = LineLimit(clock)
    assert [limit.admits(kind()) for _ in range(4)] == [True, False, False, False]
    clock.now_ms += 999
    assert not limit.admits(kind())
    assert limit.take_suppressed() == []
    clock.now_ms += 1
    assert limit.admits(kind())
    assert limit.take_suppressed() == [(kind(), 4)]
    assert limit.take_suppressed() == []


def test_kinds_and_clients_are_apart(clock: Clock) -> None:
    """Another text, level, logger or client has a line of its own."""
    limit = LineLimit(clock)
    others = [
        kind(),
        kind(client="1.2.3.5"),
        kind(text="refused"),
        kind()._replace(level=logging.ERROR),
        kind()._replace(logger="ottla.produce"),
    ]
    assert all(limit.admits(one) for one in others)
    assert not any(limit.admits(one) for one in others)


def test_who_came_to_rest_is_told_of_and_forgotten(clock: Clock) -> None:
    """Nothing has to be logged for the count to be told; those without one leave silently."""
    limit = LineLimit(clock)
    for client in ("a", "b", "a"):
        limit.admits(kind(client))
    clock.now_ms += 500
    limit.admits(kind("c"))
    clock.now_ms += 500
    assert limit.take_suppressed() == [(kind("a"), 1)]
    assert len(limit) == 1
    assert limit.take_suppressed(all_of_them=True) == []
    assert len(limit) == 0


def test_what_else_limits_lines_keeps_them_apart(clock: Clock) -> None:
    """A denial hides neither another user's, nor one of another operation."""
    limit = LineLimit(clock)
    kinds = [kind()._replace(limited_by=(who, what)) for who in "ab" for what in (3, 4)]
    assert all(map(limit.admits, kinds))
    assert not any(map(limit.admits, kinds))


def test_lines_about_the_node_have_a_limit_as_well(clock: Clock) -> None:
    """Clients cause some of them: a thousand a second of one text, then the count."""
    limit = LineLimit(clock)
    about_node = LineKind(None, "ottla.broker", logging.WARNING, "not created: %s")
    assert sum(limit.admits(about_node) for _ in range(MAX_NODE_LINES + 234)) == MAX_NODE_LINES
    clock.now_ms += 1000
    assert limit.admits(about_node)
    assert limit.take_suppressed() == [(about_node, 234)]


def test_a_flood_of_one_logger_leaves_the_lines_of_another(clock: Clock) -> None:
    """Connections from very many addresses do not hide a denial."""
    limit = LineLimit(clock, max_kinds=10)
    flood = [limit.admits(kind(str(number))) for number in range(100)]
    assert sum(flood) == 10
    denial = LineKind("::1", "ottla.authorizer", logging.INFO, "denied", ("alice", 3, 2))
    assert limit.admits(denial)
    assert not limit.admits(denial)


def test_a_flood_of_denials_leaves_those_of_another_user(clock: Clock) -> None:
    """Denials of a user from very many addresses are counted, and another user's is written."""
    limit = LineLimit(clock, max_kinds=10)
    denials = [
        LineKind(str(number), "ottla.authorizer", logging.INFO, "denied", ("anonymous", 3, 2))
        for number in range(100)
    ]
    assert sum(map(limit.admits, denials)) == 10
    other = denials[0]._replace(limited_by=("alice", 3, 2))
    assert limit.admits(other)
    assert not limit.admits(other)
    assert not limit.admits(denials[99])
    assert len(limit) == 10
    clock.now_ms += 1000
    assert sum(count for _, count in limit.take_suppressed()) == 92


def test_memory_and_lines_are_bounded_and_no_count_is_lost(clock: Clock) -> None:
    """A flood from everywhere writes a line for each kind that is remembered."""
    limit = LineLimit(clock, max_kinds=10)
    written = suppressed = 0
    for number in range(1000):
        for _ in range(3):
            written += limit.admits(kind(str(number % 40)))
            assert len(limit) <= 10
        clock.now_ms += 10
        suppressed += sum(count for _, count in limit.take_suppressed())
    suppressed += sum(count for _, count in limit.take_suppressed(all_of_them=True))
    assert written + suppressed == 3000
    assert 90 <= written <= 110  # ten seconds


def test_other_clients_are_counted_together(clock: Clock) -> None:
    """The count of what no kind was remembered for is written after a second, by level."""
    limit = LineLimit(clock, max_kinds=1)
    assert [limit.admits(kind(client)) for client in "abcc"] == [True, False, False, False]
    assert limit.take_suppressed() == []
    clock.now_ms += 1000
    assert limit.take_suppressed() == [(kind("any", "lines about other clients"), 3)]


@pytest.fixture
def lines(clock: Clock) -> Iterator[tuple[logging.Logger, io.StringIO, LimitedHandler]]:
    """Give a logger that writes into text."""
    stream = io.StringIO()
    handler = LimitedHandler(LineLimit(clock), stream)
    handler.setFormatter(KeyValueFormatter())
    logger = logging.Logger("ottla.test")  # noqa: LOG001 - it must not stay among all loggers
    logger.addHandler(handler)
    yield logger, stream, handler
    handler.close()


def test_lines_as_they_are_written(clock: Clock, lines: Any) -> None:
    """The count stands in a line of its own, with the client and the last line that was written."""
    logger, stream, handler = lines
    for number in range(1235):
        logger.warning("refused: %d", number, extra={"event": "x", "client": "9.9.9.9"})
    assert stream.getvalue().count("\n") == 1
    assert 'refused: 0 event="x" client="9.9.9.9"' in stream.getvalue()
    clock.now_ms += 1000
    handler.report_suppressed()
    last = stream.getvalue().splitlines()[-1]
    assert 'WARNING ottla.test … 1,234 more like it: refused: 0 client="9.9.9.9"' in last


def test_many_lines_about_the_node_are_written(lines: Any) -> None:
    """What names no client has a limit that a healthy node does not reach."""
    logger, stream, _ = lines
    for _ in range(50):
        logger.error("a disk failed", extra={"event": "directory.offline"})
    assert stream.getvalue().count("a disk failed") == 50


def test_the_end_tells_the_rest(clock: Clock) -> None:
    """A handler that is closed has no count left that was not written, as JSON as well."""
    stream = io.StringIO()
    handler = LimitedHandler(LineLimit(clock), stream)
    handler.setFormatter(JsonFormatter())
    for _ in range(3):
        handler.handle(logging.makeLogRecord({"msg": "no", "client": "c", "levelno": 30}))
    handler.close()
    assert "\\u2026 2 more like it: no" in stream.getvalue()


def test_a_flood_against_a_node_makes_few_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two hundred bad frames of one client are a line or two, and the count is not lost."""
    logger = logging.getLogger("ottla")
    before = logger.handlers[:], logger.level, logger.propagate
    configure_logging()
    try:
        with Cluster() as cluster:
            for _ in range(200):
                assert Peer(cluster.bootstrap).is_closed_after(b"\xff" * 4)
        logger.handlers[0].close()
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
        logger.setLevel(before[1])
    written = [line for line in capsys.readouterr().err.splitlines() if "closing: " in line]
    more = [line for line in written if "more like it" in line]
    counts = [int(line.split("… ")[1].split()[0].replace(",", "")) for line in more]
    assert len(written) - len(more) + sum(counts) == 200
    assert len(written) < 100
    assert all('client="127.0.0.1"' in line for line in written)

"""What the banner says of how the node runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.node import startup
from ottla.server.node.startup import Banner

if TYPE_CHECKING:
    import pytest

BANNER = Banner(1, "MkU3OEVBNTcwNTJENDM2Qg", "localhost:9092", "./ottla-data", True, 0)


def test_the_banner_says_when_nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiled modules the node is slower, and says so in its first line."""
    monkeypatch.setattr(startup, "uncompiled_modules", tuple)
    compiled = BANNER.lines()[0]
    monkeypatch.setattr(startup, "uncompiled_modules", lambda: ("ottla.records.scan",))
    assert "not compiled" in BANNER.lines()[0]
    assert BANNER.lines()[0].startswith(compiled.partition(", not")[0])
    assert len(BANNER.lines()) <= 6


def test_the_banner_proposes_what_works() -> None:
    """A first topic where there is none; the topics where there are some, as after a restart."""
    topics = "next      ottla topics --bootstrap-server localhost:9092"
    assert BANNER.lines()[-1] == f"{topics} --create --topic events"
    assert BANNER._replace(is_new=False, topic_count=1).lines()[-1] == f"{topics} --describe"


def test_the_banner_of_a_controller_proposes_what_works_there() -> None:
    """Topic commands do not."""
    last = BANNER._replace(is_broker=False, bootstrap="localhost:9093").lines()[-1]
    place = "--bootstrap-controller localhost:9093"
    assert last == f"next      ottla metadata-quorum {place} describe --status"

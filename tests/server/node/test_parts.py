"""The list of a node's parts: order of starts and closes, and errors of single parts."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.server.node.parts import NodeParts


def three(calls: list[str]) -> NodeParts:
    """Return three parts that note their calls; the second one fails at each."""
    parts = NodeParts()
    for name in ("low", "middle", "high"):

        def called(what: str, *_: Any, name: str = name) -> None:
            calls.append(f"{what} {name}")
            if name == "middle":
                raise RuntimeError("a defect")

        parts.add(
            name,
            start=partial(calls.append, f"start {name}"),
            metadata_changed=partial(called, "metadata"),
            reconfigure=partial(called, "settings"),
            close=partial(called, "close"),
        )
    parts.add("without anything")
    return parts


def test_parts_start_from_the_bottom_and_close_from_the_top() -> None:
    """A part may use those below it until it is closed."""
    calls: list[str] = []
    parts = three(calls)
    parts.start()
    parts.close()
    assert calls == [
        "start low", "start middle", "start high", "close high", "close middle", "close low",
    ]  # fmt: skip


def test_an_error_of_a_part_stops_no_other_part() -> None:
    """Changes reach the parts after it, and closing goes on."""
    calls: list[str] = []
    parts = three(calls)
    anything: Any = None
    parts.metadata_changed(anything, anything)
    parts.reconfigure(anything)
    assert calls == [
        *(f"metadata {name}" for name in ("low", "middle", "high")),
        *(f"settings {name}" for name in ("low", "middle", "high")),
    ]


def test_a_part_is_closed_once() -> None:
    """A stop closes the upper parts first, then waits, then closes the others."""
    calls: list[str] = []
    parts = three(calls)
    parts.close(down_to="low")
    assert calls == ["close high", "close middle"]
    parts.close()
    parts.close()
    assert calls == ["close high", "close middle", "close low"]

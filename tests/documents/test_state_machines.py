"""The tables of states in docs/architecture.md: drawn from the tables of the code.

`OTTLA_REWRITE=1 scripts/test tests/documents/test_state_machines.py` draws them again.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from ottla.network import connection
from ottla.replication import fetcher
from tests.source_trees import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCUMENT = ROOT / "docs" / "architecture.md"
MACHINES: dict[str, Mapping[Any, frozenset[Any]]] = {
    "ConnectionState": connection.MOVES,
    "FetchState": fetcher.MOVES,
}
ENDS = {"ConnectionState": {connection.ConnectionState.CLOSED}}
"""The states that nothing follows."""
State = TypeVar("State", bound=Enum)


def drawn(moves: Mapping[State, frozenset[State]]) -> str:
    """Draw a machine: each state, what it waits for, and the states that may follow."""
    lines = ["| state | waits for | may become |", "|---|---|---|"]
    for state, following in moves.items():
        names = ", ".join(f"`{other.name}`" for other in moves if other in following)
        lines.append(f"| `{state.name}` | {state.value} | {names or 'nothing'} |")
    return "\n".join(lines)


@pytest.mark.parametrize("name", MACHINES)
def test_the_document_shows_the_moves(name: str) -> None:
    """The document's table of a machine has its states and moves."""
    text = DOCUMENT.read_text(encoding="utf-8")
    place = re.compile(rf"(?<=<!-- moves of {name} -->\n).*?(?=<!-- end of moves -->)", re.DOTALL)
    table = drawn(MACHINES[name]) + "\n"
    if os.environ.get("OTTLA_REWRITE"):
        text = place.sub(table, text, count=1)
        DOCUMENT.write_text(text, encoding="utf-8")
    found = place.search(text)
    assert found is not None
    assert found[0] == table


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_is_reached_and_left(name: str) -> None:
    """No state is without a way in, or out, except the last one."""
    moves = MACHINES[name]
    last = {state for state, following in moves.items() if not following}
    assert last == ENDS.get(name, set())
    assert frozenset().union(*moves.values()) == frozenset(moves)

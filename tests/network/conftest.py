"""Every move of a connection in these tests is one of the table."""

from __future__ import annotations

import pytest

from ottla.network.connection import MOVES, Connection, ConnectionState

slot = Connection.__dict__["_state"]


def _move(connection: Connection, state: ConnectionState) -> None:
    try:
        old = slot.__get__(connection)
    except AttributeError:  # it is being made
        old = None
    assert old is None or state in MOVES[old], (old, state)
    slot.__set__(connection, state)


@pytest.fixture(autouse=True)
def _legal_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_state", property(slot.__get__, _move))

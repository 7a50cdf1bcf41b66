"""States of remote segments."""

from __future__ import annotations

from ottla.storage.remote.segment import MOVES, SegmentState, is_legal

_STARTED, _FINISHED, _DELETING, _DELETED = SegmentState


def test_the_legal_moves_are_those_of_kafka() -> None:
    """Every pair of states, as RemoteLogSegmentState.isValidTransition has them."""
    legal = {
        (state, following)
        for state in MOVES
        for following in SegmentState
        if is_legal(state, following)
    }
    assert legal == {
        (None, _STARTED),
        *((state, state) for state in SegmentState),
        (_STARTED, _FINISHED),
        (_STARTED, _DELETING),
        (_FINISHED, _DELETING),
        (_DELETING, _DELETED),
    }

"""What a Secret shows: nothing."""

from __future__ import annotations

import copy
import json
import pickle
import traceback

import pytest

from ottla.config.secret import Secret

TEXT = "canary-of-this-test"
SECRET = Secret(TEXT)


def test_nothing_shows_it() -> None:
    """Neither formatting nor a container, nor a traceback with its locals."""
    shown = [str(SECRET), repr(SECRET), f"{SECRET:>20}", f"{SECRET!r}", repr({"a": [SECRET]})]
    shown.append("%s %r" % (SECRET, SECRET))  # noqa: UP031 - as logging does
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        captured = traceback.TracebackException.from_exception(error, capture_locals=True)
        shown.extend(captured.format())
    assert not [text for text in shown if TEXT in text.replace(f"TEXT = {TEXT!r}", "")]


def test_no_bytes_of_it_leave() -> None:
    """It is neither pickled nor written as JSON, and a copy is the same object."""
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(SECRET)
    with pytest.raises(TypeError):
        json.dumps({"password": SECRET})
    assert copy.deepcopy({"a": SECRET})["a"] is SECRET
    assert copy.copy(SECRET) is SECRET


def test_it_is_compared_and_revealed() -> None:
    """Equal texts are equal secrets, of one hash; no text is equal to one."""
    assert len({SECRET, Secret(TEXT)}) == 1
    assert Secret("other") != SECRET
    assert TEXT != SECRET
    assert bool(SECRET)
    assert not Secret("")
    assert SECRET.reveal() == TEXT
